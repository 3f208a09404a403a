// A platform to embed in a program: `createPlatformServer` of `millrace/server`.
import { openPlatform } from './platform.ts';
import type { PlatformOptions } from './platform-options.ts';

export interface PlatformServer {
  /** As a client on this machine calls it. */
  readonly url: string;
  /** As a worker on this machine calls it; undefined without the option `grpc`. */
  readonly grpcUrl: string | undefined;
  /** May do everything. Undefined on a later start with the same data folder and without `keyFile`. */
  readonly adminKey: string | undefined;
  /** For the workers of the endpoints declared by `endpoints`; of all if it names none. Undefined as `adminKey`. */
  readonly workerKey: string | undefined;
  /** Adds an endpoint, with the settings that it has or the default ones. @throws PlatformOptionError */
  declareEndpoint(id: string): Promise<void>;
  /** Answers every open wait, then closes the store. Pods go on. */
  close(): Promise<void>;
}

/**
 * Opens a platform and listens. It reads no flags and no environment.
 * @throws PlatformOptionError naming the option that is invalid or cannot be used
 */
export async function createPlatformServer(options: PlatformOptions = {}): Promise<PlatformServer> {
  const { close, declareEndpoint, firstKeys, grpcUrl, url } = await openPlatform(options);
  const { admin: adminKey, worker: workerKey } = firstKeys ?? {};
  return { url, grpcUrl, adminKey, workerKey, declareEndpoint, close };
}
