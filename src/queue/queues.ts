// The queues of endpoints as the API and the control plane see them: one queue may have all endpoints, or several
// queues some each.
import type { StoredEndpoint } from '../store/store.ts';
import type { LeaseRef, WorkerLink } from '../wire/link/worker-link.ts';
import type { EndpointHealth, InputSchemaRecord } from '../wire/resources/endpoint.ts';
import type { QueueActivity } from './activity/activity.ts';
import type { Jobs } from './jobs.ts';
import type { OpenLeases } from './leases/open-leases.ts';
import type { WorkerLoads } from './leases/worker-loads.ts';
import type { GpuTotal } from './reports/gpu-totals.ts';
import type { Streams } from './reports/streams.ts';
import type { QueueSettings } from './settings.ts';
import type { Submissions } from './submissions.ts';
import type { EndpointTimes } from './time/job-times.ts';
import type { DeliveryCounts } from './webhooks/deliveries.ts';

/** The methods of a class, without its private members, so that another class can have them too. */
type MethodsOf<T> = { readonly [Name in keyof T]: T[Name] };

/** Webhook counts of an endpoint: results since the start, and deliveries that wait. */
export interface WebhookCounts {
  counts: DeliveryCounts;
  waiting: number;
}

/** See queue.ts for what each member does. */
export interface Queues {
  readonly submissions: MethodsOf<Submissions>;
  readonly jobs: MethodsOf<Jobs>;
  readonly streams: MethodsOf<Streams>;
  readonly openLeases: MethodsOf<OpenLeases>;
  readonly workerLoads: MethodsOf<WorkerLoads>;
  readonly activity: Pick<QueueActivity, 'now' | 'series'>;
  readonly settings: QueueSettings;
  readonly isClosing: boolean;
  /** All waits at the endpoint end: the platform stops, or another node takes the endpoint over. */
  isClosingAt(endpointId: string): boolean;
  reached(): void;
  bridge(tokens: readonly string[]): void;
  close(): Promise<void>;
  link(endpointId: string, podId?: string | null): WorkerLink;
  endPod(
    endpointId: string,
    podId: string,
    readOutbox?: (workerId: string) => Promise<LeaseRef[]>,
  ): Promise<void>;
  /** Endpoints with their counters, without deleted ones. */
  endpoints(): Promise<StoredEndpoint[]>;
  webhookCounts(): Promise<Map<string, WebhookCounts>>;
  /** What ended attempts used of GPUs since the start, by endpoint. */
  gpuTotals(): ReadonlyMap<string, Readonly<GpuTotal>>;
  /** How long jobs waited and ran since the start, by endpoint. */
  jobTimes(): ReadonlyMap<string, Readonly<EndpointTimes>>;
  health(endpointId: string): Promise<EndpointHealth>;
  /** What the endpoint's handler accepts, if its workers have said so. */
  inputSchema(endpointId: string): Promise<InputSchemaRecord>;
}
