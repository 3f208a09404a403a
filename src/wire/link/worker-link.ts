// The queue as a worker sees it: five verbs and their messages. Every carrier (HTTP long poll,
// gRPC) transports exactly this interface; the queue implements it directly. Workers load this
// file, so the zod schemas are in worker-link-schemas.ts.
import type { AttemptError, AttemptUsage } from '../job/job.ts';

export const PROTOCOL_VERSION = 1;

/**
 * Features of the platform beyond the bare protocol that a worker may require in `hello`. A feature
 * that both sides must know is a new protocol version instead.
 */
export const CAPABILITIES = ['progress', 'log', 'solo', 'trace'] as const;

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

/** Longest job ID and longest token, in characters. */
export const MAX_JOB_ID_LENGTH = 128;
export const MAX_TOKEN_LENGTH = 64;

export interface WorkerIdentity {
  /** 1 to 128 letters, digits, ".", "_" or "-"; the first is a letter or digit. */
  workerId: string;
  /** Grows with every process that uses the worker ID. */
  incarnation: number;
}

/** Names one attempt; the token proves the right to it. */
export interface LeaseRef {
  jobId: string;
  /** From 1. */
  attempt: number;
  token: string;
}

/** A device that runs jobs: a GPU or a part of one, or the host's processors. */
export interface Device {
  kind: 'cpu' | 'gpu';
  index: number;
  uuid: string;
  name: string;
  memoryBytes: number;
  /** ID of its GPU type in the platform's catalog, if the platform started the worker. */
  gpuTypeId?: string;
}

/** Version of workers that use RunPod's protocol, which has no outbox. */
export const RUNPOD_WORKER_VERSION = 'runpod';

export interface WorkerHello extends WorkerIdentity {
  protocol: number;
  /** Version of the worker's package. */
  version: string;
  /** Number of jobs that the worker can run at a time. */
  slots: number;
  devices: Device[];
  /** Ended attempts whose outcome is not delivered yet: they stay leased. */
  outbox: LeaseRef[];
  /** Capabilities that the worker needs. A platform that lacks one names it. */
  requires?: string[];
  /**
   * JSON Schema of the handler's input, as JSON text of at most 64 KB; empty: the handler has none. Absent: the
   * platform keeps the one that it knows.
   */
  inputSchema?: string;
  /** Number of the uploaded handler that the worker runs. */
  handlerVersion?: number;
}

export interface WorkerWelcome {
  protocol: number;
  /** Capabilities of the platform, as in `CAPABILITIES`. Default: none. */
  capabilities?: string[];
  /** A lease expires this long after it was given or last renewed. */
  leaseMs: number;
  /** Longest wait of one `renew`, and so the interval of renewals. */
  renewEveryMs: number;
  /** Longest wait of one `take`. */
  takeWaitMs: number;
  /**
   * `attempt`: one `report` call carries reports of one attempt only; several calls may be open.
   * Default `worker`.
   */
  reportsBy?: 'worker' | 'attempt';
  /** False: jobs cannot be released; a job that arrives during the drain runs if time permits. */
  takesBack?: boolean;
  /** True: the platform replaces a worker whose outcome asks for it. */
  replacesWorkers?: boolean;
}

export interface TakeRequest extends WorkerIdentity {
  /** New for each take; repeating it returns the same leases. */
  takeId: string;
  /**
   * From 1, grows with each take; a repeated take has the same. A take that arrives after one with a
   * greater number was delayed on its way and has no effect.
   */
  seq?: number;
  /** 1 to 1,000. */
  max: number;
  /** 0 to 60,000. */
  waitMs: number;
  /** Tokens of all held leases: a lease that was given and is missing here never arrived. */
  held: string[];
}

export interface LeaseHeader extends LeaseRef {
  executionTimeoutMs: number;
  /** The job must run alone in its process: an earlier attempt died with its process. */
  solo: boolean;
  /** Unix ms. */
  submittedAt: number;
  /** Trace of the client's request, if any; see trace-context.ts. */
  traceparent?: string;
  tracestate?: string;
  /** Where the client wants the job's files: JSON text of an S3Config. Contains a secret. */
  s3Config?: string;
}
/** The right to run one attempt, and the JSON bytes of its input. */
export type Lease = LeaseHeader & { input: Uint8Array };

