// The queue as a worker sees it: five verbs and their messages. Every carrier (HTTP long poll, gRPC)
// transports exactly this interface; the queue implements it directly. Workers load this file; the
// message schemas are in worker-link-schemas.ts.
import type { AttemptError } from '../job.ts';

export const PROTOCOL_VERSION = 1;

/**
 * What the platform can do beyond the bare protocol, and a worker may ask for in `hello`. A thing that
 * both sides have to know is a new version instead.
 */
export const CAPABILITIES = ['progress', 'log', 'solo', 'trace'] as const;

/**
 * What a worker may ask of one endpoint's queue. Every call rejects with a LinkError; after
 * `unavailable` it may be repeated as it is: all five verbs are idempotent.
 */
export interface WorkerLink {
  /** Says who the worker is. Leases of its older incarnations, but for those in `outbox`, end. */
  hello(hello: WorkerHello): Promise<WorkerWelcome>;
  /** Waits up to `waitMs` for at most `max` jobs. One at a time; repeatable by `takeId`. */
  take(request: TakeRequest, signal: AbortSignal): Promise<Lease[]>;
  /** Extends leases on receipt; answered when one of them ends, on drain, or after `waitMs`. */
  renew(request: RenewRequest, signal: AbortSignal): Promise<RenewReply>;
  /** One answer a report, in their order. */
  report(request: ReportRequest): Promise<ReportReply[]>;
  /** The worker is gone: drained, or dead with what is known of why. */
  bye(bye: WorkerBye): Promise<void>;
}

export const LINK_ERROR_CODES = [
  /** Key missing, wrong or of another endpoint. */
  'unauthorized',
  /** A newer process runs under this worker id: leave. */
  'stale_incarnation',
  /** The platform does not know the worker (any more): say hello and go on. */
  'unknown_worker',
  /** Not now: network, restart, overload. Repeat after `retryAfterMs` or a backoff. */
  'unavailable',
  /** Refused for what it is; repeating it does not help. */
  'invalid',
] as const;
export type LinkErrorCode = (typeof LINK_ERROR_CODES)[number];

export class LinkError extends Error {
  override readonly name = 'LinkError';
  readonly code: LinkErrorCode;
  readonly retryAfterMs: number | undefined;

