// The seam to the database: the records, and the verbs that read and write them. It does not decide
// which changes are allowed; queue/lifecycle/lifecycle.ts does.
import type { AttemptError } from '../wire/job/attempt.ts';
import type { ErrorCode, JobStatus } from '../wire/job/job.ts';
import type {
  EndpointBase,
  FileKey,
  JobKey,
  JobNote,
  Payload,
  PayloadFiles,
  ReceiverKey,
  RecordPiece,
  ResourceKey,
  ResourceListing,
  StagedPayload,
  StoredDelivery,
  StoredEndpoint,
  StoredJob,
  StoredKey,
  StoredResource,
  StoredWorker,
  UnusedPayload,
  UploadedPayload,
  VersionKey,
} from './stored-records.ts';

export type * from './stored-records.ts';
export type * from './stored-records.ts';
export {
  findOutgrownGpu,
  isDeadLetter,
  isOpen,
  isWaiting,
  LOWEST_POSITION,
  NEW_JOB,
  NO_GROUP,
  numberGpuType,
  toDeadLetter,
} from './stored-records.ts';

/** Owner of everything that has no other owner: declared endpoints, the first keys. */
export const OWNER = 'owner';

export type SqlValue = string | number | Uint8Array | null;
export type Row = Readonly<Record<string, unknown>>;
export interface Query {
  readonly sql: string;
  readonly params: readonly SqlValue[];
}

/**
 * The work of the database for an operation: a generator over its queries. The driver decides how it runs:
 * SQLite runs it without interruption; a networked database awaits each query.
 */
export type Step<T> = Generator<Query, T, readonly Row[]>;

export interface WriteOptions {
  /**
   * `refuse`, the default: rejects at once while the disk is full. `proceed`: for operations that
   * end or remove something; uses the disk reserve, and runs again after the reserve was released.
   */
  onFullDisk?: 'refuse' | 'proceed';
  /** Payload bytes of a `proceed`: payloads may take only a share of the reserve. Default 0. */
  payloadBytes?: number;
  /**
   * `commit`, the default: resolves when the commit is on disk. `later`: resolves after the commit, which a later
   * one may put on disk; a power failure before that undoes it. For changes that callers see only after another commit,
   * which waits for the disk. A store may ignore `later`.
   */
  onDisk?: 'commit' | 'later';
  /** How many ordinary operations take as long; bounds the length of a commit. Default 1. */
  weight?: number;
}

/**
 * For operations that end or remove something and for the platform's start: run while the disk is
 * full.
 */
export const ENDING = { onFullDisk: 'proceed' } as const satisfies WriteOptions;

export interface Store {
  /**
   * Runs the operation, a plain function. If a verb needs a row that is not in memory, the store reads the row and runs
   * the operation again from its start, so the operation must do no harm if it runs several times. Its changes take
   * effect when it returns. If it throws, nothing is changed and the promise rejects. Operations of one iteration
   * of the event loop share one commit. Resolves after the commit is on disk (see `onDisk`); if the commit fails, all of
   * them reject with StoreUnavailableError.
   */
  write<T>(operation: (tx: Transaction) => T, options?: WriteOptions): Promise<T>;
  /** Reads committed data only. Runs the operation as `write` does. */
  read<T>(operation: (tx: Reader) => T): Promise<T>;
  /**
   * Returns free space to the file system, at most `pages` pages per call; keeps up to a tenth of
   * the file for later writes. True if more can be returned.
   */
  reclaim(pages: number): Promise<boolean>;
  /** Undefined: the database keeps all payloads. */
  readonly files?: PayloadFiles | undefined;
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

/** A file of a payload cannot be written, read or removed. */
export class PayloadFileError extends StoreUnavailableError {
  /** The file is missing or too short. */
  readonly isLost: boolean;

