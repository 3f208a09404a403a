// The public API for handlers whose model runs in a process of its own: `millrace/process`.

export type { ParkResult, ParkWay } from './base/process/parkables.ts';
export type { Blame } from './process/calls.ts';
export { ModelCallError, ModelProcessError, ModelTimeoutError } from './process/calls.ts';
export type { ModelStartOptions } from './process/kept-process.ts';
export type { ProcessLog } from './process/messages.ts';
export {
  type BatchItem,
  createModelProcess,
  type ModelCallOptions,
  type ModelProcess,
} from './process/model-process.ts';
export {
  createModelServer,
  type ModelServer,
  readEvents,
  type ServerCallOptions,
  type ServerRequest,
} from './process/model-server.ts';
export type { ModelProcessOptions } from './process/options.ts';
export { NoRoomError, type ParkOptions, ParkRefusedError } from './process/parking.ts';
export type { ModelServerOptions, ServerHook } from './process/server-options.ts';
