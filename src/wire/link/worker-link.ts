// The queue as a worker sees it: five verbs and their messages. Every carrier (HTTP long poll,
// gRPC) transports exactly this interface; the queue implements it directly. Each message is described
// once, by its fields (fields.ts): its type and its check follow. worker.proto is its form on gRPC.
import { MAX_CHUNK_BYTES } from '../chunk/chunk.ts';
import { attemptError, attemptUsage, STOP_LEVELS, startParts } from '../job/attempt.ts';
import { LIMITS, MAX_S3_CONFIG_LENGTH } from '../job/job.ts';
import { findRetryFault } from '../job/retry-policy.ts';
import { findSchemaFault, MAX_CHUNKS, MAX_REPORTS } from '../message-bounds.ts';
import { MAX_TRACESTATE_LENGTH, TRACEPARENT_LENGTH } from '../trace-context.ts';
import {
  flag,
  list,
  number,
  optional,
  record,
  type TypeOf,
  text,
  textWith,
  union,
  whole,
  word,
} from './fields.ts';

export const PROTOCOL_VERSION = 1;

/**
 * Features of the platform beyond the bare protocol that a worker may require in `hello`. A feature
 * that both sides must know is a new protocol version instead.
 */
export const CAPABILITIES = ['progress', 'log', 'solo', 'trace', 'pause', 'steps'] as const;

/**
 * The calls of a worker to one endpoint's queue. Each call rejects with a LinkError. After
 * `unavailable` the caller may repeat the call unchanged: all five verbs are idempotent.
 */
export interface WorkerLink {
  /** Introduces the worker. Leases of its older incarnations end, except those in `outbox`. */
  hello(hello: WorkerHello): Promise<WorkerWelcome>;
  /** Waits up to `waitMs` for at most `max` jobs. One call at a time; repeatable by `takeId`. */
  take(request: TakeRequest, signal: AbortSignal): Promise<Lease[]>;
  /** Extends leases on receipt; returns when one of them ends, on drain, or after `waitMs`. */
  renew(request: RenewRequest, signal: AbortSignal): Promise<RenewReply>;
  /** Returns one answer for each report, in order. */
  report(request: ReportRequest): Promise<ReportReply[]>;
  /** Reports that the worker is gone: drained, or crashed with the known reason. */
  bye(bye: WorkerBye): Promise<void>;
}

export const LINK_ERROR_CODES = [
  /** The key is missing, wrong, or belongs to another endpoint. */
  'unauthorized',
  /** A newer process uses this worker ID: exit. */
  'stale_incarnation',
  /** The platform does not know the worker (any more): say hello, then continue. */
  'unknown_worker',
  /** Temporary: network, restart, overload. Repeat after `retryAfterMs` or a backoff. */
  'unavailable',
  /** The request itself is invalid; repeating it does not help. */
  'invalid',
] as const;
export type LinkErrorCode = (typeof LINK_ERROR_CODES)[number];

export interface LinkErrorOptions {
  retryAfterMs?: number | undefined;
  /** Default false. */
  endpointMissing?: boolean;
  cause?: unknown;
}

export class LinkError extends Error {
  override readonly name = 'LinkError';
  readonly code: LinkErrorCode;
  readonly retryAfterMs: number | undefined;
  /** The platform has no such endpoint. The code is `unavailable`, because the endpoint may be created later. */
  readonly endpointMissing: boolean;

  constructor(code: LinkErrorCode, message: string, options: LinkErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.retryAfterMs = options.retryAfterMs;
    this.endpointMissing = options.endpointMissing ?? false;
  }
}

const identity = {
  /** 1 to 128 letters, digits, ".", "_" or "-"; the first is a letter or digit. */
  workerId: textWith((text) =>
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(text)
      ? undefined
      : 'must be 1 to 128 letters, digits, ".", "_" or "-", with a letter or digit first',
  ),
  /** Grows with every process that uses the worker ID. */
  incarnation: whole({ max: Number.MAX_SAFE_INTEGER }),
};
const workerIdentity = record(identity);
export type WorkerIdentity = TypeOf<typeof workerIdentity>;

/** Longest job ID, characters. */
export const MAX_JOB_ID_LENGTH = 128;
const jobId = text({ min: 1, max: MAX_JOB_ID_LENGTH });
const token = text({ min: 1, max: 64 });
/** Longest wait of a call, ms. */
export const MAX_WAIT_MS = 60_000;
const waitMs = whole({ max: MAX_WAIT_MS });
/** The platform keeps it as long as the worker, and may have thousands of workers. */
const name = text({ max: 200 });

