// The public API for programs that embed a platform: `millrace/server`.
export { PlatformOptionError } from './platform/option-error.ts';
export type { PlatformOptions } from './platform/platform-options.ts';
export { createPlatformServer, type PlatformServer } from './platform/platform-server.ts';
