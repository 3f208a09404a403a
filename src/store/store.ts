// The seam to the database: the records, and the verbs that read and write them. It does not decide
// which changes are allowed; queue/lifecycle.ts does.

import type { FailedAttempt, JobError, JobStatus } from '../wire/job.ts';
import type { Device } from '../wire/link/worker-link.ts';
import type { EndpointDeployment, EndpointSettings } from '../wire/resources/endpoint.ts';

/** Owner of everything that has no other owner: declared endpoints, the first keys. */
export const OWNER = 'owner';

export type SqlValue = string | number | Uint8Array | null;
export type Row = Readonly<Record<string, unknown>>;
export interface Query {
  readonly sql: string;
  readonly params: readonly SqlValue[];
}

/**
 * An operation, written as a generator over its queries. The driver decides how it runs: SQLite
 * runs it without interruption; a networked database awaits each query.
 */
export type Step<T> = Generator<Query, T, readonly Row[]>;

export interface WriteOptions {
  /**
   * `refuse`, the default: rejects at once while the disk is full. `proceed`: for operations that
   * end or remove something; uses the disk reserve. Such an operation may run a second time after
   * the reserve was released.
   */
  onFullDisk?: 'refuse' | 'proceed';
  /** Payload bytes of a `proceed`: payloads may take only a share of the reserve. Default 0. */
  payloadBytes?: number;
}

/**
 * For operations that end or remove something and for the platform's start: run while the disk is
 * full.
 */
export const ENDING = { onFullDisk: 'proceed' } as const satisfies WriteOptions;

export interface Store {
  /**
   * Runs the operation in its own savepoint; if it throws, it is undone and the promise rejects.
   * Operations of one turn of the event loop share one commit. Resolves after the commit is on
   * disk; if the commit fails, all of them reject with StoreUnavailableError.
   */
  write<T>(operation: (tx: Transaction) => Step<T>, options?: WriteOptions): Promise<T>;
  /** Reads committed data only. */
  read<T>(operation: (tx: Reader) => Step<T>): Promise<T>;
  /**
   * Returns free space to the file system, at most `pages` pages per call; keeps up to a tenth of
   * the file for later writes. True if more can be returned.
   */
  reclaim(pages: number): Promise<boolean>;
  /** Commits requested operations, then closes. */
  close(): Promise<void>;
}

/** The disk is full or the file cannot be written: nothing of the operation was stored. */
export class StoreUnavailableError extends Error {
  override readonly name = 'StoreUnavailableError';
  /** Name of SQLite's code, if there was one: `SQLITE_FULL`. */
  readonly code: string | undefined;

  constructor(message: string, options: { cause?: unknown; code?: string } = {}) {
    super(message, { cause: options.cause });
    this.code = options.code;
  }
}

/**
 * Log level for callers that retry: the store logs its own failures once a minute, so each retry
 * logs only at debug.
 */
export function logLevelOf(error: unknown): 'debug' | 'error' {
  return error instanceof StoreUnavailableError ? 'debug' : 'error';
}

/** The right to run an attempt. It outlives its expiry until a newer lease is given. */
export interface StoredLease {
  token: string;
  workerId: string;
  incarnation: number;
  takeId: string;
  /** Unix ms. */
  until: number;
  /** The worker has named the lease in a renew or report. */
  started: boolean;
  /** Set when the lease expired: whether that counted as a failure or as a release. */
  lost: 'failure' | 'release' | null;
}

/** All times are Unix ms, all durations ms. */
export interface StoredJob {
  endpointId: string;
  id: string;
  status: JobStatus;
  mode: 'run' | 'runsync';
  priority: number;
  /** Position among equal priorities and in lists; grows with every submission. */
  position: number;
  submittedAt: number;
  queuedAt: number;
  /** The job must not be leased before. */
  availableAt: number;
  /** IN_QUEUE, and `availableAt` is in the future. */
  delayed: boolean;
  /** The job is removed then, whatever its status. */
  expiresAt: number;
  ttlMs: number;
  executionTimeoutMs: number;
  maxAttempts: number;
  /** When the current attempt was leased. */
  startedAt: number | null;
  /** When the queue ends the running attempt. */
  deadlineAt: number | null;
  endedAt: number | null;
  /** Run time of the last attempt, once known. */
  executionMs: number | null;
  /** When the sweeper must process the job next. */
  dueAt: number;
  attempt: number;
  failures: number;
  releases: number;
  /** The next attempt must run alone in its process. */
  solo: boolean;
  lease: StoredLease | null;
  /** Sequence number of the last applied report of the current attempt. */
  lastSeq: number;
  /** Number of chunks of the current attempt, and their total size. */
  chunkCount: number;
  chunkBytes: number;
  /**
   * First chunk that the default stream cursor has not returned yet, of attempt `cursorAttempt`.
   */
  cursorAttempt: number;
  cursorNext: number;
  /** Where the output of a COMPLETED job is. */
  outputKind: 'none' | 'value' | 'chunks';
  logBytes: number;
  logDropped: number;
  error: JobError | null;
  history: FailedAttempt[];
  /** JSON text. */
  progress: string | null;
  /** Worker of the last attempt. */
  workerId: string | null;
  idempotencyKey: string | null;
  /** SHA-256 of the request body that came with the idempotency key, base64url. */
  requestHash: string | null;
  /** Trace of the request that created the job; see wire/trace-context.ts. */
  traceparent: string | null;
  tracestate: string | null;
  /** URL to which the final record is posted. */
  webhook: string | null;
  attachment: JobAttachment | null;
}