/** Names one attempt; the token proves the right to it. */
const leaseRef = {
  jobId,
  /** From 1. */
  attempt: whole({ min: 1 }),
  token,
};
const leaseRefs = list(record(leaseRef));
export type LeaseRef = TypeOf<typeof leaseRefs>[number];

function findPolicyFault(text: string): string | undefined {
  try {
    return findRetryFault(JSON.parse(text));
  } catch {
    return 'must be JSON';
  }
}

/** A device that runs jobs: a GPU or a part of one, or the host's processors. */
const device = record({
  kind: word(['cpu', 'gpu']),
  index: whole(),
  uuid: name,
  name,
  memoryBytes: whole({ max: Number.MAX_SAFE_INTEGER }),
  /** ID of its GPU type in the platform's catalog, if the platform started the worker. */
  gpuTypeId: optional(name),
});
export type Device = TypeOf<typeof device>;

/** Version of workers that use RunPod's protocol, which has no outbox. */
export const RUNPOD_WORKER_VERSION = 'runpod';

/** Of the worker, or of a model process that was started after it. */
export const STARTED = ['worker', 'model'] as const;

const workerStart = record({
  of: word(STARTED),
  /** When it was ready, Unix ms; the last moment that a Date has is the largest. It names the start. */
  at: whole({ max: 8_640_000_000_000_000 }),
  parts: startParts,
});
export type WorkerStart = TypeOf<typeof workerStart>;

export const workerHello = record({
  ...identity,
  protocol: whole(),
  /** Version of the worker's package. */
  version: name,
  /** Number of jobs that the worker can run at a time. */
  slots: whole({ min: 1 }),
  devices: list(device, { max: 256 }),
  /** Ended attempts whose outcome is not delivered yet: they stay leased. */
  outbox: leaseRefs,
  /** Capabilities that the worker needs. A platform that lacks one names it. */
  requires: optional(list(text({ max: 64 }))),
  /**
   * JSON Schema of the handler's input, as JSON text of at most 64 KB; empty: the handler has none. Absent: the
   * platform keeps the one that it knows.
   */
  inputSchema: optional(
    textWith((schema) => (schema === '' ? undefined : findSchemaFault(schema))),
  ),
  /** Retry policy of the handler, JSON text. Default: none. */
  retry: optional(textWith(findPolicyFault)),
  /** Number of the uploaded handler that the worker runs. */
  handlerVersion: optional(whole({ min: 1, max: Number.MAX_SAFE_INTEGER })),
  /** The last start, if it was measured. */
  start: optional(workerStart),
});
export type WorkerHello = TypeOf<typeof workerHello>;

export const workerWelcome = record({
  protocol: whole(),
  /** Capabilities of the platform, as in `CAPABILITIES`. Default: none. */
  capabilities: optional(list(text())),
  /** A lease expires this long after it was given or last renewed. */
  leaseMs: number,
  /** Longest wait of one `renew`, and so the interval of renewals. */
  renewEveryMs: number,
  /** Longest wait of one `take`. */
  takeWaitMs: number,
  /**
   * `attempt`: one `report` call carries reports of one attempt only; several calls may be open.
   * Default `worker`.
   */
  reportsBy: optional(word(['worker', 'attempt'])),
  /** False: jobs cannot be released; a job that arrives during the drain runs if time permits. */
  takesBack: optional(flag),
  /** True: the platform replaces a worker whose outcome asks for it. */
  replacesWorkers: optional(flag),
});
export type WorkerWelcome = TypeOf<typeof workerWelcome>;

export const takeRequest = record({
  ...identity,
  /** New for each take; repeating it returns the same leases. */
  takeId: token,
  /**
   * From 1, grows with each take; a repeated take has the same. A take that arrives after one with a
   * greater number was delayed on its way and has no effect.
   */
  seq: optional(whole({ min: 1, max: Number.MAX_SAFE_INTEGER })),
  max: whole({ min: 1, max: 1_000 }),
  waitMs,
  /** Tokens of all held leases: a lease that was given and is missing here never arrived. */
  held: list(token),
});
export type TakeRequest = TypeOf<typeof takeRequest>;

const leaseSchedule = record({
  id: text({ min: 1, max: 200 }),
  /** When the tick was due, or triggered, Unix ms. */
  tickAt: number,
  /** A call made the job, not a tick. */
  triggered: optional(flag),
});
export type LeaseSchedule = TypeOf<typeof leaseSchedule>;

