// The records that the store keeps, and the GPU type that a job has outgrown. store.ts has the verbs that read and write
// the records.
import { createHash } from 'node:crypto';
import type { AttemptUsage } from '../wire/job/attempt.ts';
import type { JobStatus, ParentEnd, ParentPolicy } from '../wire/job/job.ts';
import type { FailedAttempt, JobError, TimelineEntry } from '../wire/job/job-records.ts';
import type { RetryPolicy } from '../wire/job/retry-policy.ts';
import type { Device } from '../wire/link/worker-link.ts';
import type { EndpointDeployment, EndpointSettings } from '../wire/resources/endpoint.ts';
import type { PayloadFileError } from './store.ts';

export interface JobKey {
  endpointId: string;
  id: string;
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
  /** GPUs of the worker. Absent: one, or none. */
  gpus?: number;
  /** The lease expired while it waited only for the outcome of an attempt that was over. */
  delivering?: true;
}

/** A job that must end before another one starts. */
export interface JobParent extends JobKey {
  onFailure: ParentPolicy;
  /** Member of the child's input that gets the output of the parent. */
  as?: string;
  /** Absent: it has not ended. */
  ended?: ParentEnd;
  /** Shard of the parent, if that is another one than the child's. */
  shard?: number;
  /** How often the child waits for the parent again: a message about an earlier wait does not count. Default: 0. */
  round?: number;
  /** The job is a child that a handler has started and awaits: how it ends is remembered under this name. */
  step?: AwaitedStep;
}

export interface AwaitedStep {
  name: string;
  /** Of what the child was started with. */
  digest: string;
}

/** The rows of a job's memo: see queue/memo.ts. */
export interface MemoSize {
  entries: number;
  bytes: number;
  /** Numbers of the entries of children that have not COMPLETED: a retry by a client forgets them. */
  failed?: readonly number[];
}

/** The wait of a handler for children, or for a time. */
export interface HandlerWait {
  since: number;
  /** Unix ms; absent: it does not wait for a time. */
  until?: number;
  /** What is left of the time to live when the wait ends. */
  leftMs: number;
}

/** A job that waits for another one. */
export interface JobChild extends JobKey {
  /** Its input gets the output of the parent. */
  reads?: true;
  /** Shard of the child, if that is another one than the parent's. */
  shard?: number;
  /** As of the parent of this child. */
  round?: number;
  /** It is of the same flow. */
  sibling?: true;
}

/** A child whose input gets the output. */
export type JobReader = Pick<JobChild, 'endpointId' | 'id' | 'shard'>;

/** Where a job is in a flow. */
export interface FlowPlace extends JobKey {
  /** Of the job, in the order of the flow's record. */
  index: number;
  /** That keeps the record, if it is another one than the job's. */
  shard?: number;
  /** Number of the flow's last retry that has reached the job. Default: 0. */
  run?: number;
}

/** Where a job is in a batch. */
export interface BatchPlace {
  /** Of the batch. */
  id: string;
  /** Of the input file, counted from 1. */
  line: number;
  /** The name that its line gives the job. */
  customId: string;
}

/** What binds a job to others. */
export interface JobLinks {
  parents: readonly JobParent[];
  /** Jobs that wait for this one: its end tells them, once. */
  children: readonly JobChild[];
  /** Children whose input gets the output of this job, once it has COMPLETED. It is kept for those that wait. */
  readers?: readonly JobReader[];
  /** The parents have ended; their outputs are yet to be put into the input. */
  filling?: true;
  /** They are there. */
  filled?: true;
  /** Jobs of its flow are yet to be added in other shards. */
  held?: true;
  /** Delay of the job's policy; it begins when the last parent has ended, ms. */
  delayMs: number;
  /** Absent: the job is of no flow. */
  flow?: FlowPlace;
  /** Absent: the job is of no batch. */
  batch?: BatchPlace;
  /** Absent: it remembers nothing. */
  memo?: MemoSize;
  /** Absent: it does not wait for what its handler asked for. */
  wait?: HandlerWait;
  /** Number of handlers that have started each other's jobs down to this one. Absent: 0. */
  depth?: number;
}

/** Stands for the group of the jobs that have none; the name of a group is never empty. */
export const NO_GROUP = '';