  constructor(
    code: LinkErrorCode,
    message: string,
    options: { retryAfterMs?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.code = code;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Longest id of a job and longest token, in characters. */
export const MAX_JOB_ID_LENGTH = 128;
export const MAX_TOKEN_LENGTH = 64;

export interface WorkerIdentity {
  /** 1 to 128 letters, digits, ".", "_" or "-"; the first a letter or digit. */
  workerId: string;
  /** Grows with every process that runs under the same worker id. */
  incarnation: number;
}

/** Names one attempt; the token is what proves the right to it. */
export interface LeaseRef {
  jobId: string;
  /** From 1. */
  attempt: number;
  token: string;
}

/** A thing that runs jobs: a GPU (or a part of one), or the host's processors. */
export interface Device {
  kind: 'cpu' | 'gpu';
  index: number;
  uuid: string;
  name: string;
  memoryBytes: number;
}

/** Version of workers that came by RunPod's protocol, which has no outbox. */
export const RUNPOD_WORKER_VERSION = 'runpod';

export interface WorkerHello extends WorkerIdentity {
  protocol: number;
  /** Of the package. */
  version: string;
  /** Room for jobs at a time. */
  slots: number;
  devices: Device[];
  /** Attempts that are over and whose outcome is still to be delivered: they stay leased. */
  outbox: LeaseRef[];
  /** Capabilities without which the worker cannot work. A platform that lacks one says which. */
  requires?: string[];
}

export interface WorkerWelcome {
  protocol: number;
  /** Of the platform, as in `CAPABILITIES`; one from before there were any names none. */
  capabilities?: string[];
  /** A lease ends this long after it was given or last renewed. */
  leaseMs: number;
  /** Longest wait of one `renew`, and so the rhythm of renewals. */
  renewEveryMs: number;
  /** Longest wait of one `take`. */
  takeWaitMs: number;
  /** `attempt`: a call of `report` carries one attempt's, beside those of others. Default `worker`. */
  reportsBy?: 'worker' | 'attempt';
  /** False: a job is not taken back; one that comes while the worker leaves is run if there is time. */
  takesBack?: boolean;
  /** True: the platform itself replaces a worker that asks for it in an outcome. */
  replacesWorkers?: boolean;
}

export interface TakeRequest extends WorkerIdentity {
  /** Chosen anew for each take; the same one again gives the same leases. */
  takeId: string;
  /** 1 to 1,000. */
  max: number;
  /** 0 to 60,000. */
  waitMs: number;
  /** Tokens of all leases the worker holds: one that was given and is not here never arrived. */
  held: string[];
}

export interface LeaseHeader extends LeaseRef {
  executionTimeoutMs: number;
  /** To be run with nothing else in the same process: an earlier attempt died with its process. */
  solo: boolean;
  /** Unix ms. */
  submittedAt: number;
  /** Trace of the client's request, if it named one; as in trace-context.ts. */
  traceparent?: string;
  tracestate?: string;
  /** What the client named for the job's files: JSON text of an S3Config. It holds a secret. */
  s3Config?: string;
}
/** The right to run one attempt, and what to run it on: the JSON bytes of the input. */
export type Lease = LeaseHeader & { input: Uint8Array };

export interface RenewRequest extends WorkerIdentity {
  /** 0 to 60,000. */
  waitMs: number;
  leases: {
    jobId: string;
    token: string;
    /** The worker knows that this one ended and is stopping it: no need to say so again. */
    stopping: boolean;
    /** The attempt is over and its outcome is on the way: the queue waits for it, however long. */
    delivering?: boolean;
  }[];
}

export const LEASE_VERDICTS = ['kept', 'cancelled', 'lost'] as const;
export type LeaseVerdict = (typeof LEASE_VERDICTS)[number];

export interface RenewReply {
  /** Only those that are not simply kept. */
  ended: { jobId: string; token: string; verdict: Exclude<LeaseVerdict, 'kept'> }[];
  /** Take nothing more and leave when the running jobs are done. */
  drain: boolean;
}

/** How far a stop had to go: the signal, `generator.return()`, the thread, the process. */
export const STOP_LEVELS = ['signal', 'return', 'thread', 'process'] as const;
export type StopLevel = (typeof STOP_LEVELS)[number];

/** How an attempt ended. `executionMs` is the run time of the handler. */
export type Outcome =
  | {
      kind: 'completed';
      executionMs: number;
      /** `value`: the report's body is the output. `chunks`: the chunks are. */
      output: 'value' | 'chunks';
    }
  | {
      kind: 'failed';
      executionMs: number;
      error: AttemptError;
      retry: 'default' | 'never' | 'after';
      /** With `retry: 'after'`. */
      retryAfterMs?: number;
      /** If it failed because it was stopped. */
      stopped?: StopLevel;
    }
  | { kind: 'timed_out'; executionMs: number; error: AttemptError; stopped: StopLevel }
  | { kind: 'cancelled'; executionMs: number; stopped: StopLevel }
  | {
      kind: 'released';
      reason: ReleaseReason;
    };

/**
 * `drain`: the worker leaves. `neighbour`: another job of its thread took it down. `suspect`: it is
 * one of several of which one took the memory of their thread or process, or crashed it: it runs alone
 * next. `not_started`: it had no slot in its time.
 */
export const RELEASE_REASONS = ['drain', 'neighbour', 'suspect', 'not_started'] as const;
export type ReleaseReason = (typeof RELEASE_REASONS)[number];

/** A lease as reports name it: with the trace that they belong to. */
export interface TracedLeaseRef extends LeaseRef {
  /** As in the lease. It decides nothing: it is there for logs and spans of the report. */
  traceparent?: string;
}

interface ReportBase extends TracedLeaseRef {
  /** Within the attempt, from 1. */
  seq: number;
}

/** What a report says; its payload, where it has one, is the body beside it. */
export type ReportHeader =
  | (ReportBase & {
      kind: 'chunks';
      /** Number of the first chunk within the attempt, from 0. */
      first: number;
      /** Bytes of each chunk. The body is the chunks' JSON joined by commas. */
      sizes: number[];
    })
  | (ReportBase & { kind: 'progress' })
  | (ReportBase & {
      kind: 'log';
      /** Lines that the worker had to leave out before these. The body is NDJSON. */
      dropped: number;
    })
  | (ReportBase & {
      kind: 'outcome';
      outcome: Outcome;
      /** The handler wants no other job to run in this worker; it leaves by itself. */
      isWorn?: true;
    });
export type Report = ReportHeader & { body: Uint8Array };

export interface ReportRequest extends WorkerIdentity {
  reports: Report[];
}

export type ReportReply =
  | { answer: 'applied' }
  /** Was applied before. */
  | { answer: 'duplicate' }
  /** One before it is missing: send again from `expected`. */
  | { answer: 'gap'; expected: number }
  /** A newer attempt has the job, or it has ended: forget it. */
  | { answer: 'superseded' }
  /** The job exists no more: forget it. */
  | { answer: 'gone' };

export interface WorkerBye extends WorkerIdentity {
  reason: 'drained' | 'crashed';
  /** As in hello. */
  outbox: LeaseRef[];
  /** What is known of why it died; at most 4,000 characters. */
  detail?: string;
}