const leaseHeader = record({
  ...leaseRef,
  executionTimeoutMs: number,
  /** The job must run alone in its process: an earlier attempt died with its process. */
  solo: flag,
  /** Unix ms. */
  submittedAt: number,
  /** Trace of the client's request, if any; see trace-context.ts. */
  traceparent: optional(text({ min: 1, max: TRACEPARENT_LENGTH })),
  tracestate: optional(text({ min: 1, max: MAX_TRACESTATE_LENGTH })),
  /** Where the client wants the job's files: JSON text of an S3Config. Contains a secret. */
  s3Config: optional(text({ min: 1, max: MAX_S3_CONFIG_LENGTH })),
  /** The schedule that made the job, if one did. */
  schedule: optional(leaseSchedule),
  /** Bytes behind the input: what the job remembers of earlier attempts, as memo.ts describes it. Default 0. */
  memoBytes: optional(whole()),
});
export type LeaseHeader = TypeOf<typeof leaseHeader>;
export const leaseHeaders = list(leaseHeader);

/** The right to run one attempt, and the JSON bytes of its input; behind it, `memoBytes` of its memo. */
export type Lease = LeaseHeader & { input: Uint8Array };

/** What moves the memory of a worker's model processes to the host: hooks of their programs, or the GPU's driver. */
export const PARK_WAYS = ['hooks', 'driver'] as const;
/**
 * `ready`: takes jobs. `parking`: takes none, lets running ones end, then moves. `parked`: holds no device memory, its
 * devices are free. `waking`: moves back.
 */
export const PARKING_STATES = ['ready', 'parking', 'parked', 'waking'] as const;
export type ParkingState = (typeof PARKING_STATES)[number];
export const PARK_WISHES = ['parked', 'suspended', 'ready'] as const;

const workerParking = record({
  way: word(PARK_WAYS),
  state: word(PARKING_STATES),
  /** Grows with each change of the state: two renewals may arrive in the other order. */
  change: whole(),
  /** Device memory that came free when it was parked. 0: in `ready`, or its model processes had to end and start anew. */
  vramBytes: whole({ max: Number.MAX_SAFE_INTEGER }),
  /** Host memory for all parked models of its machine. */
  hostLimitBytes: whole({ max: Number.MAX_SAFE_INTEGER }),
  /** The driver can park it in the middle of its attempts. Default false. */
  suspendable: optional(flag),
  /** In a state other than `ready`: its attempts stand still, and go on when it is `ready`. Default false. */
  suspended: optional(flag),
  /** Suspensions that did not succeed in this incarnation: its attempts ran on. Default 0. */
  refusals: optional(whole()),
});
export type WorkerParking = TypeOf<typeof workerParking>;

export const renewRequest = record({
  ...identity,
  waitMs,
  leases: list(
    record({
      jobId,
      token,
      /** The worker is already stopping this attempt: the queue need not report its end again. */
      stopping: flag,
      /**
       * The attempt has ended and its outcome is being delivered: the queue waits for it without a
       * limit.
       */
      delivering: optional(flag),
    }),
  ),
  /** A worker that can be parked. */
  parking: optional(workerParking),
  /** As in hello. */
  start: optional(workerStart),
});
export type RenewRequest = TypeOf<typeof renewRequest>;

export const renewReply = record({
  /** Only leases that were not simply renewed. */
  ended: list(record({ jobId, token, verdict: word(['cancelled', 'lost']) })),
  /** Take nothing more; exit when the running jobs have ended. */
  drain: flag,
  /**
   * What a worker that can be parked should become, in each reply. Absent: what it is. `suspended`: parked in the middle of its
   * attempts; only for one that is `suspendable`.
   */
  parking: optional(word(PARK_WISHES)),
  /** The newest `change` of the worker that the platform knew when it said so. */
  parkingChange: optional(whole()),
});
export type RenewReply = TypeOf<typeof renewReply>;

/** Run time of the handler, ms. */
const executionMs = number;
const stopped = word(STOP_LEVELS);

/**
 * `drain`: the worker exits. `neighbour`: another job of its thread took it down. `suspect`: one of
 * several jobs exhausted the memory of their thread or process, or crashed it; each runs alone
 * next. `not_started`: it got no slot in time.
 */
export const RELEASE_REASONS = ['drain', 'neighbour', 'suspect', 'not_started'] as const;
export type ReleaseReason = (typeof RELEASE_REASONS)[number];