/** All times are Unix ms, all durations ms. */
export interface StoredJob {
  endpointId: string;
  id: string;
  status: JobStatus;
  mode: 'run' | 'runsync';
  priority: number;
  /** The groups of a priority share the GPUs. Null: the group of all jobs without one. */
  group: string | null;
  /** Place among the jobs of its group and priority: its position, unless the job was put behind those that waited. */
  place: number;
  /** Position in lists; grows with every submission. */
  position: number;
  submittedAt: number;
  queuedAt: number;
  /** The job must not be leased before. */
  availableAt: number;
  /** IN_QUEUE, and `availableAt` is in the future, or a parent has not ended. */
  delayed: boolean;
  /** The job is removed then, whatever its status. */
  expiresAt: number;
  ttlMs: number;
  executionTimeoutMs: number;
  maxAttempts: number;
  /** Null: the job is retried as the platform does by default. */
  retry: JobRetry | null;
  /** When the current attempt was leased. */
  startedAt: number | null;
  /** When the queue ends the running attempt. */
  deadlineAt: number | null;
  /** Since when the attempt is suspended: its deadline and its expiry stand still. */
  suspendedAt: number | null;
  /** How often it was suspended, and for how long before. */
  suspensions: number;
  suspendedMs: number;
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
  /** Of the last run: a retry by a client turns it into notes. */
  history: FailedAttempt[];
  /** For the timeline: a few for each event. */
  notes: readonly JobNote[];
  /** JSON text; null unless the job is IN_PROGRESS. */
  progress: string | null;
  /** Of the last attempt once it has ended; null while the job is IN_PROGRESS. */
  usage: AttemptUsage | null;
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
  /** The job has `links`; lists do not read them. */
  linked: boolean;
  links: JobLinks | null;
  /** The tick that made the job; null: a client did. */
  tick: JobTick | null;
  attachment: JobAttachment | null;
  resubmission: Resubmission | null;
  /** Null: none. */
  tags: readonly string[] | null;
}

/** A tick of a schedule: no two jobs have the same one, unless a caller has triggered them, or submitted a failed one again. */
export interface JobTick {
  scheduleId: string;
  /** When the tick was due, or triggered, Unix ms. */
  at: number;
  isTriggered?: true;
}

/** How a job is retried; each member only where it matters. */
export interface JobRetry {
  /** Of the job's policy. */
  own?: RetryPolicy;
  /** Of the handler and the endpoint, when the last attempt began. */
  inherited?: RetryPolicy;
  /** When the first attempt of the run began. Set if the policy limits the time. */
  firstStartedAt?: number;
}

/** A failed job that was submitted again, as a new job, and that new job. */
export interface Resubmission {
  /** ID of the failed job. */
  of?: string;
  /** ID of the new job. */
  as?: string;
}

/** Positions are Unix µs, so those of dead letters are negative, in the same order. */
const DEAD_LETTER_OFFSET = 2 ** 52;
/** Below all positions. */
export const LOWEST_POSITION = -DEAD_LETTER_OFFSET;

/** A failed job that is kept after its retention: only the verbs for dead letters find it. */
export function isDeadLetter({ position }: Pick<StoredJob, 'position'>): boolean {
  return position < 0;
}

export function toDeadLetter(job: StoredJob): StoredJob {
  return { ...job, position: job.position - DEAD_LETTER_OFFSET, idempotencyKey: null };
}

/** Members that have columns of their own. */
type JobKeyMember =
  | 'endpointId'
  | 'id'
  | 'status'
  | 'delayed'
  | 'priority'
  | 'place'
  | 'position'
  | 'group'
  | 'queuedAt'
  | 'dueAt'
  | 'idempotencyKey';

/** Members that may be large; lists do not read them. */
export type JobDetailsMember =
  | 'error'
  | 'history'
  | 'notes'
  | 'progress'
  | 'usage'
  | 'links'
  | 'attachment';

/** The other members with their defaults. A member that has its default is not written, so a default must never change. */
export const JOB_BODY: Readonly<Omit<StoredJob, JobKeyMember | JobDetailsMember>> = {
  mode: 'run',
  submittedAt: 0,
  availableAt: 0,
  expiresAt: 0,
  ttlMs: 0,
  executionTimeoutMs: 0,
  maxAttempts: 0,
  retry: null,
  startedAt: null,
  deadlineAt: null,
  suspendedAt: null,
  suspensions: 0,
  suspendedMs: 0,
  endedAt: null,
  executionMs: null,
  attempt: 0,
  failures: 0,
  releases: 0,
  solo: false,
  lease: null,
  lastSeq: 0,
  chunkCount: 0,
  chunkBytes: 0,
  cursorAttempt: 0,
  cursorNext: 0,
  outputKind: 'none',
  logBytes: 0,
  logDropped: 0,
  workerId: null,
  requestHash: null,
  traceparent: null,
  tracestate: null,
  webhook: null,
  resubmission: null,
  linked: false,
  tick: null,
  tags: null,
};

/** The error comes first: a preview reads the start of the text. */
export const JOB_DETAILS: Readonly<Pick<StoredJob, JobDetailsMember>> = {
  error: null,
  history: [],
  notes: [],
  progress: null,
  usage: null,
  links: null,
  attachment: null,
};

/** What every new job has in common. */
export const NEW_JOB = { ...JOB_BODY, ...JOB_DETAILS };

