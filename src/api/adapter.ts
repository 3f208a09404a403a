// What serves the protocol of another product beside Millrace's own API. adapters.ts lists them.
import type { FastifyInstance } from 'fastify';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import type { Pods } from '../control/pods/pods.ts';
import type { BatchForms } from '../queue/batches/batch-form.ts';
import type { Queues } from '../queue/queues.ts';
import type { RecordFormats } from '../queue/records.ts';
import type { WorkerLink } from '../wire/link/worker-link.ts';
import type { CallerWatches } from './http/guard.ts';
import type { ErrorForm } from './http/problem-reply.ts';
import type { HttpBounds } from './limits/bounds.ts';
import type { StreamCursors } from './routes/stream-answers.ts';
import type { ApiServerOptions } from './server-options.ts';
import type { WorkerAllowance } from './worker/worker-allowance.ts';

export interface Adapter {
  /** Whether the path belongs to the protocol. */
  serves: (url: string) => boolean;
  /** Format of all errors of these paths. Default: application/problem+json. */
  errors?: ErrorForm;
  addRoutes: (app: FastifyInstance, parts: AdapterParts) => void;
  /** How job records in webhooks look, by the format that the job's attachment names. */
  recordFormats?: RecordFormats;
  /** What lines of batches look like, by the form that a batch names. */
  batchForms?: BatchForms;
}

export interface AdapterParts {
  queue: Queues;
  endpoints: Endpoints;
  /** Default: the platform has no catalog and no stored resources. */
  resources?: ApiServerOptions['resources'];
  /** Undefined without an engine. */
  pods?: Pods | undefined;
  /** Undefined if the endpoint does not exist. `podId`: the pod of the worker's key. */
  linkTo: (endpointId: string, podId: string | null) => WorkerLink | undefined;
  /** Default: no limit of workers per key. */
  allowance?: WorkerAllowance | undefined;
  watches: CallerWatches;
  cursors: StreamCursors;
  bounds: HttpBounds;
  clock: Clock;
  log: Log;
  /** Adds a step that runs before the platform stops answering. */
  onStop: (step: () => Promise<void>) => void;
}