/** Data that the submitting API keeps with a job. Store and queue do not read it. */
export interface JobAttachment {
  /**
   * Name of the clients' record format; null for Millrace's own. Clients of another format cannot
   * learn that a stream starts over.
   */
  readonly format: string | null;
  /** JSON text for the handler, sent with each lease; null without any. */
  readonly handlerData: string | null;
}

/** A record to post to a webhook. It outlives its job. */
export interface StoredDelivery extends ReceiverKey {
  endpointId: string;
  /** Sorts by the time at which the job ended. */
  id: string;
  jobId: string;
  url: string;
  createdAt: number;
  /** Run time of the platform when the job ended, over all its starts, ms. */
  platformRanMs: number;
  /** Size of the record. */
  bytes: number;
  /** Failed attempts so far. */
  attempts: number;
  /** No attempt is made before. */
  nextAt: number;
}

/** One receiver of one user, so that no user's deliveries wait behind another's. */
export interface ReceiverKey {
  /** Owner of the endpoint. */
  userId: string;
  /** Host and port of the URL: the unit that may be slow or dead. */
  receiver: string;
}

/**
 * A piece of a record: bytes, or a reference to the stored output of a job of the same endpoint.
 */
export type RecordPiece = Uint8Array | { outputOf: JobKey };

export interface StoredEndpoint {
  id: string;
  /** ID of the owner. */
  userId: string;
  /** Null: the platform starts no workers for the endpoint. */
  deployment: EndpointDeployment | null;
  /** The endpoint is deleted and invisible; its remains are being removed. */
  deleted: boolean;
  settings: EndpointSettings;
  createdAt: number;
  /** Current number of jobs in each state; `inQueue` includes delayed ones. */
  inQueue: number;
  inProgress: number;
  /** Counted since the endpoint's creation. */
  completed: number;
  failed: number;
  cancelled: number;
  timedOut: number;
  retried: number;
}

/**
 * An endpoint without its counters. Defaults of omitted members: the platform's owner, no
 * deployment, not deleted.
 */
export type EndpointBase = Pick<StoredEndpoint, 'id' | 'settings' | 'createdAt'> &
  Partial<Pick<StoredEndpoint, 'userId' | 'deployment' | 'deleted'>>;

/** A resource that is stored as JSON. */
export interface StoredResource {
  /** Kind of resource, named by the module that owns it: `template`. */
  kind: string;
  id: string;
  userId: string;
  /** ID of the endpoint that the resource belongs to; empty without one. */
  parent: string;
  /** Position in lists; grows with each creation. */
  position: number;
  /** JSON text. */
  body: string;
}

export interface ResourceKey {
  kind: string;
  id: string;
}

/** Newest first. */
export interface ResourceListing {
  kind: string;
  /** Undefined: resources of all users. */
  userId?: string | undefined;
  parent?: string | undefined;
  /** Only resources with a smaller position. */
  before?: number | undefined;
  limit: number;
}

export interface StoredWorker {
  endpointId: string;
  id: string;
  /** The pod whose key the worker presented in its last hello; null: no pod's. */
  podId: string | null;
  incarnation: number;
  slots: number;
  version: string;
  devices: Device[];
  helloAt: number;
}

export interface StoredKey {
  id: string;
  /** SHA-256 of the key, base64url. */
  hash: string;
  name: string;
  userId: string;
  scopes: string[];
  createdAt: number;
  expiresAt: number | null;
  /** The pod whose worker uses the key; the key is revoked with the pod. */
  podId: string | null;
}

/** Chunks of one report: their JSON joined by commas. */
export interface ChunkBatch {
  first: number;
  sizes: readonly number[];
  bytes: Uint8Array;
}

export interface JobKey {
  endpointId: string;
  id: string;
}

export interface DueDeliveries extends ReceiverKey {
  now: number;
  limit: number;
}

export interface JobListing {
  endpointId: string;
  status: JobStatus | undefined;
  /** Only jobs with a smaller position, because the list is newest first. */
  before: number | undefined;
  limit: number;
}

export interface ChunkRange extends JobKey {
  attempt: number;
  /** The first batch contains this chunk and is returned whole. */
  from: number;
  /** Stops after the batch with which the total reaches this size. */
  maxBytes: number;
}

export interface LogRange extends JobKey {
  /** Number of bytes that the caller has already read. */
  from: number;
  maxBytes: number;
}

