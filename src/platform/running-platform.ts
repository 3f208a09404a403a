// A platform that runs in this process, and what a program may observe and replace in it.
import type { ServedRequest } from '../api/http/guard.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import type { Keys } from '../control/keys/keys.ts';
import type { Queues } from '../queue/queues.ts';
import type { FindScaling } from '../queue/waits.ts';
import type { WorkerLink } from '../wire/link/worker-link.ts';
import { ProblemError } from '../wire/problem.ts';
import type { PlatformKeys } from './files/secret-files.ts';
import type { PlatformUrls } from './listeners.ts';
import { PlatformOptionError } from './option-error.ts';

export interface RunningPlatform extends PlatformUrls {
  /** Undefined on a later start without a key file. */
  readonly firstKeys: PlatformKeys | undefined;
  readonly queue: Queues;
  readonly keys: Keys;
  readonly endpoints: Endpoints;
  /** @throws PlatformOptionError */
  declareEndpoint(id: string): Promise<void>;
  /**
   * Answers `/readyz` with 503, and closes each connection after its response, so that load balancers and clients
   * leave. Requests are served as before. `close` follows.
   */
  announceShutdown(): void;
  /**
   * Replaces the certificate of HTTPS and gRPC, and the authorities of gRPC clients if given; open connections keep
   * theirs. @throws the error of the TLS library
   */
  useCertificate(tls: { cert: string; key: string; clientCa?: string }): void;
  /** Answers every open wait, then closes the store and unlocks the folder. */
  close(): Promise<void>;
}

/** Replacements and observers of parts of the platform, for `millrace dev`, checks and tests. */
export interface PlatformSeams {
  /** Called after the end of each response. */
  onAnswered?: (request: ServedRequest) => void;
  /** Wraps the link between the carriers and the queue of an endpoint. */
  wrapLink?: (link: WorkerLink, endpointId: string) => WorkerLink;
  /** What is known of the workers of an endpoint that the platform does not start. */
  findScaling?: FindScaling;
  /** Read by `/readyz`. Default: ready once it listens. */
  isReady?: () => boolean;
}

/** Declares an endpoint by its ID. An existing one keeps its settings, but for `maxAttempts` if it is given. @throws PlatformOptionError */
export async function declare(
  endpoints: Endpoints,
  id: string,
  maxAttempts: number | undefined,
): Promise<void> {
  const known = endpoints.find(id)?.settings;
  const settings = maxAttempts === undefined ? undefined : { ...known, maxAttempts };
  try {
    await endpoints.ensureEndpoint(id, settings);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    throw new PlatformOptionError('invalid', 'endpoints', error.message);
  }
}