/** How an attempt ended. */
export const attemptOutcome = union('kind', {
  completed: {
    executionMs,
    /** `value`: the report's body is the output. `chunks`: the reported chunks are. */
    output: word(['value', 'chunks']),
  },
  failed: {
    executionMs,
    error: attemptError,
    retry: word(['default', 'never', 'after']),
    /** With `retry: 'after'`. */
    retryAfterMs: optional(number),
    /** With `retry: 'after'`. False: the attempt does not count as a failure. Default true. */
    retryCounts: optional(flag),
    /** Set if it failed because it was stopped. */
    stopped: optional(stopped),
  },
  timed_out: { executionMs, error: attemptError, stopped },
  cancelled: { executionMs, stopped },
  released: { reason: word(RELEASE_REASONS) },
  /**
   * The handler waits for child jobs, or for a time: the job runs again then. The report's body says what for, as memo.ts
   * describes it. Only to a platform with the capability `steps`.
   */
  waiting: { executionMs },
});
export type Outcome = TypeOf<typeof attemptOutcome>;

/** A lease reference in a report, with the trace of the attempt. */
export type TracedLeaseRef = LeaseRef & Pick<ReportHeader, 'traceparent'>;

const ofReport = {
  ...leaseRef,
  /** As in the lease. Only for logs and spans of the report. Empty if a gRPC client copies an absent one. */
  traceparent: optional(text({ max: TRACEPARENT_LENGTH })),
  /** Number of the report within the attempt, from 1. */
  seq: whole({ min: 1 }),
};

/** Of a step, a child or a sleep; unique in its job. */
export const stepName = text({ min: 1, max: LIMITS.stepNameCharacters });

/** Header of a report; its payload, if any, is the body. */
const reportHeader = union('kind', {
  chunks: {
    ...ofReport,
    /** Number of the first chunk within the attempt, from 0. */
    first: whole(),
    /** Bytes of each chunk. The body is the JSON of the chunks joined by commas. */
    sizes: list(whole({ min: 2, max: MAX_CHUNK_BYTES }), { min: 1, max: MAX_CHUNKS }),
  },
  progress: ofReport,
  /** Holds back the other jobs of the job's group for this time. Only to a platform with the capability `pause`. */
  pause: {
    ...ofReport,
    forMs: whole({ min: 1, max: LIMITS.pauseGroupMs }),
    /** Name or ID of a shared limit of the endpoint: its jobs are held back instead. */
    limit: optional(text({ max: LIMITS.nameCharacters })),
  },
  /** A step has ended: the body is its result, JSON, which later attempts get. Only to a platform with the capability `steps`. */
  step: { ...ofReport, name: stepName },
  log: {
    ...ofReport,
    /** Lines that the worker dropped before these. The body is NDJSON. */
    dropped: whole(),
  },
  outcome: {
    ...ofReport,
    outcome: attemptOutcome,
    /** The handler asks for a new worker process: this one runs no other job and exits by itself. */
    recycle: optional(flag),
    /** What the attempt used, also if it was released. */
    usage: optional(attemptUsage),
    /** How long the attempt waited for the start of a model process, ms. */
    waitedMs: optional(number),
  },
});
export type ReportHeader = TypeOf<typeof reportHeader>;
export type Report = ReportHeader & { body: Uint8Array };

/** A report request without the bodies. */
export const reportHeaders = record({
  ...identity,
  reports: list(reportHeader, { max: MAX_REPORTS }),
});
export interface ReportRequest extends WorkerIdentity {
  reports: Report[];
}

const reportReply = union('answer', {
  applied: {},
  /** The report was applied before. */
  duplicate: {},
  /** An earlier report is missing: send again from `expected`. */
  gap: { expected: whole() },
  /** A newer attempt has the job, or the job has ended: discard the report. */
  superseded: {},
  /** The job no longer exists: discard the report. */
  gone: {},
});
export type ReportReply = TypeOf<typeof reportReply>;
export const reportReplies = list(reportReply, { max: MAX_REPORTS });

export const workerBye = record({
  ...identity,
  reason: word(['drained', 'crashed']),
  /** As in hello. */
  outbox: leaseRefs,
  /** The known reason of the crash. */
  detail: optional(text({ max: 4_000 })),
});
export type WorkerBye = TypeOf<typeof workerBye>;

// Exit codes of `millrace worker` that the platform understands when a pod ends.

/** The handler cannot be loaded: another worker would fail in the same way. */
export const EXIT_HANDLER_NOT_LOADED = 5;

/** The platform has refused the worker's key, or has had no such endpoint, for the whole of `--auth-timeout`. */
export const EXIT_REFUSED = 6;