  constructor(path: string, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(`The file ${path} cannot be used now: ${reason}`, { cause });
    this.isLost = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT';
  }
}

/**
 * Log level for callers that retry: the store logs its own failures once a minute, so each retry
 * logs only at debug.
 */
export function logLevelOf(error: unknown): 'debug' | 'error' {
  return error instanceof StoreUnavailableError ? 'debug' : 'error';
}

/** Chunks of one report: their JSON joined by commas. */
export interface ChunkBatch {
  first: number;
  sizes: readonly number[];
  bytes: Uint8Array;
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
  /** Only jobs from this position on. Default 0: no dead letters. */
  from?: number | undefined;
  limit: number;
}

/** What a searched job must have; a member that is left out does not matter. */
export interface JobFilter {
  /** Of its lease or of its last attempt. */
  workerId?: string | undefined;
  /** Of an attempt that has failed. */
  errorCode?: ErrorCode | undefined;
  /** Letters, digits and hyphens. */
  idPart?: string | undefined;
  /** All of them. */
  tags?: readonly string[] | undefined;
}

export function hasTags(
  { tags }: Pick<StoredJob, 'tags'>,
  wanted: JobFilter['tags'] = [],
): boolean {
  return wanted.every((tag) => tags?.includes(tag));
}

export interface JobSearch extends JobListing, JobFilter {
  /** Approximate limit of jobs to examine. */
  scan: number;
}

/** Data of a job that a list shows besides its columns. */
export interface JobPreview {
  /** Null without one, and if it is too large to be read for a list. */
  error: Pick<AttemptError, 'code' | 'message'> | null;
  /** Empty if they are too large to be read for a list. */
  notes: readonly JobNote[];
  /** The input, or its size in bytes if it is larger than the caller wants. */
  input: Uint8Array | number;
}

export interface FoundJobs {
  /** Newest first; there may be fewer than `limit`, or none, before the search is at its end. */
  jobs: StoredJob[];
  /** `before` of the search that goes on behind these; undefined at the end. */
  next: number | undefined;
}

export interface TakeableRequest {
  endpointId: string;
  limit: number;
  /** Time of the operation: by it, running jobs are charged to their groups. */
  now: number;
  /** Most leases of one group. Default: any number. */
  groupLimit?: number | undefined;
  /** What else limits the leases of groups. Default: nothing. */
  gate?: GroupGate | undefined;
  /** Whether jobs that have outgrown the GPU type with this number may be leased. Default: none. */
  acceptsOutgrown?: ((gpuType: number) => boolean) | undefined;
}

/** Limits of groups that the caller knows. NO_GROUP stands for the jobs without a group. */
export interface GroupGate {
  /** Number of further leases that a group may have now. */
  capacity: (group: string) => number;
  /** Groups whose capacity may have grown since the last request. */
  grown: Iterable<string>;
  /** The limits of all groups: with other ones than before, the capacity of each group may have grown. */
  terms: string;
}

/** Ready jobs that have outgrown a GPU type. */
export interface OutgrownLoad {
  /** Number of the type, as `numberGpuType` returns it. */
  gpuType: number;
  /** Exact up to 1,000. */
  waiting: number;
  /** When the one that has waited longest was queued, Unix ms; of the first 16 in their order. */
  oldestQueuedAt: number;
}

export interface TakeableJobs {
  jobs: StoredJob[];
  /** Jobs were passed over because their group is at the limit. */
  isBlocked: boolean;
  /** The search was cut short: ask again, in another operation. */
  hasMore: boolean;
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
  /**
   * Like `map`, for reads. The store reads the missing rows of all items together; a loop would run the operation again
   * for each item.
   */
  each<Item, Value>(items: Iterable<Item>, read: (item: Item) => Value): Value[];
  endpoint(id: string): StoredEndpoint | undefined;
  endpoints(): StoredEndpoint[];
  /** Undefined for a dead letter too. */
  job(key: JobKey): StoredJob | undefined;
  /** The job, also if it is a dead letter. */
  anyJob(key: JobKey): StoredJob | undefined;
  /** Dead letters of the endpoint, the first submitted first. Like `jobs` otherwise. */
  oldestDeadLetters(endpointId: string, limit: number): StoredJob[];
  jobByIdempotencyKey(endpointId: string, idempotencyKey: string): StoredJob | undefined;
  /** Without errors, histories, progress and attachments: of 1,000 jobs they can be hundreds of MB. */
  jobs(listing: JobListing): StoredJob[];
  /** Looks at a bounded number of jobs, however few match. Like `jobs` otherwise. */
  findJobs(search: JobSearch): FoundJobs;
  /**
   * Jobs that any worker may take: IN_QUEUE, not delayed, and without an outgrown GPU type. Higher priorities first; those
   * of a group in their order, but one group after the other.
   */
  readyJobs(endpointId: string, limit: number): StoredJob[];
  /** IN_QUEUE, delayed or not, by position. `upTo`: the last position; default: none. */
  queuedJobs(endpointId: string, limit: number, upTo?: number): StoredJob[];
  /** Jobs whose lease, valid or expired, names the worker. */
  jobsOfWorker(endpointId: string, workerId: string): StoredJob[];
  /** Number of valid leases of the endpoint, or of a group of it. */
  countLeases(endpointId: string, group?: string): number;
  /** Every job that has a lease, over all endpoints. */
  leasedJobs(): StoredJob[];
  dueJobs(now: number, limit: number): StoredJob[];
  nextDueAt(): number | undefined;
  input(key: JobKey): Uint8Array | undefined;
  output(key: JobKey): Uint8Array | undefined;
  /** Bytes of the stored output; 0 without one. */
  outputBytes(key: JobKey): number;
  /** The payload, or its size if it is larger than `maxBytes`. */
  payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Uint8Array | number | undefined;
  /** The same for the inputs of several jobs, by job. Jobs that are gone have none. */
  inputsUpTo(
    endpointId: string,
    ids: readonly string[],
    maxBytes: number,
  ): Map<string, Uint8Array | number>;
  /**
   * Part `index` (from 0) of a payload that is larger than 1 KB. Undefined behind the last part, and once
   * the payload of a removed job is unused.
   */
  payloadPart(kind: StagedPayload['kind'], key: JobKey, index: number): Uint8Array | undefined;
  /** Returns undefined if the job is gone. */
  jobPreview(key: JobKey, maxInputBytes: number): JobPreview | undefined;
  /** The payload of the job, if it is in a file. */
  payloadFile(kind: StagedPayload['kind'], key: JobKey): StagedPayload | undefined;
  unusedPayloads(limit: number): UnusedPayload[];
  /** The files that the unused payload may have. */
  filesOf(payload: UnusedPayload): StagedPayload[];
  chunks(range: ChunkRange): ChunkBatch[];
  log(range: LogRange): Uint8Array;
  /** All receivers with deliveries, each with the time of its first one. */
  receivers(): (ReceiverKey & { nextAt: number })[];
  /** The receiver's due deliveries, the earliest first. */
  dueDeliveries(due: DueDeliveries): StoredDelivery[];
  /** The oldest first. */
  deliveriesOf(endpointId: string, limit: number): StoredDelivery[];
  /** The first time after `after` at which a delivery to the receiver is due. */
  nextDeliveryAt(receiver: ReceiverKey, after: number): number | undefined;
  /**
   * Part `at` (from 0) of the record as it was when the job ended: JSON, in parts of about 1 MB.
   * Undefined behind the last part.
   */
  deliveryPart(key: JobKey, at: number): Uint8Array | undefined;
  countDeliveries(): { endpointId: string; count: number }[];
  worker(endpointId: string, id: string): StoredWorker | undefined;
  workers(): StoredWorker[];
  resource(key: ResourceKey): StoredResource | undefined;
  resources(listing: ResourceListing): StoredResource[];
  /** By the record that they belong to. */
  countResources(kind: string): { parent: string; count: number }[];
  /** Part `index` (from 0) of the archive of a version. Undefined behind the last part. */
  versionPart(key: VersionKey, index: number): Uint8Array | undefined;
  /** Number of stored parts of a version. */
  versionParts(key: VersionKey): number;
  /** The versions of which there are parts, of all endpoints. */
  versionsWithParts(): VersionKey[];
  /** Part `index` (from 0) of a file. Undefined behind the last part. */
  filePart(key: FileKey, index: number): Uint8Array | undefined;
  /** Number of stored parts of a file. */
  fileParts(key: FileKey): number;
  /** When the job that has waited longest was queued, of those that any worker may take. */
  oldestQueuedAt(endpointId: string): number | undefined;
  /**
   * Number of jobs that any worker may take now: exact up to `limit`, or if these are all queued jobs; otherwise
   * `limit`.
   */
  countReady(endpointId: string, limit: number): number;
  /** The other jobs that could be taken now, by the GPU type that they have outgrown. */
  outgrownLoads(endpointId: string): OutgrownLoad[];
  keyByHash(hash: string): StoredKey | undefined;
  keys(): StoredKey[];
  /** The oldest first. */
  keysOfUser(userId: string): StoredKey[];
}

/**
 * An operation changes nothing until it returns. It reads jobs and resources as it has left them. It reads lists first: a
 * list of records that it has changed is an error. An endpoint has the counters from before the operation.
 */
export interface Transaction extends Reader {
  /**
   * The ready jobs that a worker may take, within the limits of their groups: higher priorities first, and within one, of
   * the group that has used least of the GPUs.
   */
  takeableJobs(request: TakeableRequest): TakeableJobs;
  /** Adds the endpoint, or replaces the given members of an existing one; counters and owner stay. */
  putEndpoint(endpoint: EndpointBase): void;
  /**
   * Removes the endpoint with its workers, deliveries, decisions and versions. Its jobs must be removed before. Parts of
   * versions stay: they may be many.
   */
  removeEndpoint(id: string): void;
  /**
   * Adds a job and counts it at the endpoint. The caller guarantees that the ID is new.
   */
  insertJob(job: StoredJob, input: Payload): void;
  /**
   * Writes what differs between the two, so `before` is the job as it was read, and nothing in it
   * was changed since. Keeps the endpoint's counters by that too; `retried` is added to its own.
   */
  saveJob(before: StoredJob, after: StoredJob, retried: number): void;
  /**
   * Removes the job with its input, output, chunks and log. Terminal counters stay, and so do deliveries
   * with an output that their record refers to. Large payloads become unused.
   */
  removeJob(job: StoredJob): void;
  putOutput(key: JobKey, output: Payload): void;
  /** Of a job that no worker has taken. */
  replaceInput(key: JobKey, input: Payload): void;
  dropOutput(key: JobKey): void;
  appendChunks(key: JobKey & { attempt: number }, batch: ChunkBatch): void;
  /** Begins an upload: stores the first part of a payload that is unused until its job gets it. */
  beginPayload(kind: StagedPayload['kind'], key: JobKey, part: Uint8Array): UploadedPayload;
  /** Stores a further part. `at`: bytes before it. */
  addPart(payload: StagedPayload, at: number, part: Uint8Array): void;
  /** Begins an upload of so many bytes to a file, which is created after the commit. */
  beginFile(kind: StagedPayload['kind'], key: JobKey, bytes: number): UploadedPayload;
  /** Deletes rows of unused payloads, of about `maxBytes` at most, in their order. Their files must have been removed. */
  deleteUnused(payloads: readonly UnusedPayload[], maxBytes: number): void;
  /** Removes the chunks of all attempts; many of them become unused. */
  dropChunks(key: JobKey): void;
  appendLog(key: JobKey, at: number, lines: Uint8Array): void;
  /** The caller guarantees that the ID is new. */
  insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): void;
  /** Writes its number of attempts and the time of the next one. */
  postponeDelivery(delivery: StoredDelivery): void;
  /** Removes the delivery and its record, and the output of a removed job to which the record refers. */
  removeDelivery(key: JobKey): void;
  putWorker(worker: StoredWorker): void;
  removeWorker(endpointId: string, id: string): void;
  /** Adds it or replaces the one that is there. */
  putResource(resource: StoredResource): void;
  removeResource(key: ResourceKey): void;
  /** Stores part `index` of the archive of a version. The row of the version is a resource, written last. */
  putVersionPart(key: VersionKey, index: number, part: Uint8Array): void;
  /** Deletes the last `limit` parts of a version. */
  removeVersionParts(key: VersionKey, limit: number): void;
  /** Stores part `index` of a file, which has no readers until a resource names the file. */
  putFilePart(key: FileKey, index: number, part: Uint8Array): void;
  /** Deletes the last `limit` parts of a file. */
  removeFileParts(key: FileKey, limit: number): void;
  putKey(key: StoredKey): void;
  removeKey(id: string): void;
}