export interface Reader {
  endpoint(id: string): Step<StoredEndpoint | undefined>;
  endpoints(): Step<StoredEndpoint[]>;
  job(key: JobKey): Step<StoredJob | undefined>;
  jobByIdempotencyKey(endpointId: string, idempotencyKey: string): Step<StoredJob | undefined>;
  /** Without errors, histories, progress and attachments: of 1,000 jobs they can be hundreds of MB. */
  jobs(listing: JobListing): Step<StoredJob[]>;
  /** IN_QUEUE and not delayed, best first; locked against others until the operation ends. */
  readyJobs(endpointId: string, limit: number): Step<StoredJob[]>;
  /** IN_QUEUE, delayed or not. */
  queuedJobs(endpointId: string, limit: number): Step<StoredJob[]>;
  /** Jobs whose lease, valid or expired, names the worker. */
  jobsOfWorker(endpointId: string, workerId: string): Step<StoredJob[]>;
  /** Every job that has a lease, over all endpoints. */
  leasedJobs(): Step<StoredJob[]>;
  dueJobs(now: number, limit: number): Step<StoredJob[]>;
  nextDueAt(): Step<number | undefined>;
  input(key: JobKey): Step<Uint8Array | undefined>;
  output(key: JobKey): Step<Uint8Array | undefined>;
  /** Bytes of the stored output; 0 without one. */
  outputBytes(key: JobKey): Step<number>;
  chunks(range: ChunkRange): Step<ChunkBatch[]>;
  log(range: LogRange): Step<Uint8Array>;
  /** All receivers with deliveries, each with the time of its first one. */
  receivers(): Step<(ReceiverKey & { nextAt: number })[]>;
  /** The receiver's due deliveries, the earliest first. */
  dueDeliveries(due: DueDeliveries): Step<StoredDelivery[]>;
  /** The first time after `after` at which a delivery to the receiver is due. */
  nextDeliveryAt(receiver: ReceiverKey, after: number): Step<number | undefined>;
  /**
   * Part `at` (from 0) of the record as it was when the job ended: JSON, in parts of about 1 MB.
   * Undefined behind the last part.
   */
  deliveryPart(key: JobKey, at: number): Step<Uint8Array | undefined>;
  countDeliveries(): Step<{ endpointId: string; count: number }[]>;
  worker(endpointId: string, id: string): Step<StoredWorker | undefined>;
  workers(): Step<StoredWorker[]>;
  resource(key: ResourceKey): Step<StoredResource | undefined>;
  resources(listing: ResourceListing): Step<StoredResource[]>;
  /** When the job that has waited longest was queued; delayed ones do not count. */
  oldestQueuedAt(endpointId: string): Step<number | undefined>;
  /**
   * Number of jobs that could be taken now: exact up to `limit`, or if no job is delayed; otherwise
   * `limit`.
   */
  countReady(endpointId: string, limit: number): Step<number>;
  keyByHash(hash: string): Step<StoredKey | undefined>;
  keys(): Step<StoredKey[]>;
  /** The oldest first. */
  keysOfUser(userId: string): Step<StoredKey[]>;
}

export interface Transaction extends Reader {
  /** Adds the endpoint, or replaces the given members of an existing one; counters and owner stay. */
  putEndpoint(endpoint: EndpointBase): Step<void>;
  /** Removes the endpoint with its workers and resources. Its jobs must be removed before. */
  removeEndpoint(id: string): Step<void>;
  /** Adds a job and counts it at the endpoint. The caller guarantees that the ID is new. */
  insertJob(job: StoredJob, input: Uint8Array): Step<void>;
  /**
   * Writes what differs between the two, so `before` is the job as it was read, and nothing in it
   * was changed since. Keeps the endpoint's counters by that too; `retried` is added to its own.
   */
  saveJob(before: StoredJob, after: StoredJob, retried: number): Step<void>;
  /**
   * Removes the job with its input, output, chunks and log. Terminal counters stay, and so do deliveries
   * with an output that their record refers to.
   */
  removeJob(job: StoredJob): Step<void>;
  putOutput(key: JobKey, output: Uint8Array): Step<void>;
  dropOutput(key: JobKey): Step<void>;
  appendChunks(key: JobKey & { attempt: number }, batch: ChunkBatch): Step<void>;
  /** Removes the chunks of all attempts. */
  dropChunks(key: JobKey): Step<void>;
  appendLog(key: JobKey, at: number, lines: Uint8Array): Step<void>;
  /** The caller guarantees that the ID is new. */
  insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): Step<void>;
  /** Writes its number of attempts and the time of the next one. */
  postponeDelivery(delivery: StoredDelivery): Step<void>;
  /** Removes the delivery and its record, and the output of a removed job to which the record refers. */
  removeDelivery(key: JobKey): Step<void>;
  putWorker(worker: StoredWorker): Step<void>;
  removeWorker(endpointId: string, id: string): Step<void>;
  /** Adds it or replaces the one that is there. */
  putResource(resource: StoredResource): Step<void>;
  removeResource(key: ResourceKey): Step<void>;
  putKey(key: StoredKey): Step<void>;
  removeKey(id: string): Step<void>;
}
