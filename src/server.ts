// The public API for programs that embed a platform: `createPlatformServer` of `millrace/server`.
import { openPlatform } from './platform/platform.ts';
import type { PlatformOptions } from './platform/platform-options.ts';

export { PlatformOptionError } from './platform/option-error.ts';
export type { PlatformOptions } from './platform/platform-options.ts';

export interface PlatformServer {
  /** URL for clients on this machine. */
  readonly url: string;
  /** URL for workers on this machine; undefined without the option `grpc`. */
  readonly grpcUrl: string | undefined;
  /**
   * Key with all rights. Undefined on a later start with the same data folder and without
   * `keyFile`.
   */
  readonly adminKey: string | undefined;
  /**
   * Key for the workers of the endpoints in `endpoints`, or of all endpoints if that is empty.
   * Undefined like `adminKey`.
   */
  readonly workerKey: string | undefined;
  /** Adds an endpoint with its stored or default settings. @throws PlatformOptionError */
  declareEndpoint(id: string): Promise<void>;
  /**
   * Answers `/readyz` with 503, and closes each connection after its response, so that load balancers and clients
   * leave. Requests are served as before. Wait until they have left, then call `close`.
   */
  announceShutdown(): void;
  /** Answers every open wait, then closes the store. Pods keep running. */
  close(): Promise<void>;
}

/**
 * Opens a platform and listens. Reads no flags and no environment.
 * @throws PlatformOptionError that names the invalid or unusable option
 */
export async function createPlatformServer(options: PlatformOptions = {}): Promise<PlatformServer> {
  const { announceShutdown, close, declareEndpoint, firstKeys, grpcUrl, url } =
    await openPlatform(options);
  const { admin: adminKey, worker: workerKey } = firstKeys ?? {};
  return { url, grpcUrl, adminKey, workerKey, declareEndpoint, announceShutdown, close };
}