/** An event of a job that its other members do not keep. */
export interface JobNote extends Omit<TimelineEntry, 'status'> {
  event: Exclude<TimelineEntry['event'], 'submitted' | 'queued' | 'due' | 'ended'>;
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
  /** Number of the shard that has its jobs. 0 without nodes. */
  shard: number;
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
 * deployment, not deleted, the stored shard or else shard 0.
 */
export type EndpointBase = Pick<StoredEndpoint, 'id' | 'settings' | 'createdAt'> &
  Partial<Pick<StoredEndpoint, 'userId' | 'deployment' | 'deleted' | 'shard'>>;

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

/** An uploaded version of an endpoint's handler. */
export interface VersionKey {
  endpointId: string;
  /** Counted from 1. */
  version: number;
}

/** A file that belongs to an endpoint. */
export interface FileKey {
  endpointId: string;
  id: string;
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
  /** Of its handler. */
  retry: RetryPolicy | null;
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

export type PayloadKind = 'input' | 'output' | 'chunks';

/** A payload that no job has: of an upload under way, or yet to be deleted. */
export interface UnusedPayload extends JobKey {
  kind: PayloadKind;
  /** Tells the payloads of a job apart. */
  origin: number;
}

/** A payload that was stored in parts or in a file. No reader sees it before an operation gives it to its job. */
export interface StagedPayload extends UnusedPayload {
  kind: 'input' | 'output';
}

export interface UploadedPayload extends StagedPayload {
  /** Size of the whole payload. */
  bytes: number;
}

export type Payload = Uint8Array | UploadedPayload;

/** Files beside the database that keep large payloads. */
export interface PayloadFiles {
  /** False while the disk is full: the rules for a full disk hold for payloads in the database. */
  readonly isUsable: boolean;
  /**
   * Writes a piece of the file that `beginFile` has announced, the first one to a new file. Resolves when the piece is on
   * disk, and with the last one the whole file. A call that rejects has removed the file. @throws PayloadFileError
   */
  write(payload: StagedPayload, piece: FilePiece): Promise<void>;
  /** Fills the part from this place of the file on. False if the file is missing or too short. @throws PayloadFileError */
  read(payload: StagedPayload, at: number, part: Uint8Array): Promise<boolean>;
  /** Reports that the file of a job's payload is missing or too short. @returns the error for the caller */
  reportLost(payload: StagedPayload): PayloadFileError;
  /** Removes the files, also for the time after a power failure. @returns those that could not be removed */
  remove(payloads: readonly StagedPayload[]): Promise<StagedPayload[]>;
}

export interface FilePiece {
  /** Bytes of the file before the piece. */
  at: number;
  bytes: Uint8Array;
  isLast: boolean;
}

type Attempts = Pick<StoredJob, 'history'>;
type QueuedJob = Pick<StoredJob, 'status' | 'delayed' | 'history'>;

/**
 * The GPU type that the job has outgrown: an attempt ran out of memory there, and the next one needs a later type of the
 * endpoint's list. Such a job waits apart from the others, under the number of the type. Undefined: any worker may take it.
 */
export function findOutgrownGpu({ history }: Attempts): string | undefined {
  for (let i = history.length - 1; i >= 0; i--) {
    const type = history[i]?.outgrownGpuType;
    if (type !== undefined) return type;
  }
  return undefined;
}

/** Above the lanes with another meaning: sql/job-row.ts. */
const FIRST_NUMBER = 2;
const NUMBER_BYTES = 6;

/**
 * Number of a GPU type, at least 2: the same for the same name, however often the endpoint's list changes. Two names get
 * one number once in 2^48.
 */
export function numberGpuType(type: string): number {
  const hash = createHash('sha256').update(type).digest();
  return FIRST_NUMBER + hash.readUIntBE(0, NUMBER_BYTES);
}

/** Number of the type that a ready job has outgrown; 0: any worker may take the job, or it is not ready. */
export function outgrownNumber(job: QueuedJob): number {
  if (job.history.length === 0 || job.status !== 'IN_QUEUE' || job.delayed) return 0;
  const type = findOutgrownGpu(job);
  return type === undefined ? 0 : numberGpuType(type);
}

/** Whether the job cannot start because a parent has not ended, its output is yet to be put into the input, or its flow is not complete. Such a job is `delayed` without a time. */
export function isWaiting({
  delayed,
  links,
  status,
}: Pick<StoredJob, 'delayed' | 'links' | 'status'>): boolean {
  return (
    status === 'IN_QUEUE' &&
    delayed &&
    links !== null &&
    (links.filling === true || links.held === true || links.parents.some(isOpen))
  );
}

/** Whether the parent has not ended. */
export function isOpen({ ended }: JobParent): boolean {
  return ended === undefined;
}