export interface RenewRequest extends WorkerIdentity {
  /** 0 to 60,000. */
  waitMs: number;
  leases: {
    jobId: string;
    token: string;
    /** The worker is already stopping this attempt: the queue need not report its end again. */
    stopping: boolean;
    /**
     * The attempt has ended and its outcome is being delivered: the queue waits for it without a
     * limit.
     */
    delivering?: boolean;
  }[];
}

export const LEASE_VERDICTS = ['kept', 'cancelled', 'lost'] as const;
export type LeaseVerdict = (typeof LEASE_VERDICTS)[number];

export interface RenewReply {
  /** Only leases that were not simply renewed. */
  ended: { jobId: string; token: string; verdict: Exclude<LeaseVerdict, 'kept'> }[];
  /** Take nothing more; exit when the running jobs have ended. */
  drain: boolean;
}

/**
 * The last step that was needed to stop an attempt: signal, `generator.return()`, thread, process.
 */
export const STOP_LEVELS = ['signal', 'return', 'thread', 'process'] as const;
export type StopLevel = (typeof STOP_LEVELS)[number];

/** How an attempt ended. `executionMs` is the run time of the handler. */
export type Outcome =
  | {
      kind: 'completed';
      executionMs: number;
      /** `value`: the report's body is the output. `chunks`: the reported chunks are. */
      output: 'value' | 'chunks';
    }
  | {
      kind: 'failed';
      executionMs: number;
      error: AttemptError;
      retry: 'default' | 'never' | 'after';
      /** With `retry: 'after'`. */
      retryAfterMs?: number;
      /** Set if it failed because it was stopped. */
      stopped?: StopLevel;
    }
  | { kind: 'timed_out'; executionMs: number; error: AttemptError; stopped: StopLevel }
  | { kind: 'cancelled'; executionMs: number; stopped: StopLevel }
  | {
      kind: 'released';
      reason: ReleaseReason;
    };

/**
 * `drain`: the worker exits. `neighbour`: another job of its thread took it down. `suspect`: one of
 * several jobs exhausted the memory of their thread or process, or crashed it; each runs alone
 * next. `not_started`: it got no slot in time.
 */
export const RELEASE_REASONS = ['drain', 'neighbour', 'suspect', 'not_started'] as const;
export type ReleaseReason = (typeof RELEASE_REASONS)[number];

/** A lease reference in a report, with the trace of the attempt. */
export interface TracedLeaseRef extends LeaseRef {
  /** As in the lease. Only for logs and spans of the report. */
  traceparent?: string;
}

interface ReportBase extends TracedLeaseRef {
  /** Number of the report within the attempt, from 1. */
  seq: number;
}

/** Header of a report; its payload, if any, is the body. */
export type ReportHeader =
  | (ReportBase & {
      kind: 'chunks';
      /** Number of the first chunk within the attempt, from 0. */
      first: number;
      /** Bytes of each chunk. The body is the JSON of the chunks joined by commas. */
      sizes: number[];
    })
  | (ReportBase & { kind: 'progress' })
  | (ReportBase & {
      kind: 'log';
      /** Lines that the worker dropped before these. The body is NDJSON. */
      dropped: number;
    })
  | (ReportBase & {
      kind: 'outcome';
      outcome: Outcome;
      /** The handler asks for a new worker process: this one runs no other job and exits by itself. */
      recycle?: true;
      /** What the attempt used, also if it was released. */
      usage?: AttemptUsage;
      /** How long the attempt waited for the start of a model process, ms. */
      waitedMs?: number;
    });
export type Report = ReportHeader & { body: Uint8Array };

export interface ReportRequest extends WorkerIdentity {
  reports: Report[];
}

export type ReportReply =
  | { answer: 'applied' }
  /** The report was applied before. */
  | { answer: 'duplicate' }
  /** An earlier report is missing: send again from `expected`. */
  | { answer: 'gap'; expected: number }
  /** A newer attempt has the job, or the job has ended: discard the report. */
  | { answer: 'superseded' }
  /** The job no longer exists: discard the report. */
  | { answer: 'gone' };

export interface WorkerBye extends WorkerIdentity {
  reason: 'drained' | 'crashed';
  /** As in hello. */
  outbox: LeaseRef[];
  /** The known reason of the crash; at most 4,000 characters. */
  detail?: string;
}

// Exit codes of `millrace worker` that the platform understands when a pod ends.

/** The handler cannot be loaded: another worker would fail in the same way. */
export const EXIT_HANDLER_NOT_LOADED = 5;

/** The platform has refused the worker's key, or has had no such endpoint, for the whole of `--auth-timeout`. */
export const EXIT_REFUSED = 6;
