// The queue as a worker sees it: five verbs, and the words that go with them. Every carrier (HTTP
// long poll and those to come) speaks exactly this; the queue itself implements it without one.
import { z } from 'zod';
import { ERROR_CODES } from './job.ts';

export const PROTOCOL_VERSION = 1;

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

const workerIdentity = {
  workerId: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/),
  /** Grows with every process that runs under the same worker id. */
  incarnation: z.int().min(0),
};

const token = z.string().min(1).max(64);
const jobId = z.string().min(1).max(128);
const attempt = z.int().min(1);
const waitMs = z.int().min(0).max(60_000);

/** Names one attempt; the token is what proves the right to it. */
export const leaseRef = z.object({ jobId, attempt, token });
export type LeaseRef = z.infer<typeof leaseRef>;

/** A thing that runs jobs: a GPU (or a part of one), or the host's processors. */
export const device = z.object({
  kind: z.enum(['cpu', 'gpu']),
  index: z.int().min(0),
  uuid: z.string(),
  name: z.string(),
  memoryBytes: z.int().min(0),
});
export type Device = z.infer<typeof device>;

export const workerHello = z.object({
  ...workerIdentity,
  protocol: z.int(),
  /** Of the package. */
  version: z.string(),
  /** Room for jobs at a time. */
  slots: z.int().min(1),
  devices: z.array(device),
  /** Attempts that are over and whose outcome is still to be delivered: they stay leased. */
  outbox: z.array(leaseRef),
});
export type WorkerHello = z.infer<typeof workerHello>;

export const workerWelcome = z.object({
  protocol: z.int(),
  /** A lease ends this long after it was given or last renewed. */
  leaseMs: z.number(),
  /** Longest wait of one `renew`, and so the rhythm of renewals. */
  renewEveryMs: z.number(),
  /** Longest wait of one `take`. */
  takeWaitMs: z.number(),
});
export type WorkerWelcome = z.infer<typeof workerWelcome>;

export const takeRequest = z.object({
  ...workerIdentity,
  /** Chosen anew for each take; the same one again gives the same leases. */
  takeId: token,
  max: z.int().min(1).max(1_000),
  waitMs,
  /** Tokens of all leases the worker holds: one that was given and is not here never arrived. */
  held: z.array(token),
});
export type TakeRequest = z.infer<typeof takeRequest>;

export const leaseHeader = z.object({
  jobId,
  attempt,
  token,
  executionTimeoutMs: z.number(),
  /** To be run with nothing else in the same process: an earlier attempt died with its process. */
  solo: z.boolean(),
  /** Unix ms. */
  submittedAt: z.number(),
});
/** The right to run one attempt, and what to run it on: the JSON bytes of the input. */
export type Lease = z.infer<typeof leaseHeader> & { input: Uint8Array };

export const renewRequest = z.object({
  ...workerIdentity,
  waitMs,
  leases: z.array(
    z.object({
      jobId,
      token,
      /** The worker knows that this one ended and is stopping it: no need to say so again. */
      stopping: z.boolean(),
    }),
  ),
});
export type RenewRequest = z.infer<typeof renewRequest>;

export const LEASE_VERDICTS = ['kept', 'cancelled', 'lost'] as const;
export type LeaseVerdict = (typeof LEASE_VERDICTS)[number];

export const renewReply = z.object({
  /** Only those that are not simply kept. */
  ended: z.array(z.object({ jobId, token, verdict: z.enum(['cancelled', 'lost']) })),
  /** Take nothing more and leave when the running jobs are done. */
  drain: z.boolean(),
});
export type RenewReply = z.infer<typeof renewReply>;

/** How far a stop had to go: the signal, `generator.return()`, the thread, the process. */
export const STOP_LEVELS = ['signal', 'return', 'thread', 'process'] as const;
export type StopLevel = (typeof STOP_LEVELS)[number];

const attemptError = z.object({
  code: z.enum(ERROR_CODES),
  message: z.string(),
  type: z.string().exactOptional(),
  stack: z.string().exactOptional(),
});

/** How an attempt ended. `executionMs` is the run time of the handler. */
export const outcome = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('completed'),
    executionMs: z.number().min(0),
    /** `value`: the report's body is the output. `chunks`: the chunks are. */
    output: z.enum(['value', 'chunks']),
  }),
  z.object({
    kind: z.literal('failed'),
    executionMs: z.number().min(0),
    error: attemptError,
    retry: z.enum(['default', 'never', 'after']),
    /** With `retry: 'after'`. */
    retryAfterMs: z.number().min(0).exactOptional(),
  }),
  z.object({
    kind: z.literal('timed_out'),
    executionMs: z.number().min(0),
    error: attemptError,
    stopped: z.enum(STOP_LEVELS),
  }),
  z.object({
    kind: z.literal('cancelled'),
    executionMs: z.number().min(0),
    stopped: z.enum(STOP_LEVELS),
  }),
  z.object({
    kind: z.literal('released'),
    /** `drain`: the worker leaves. `neighbour`: another job of its thread took it down. */
    reason: z.enum(['drain', 'neighbour', 'not_started']),
  }),
]);
export type Outcome = z.infer<typeof outcome>;

const reportBase = { jobId, attempt, token, seq: z.int().min(1) };

/** What a report says; its payload, where it has one, is the body beside it. */
export const reportHeader = z.discriminatedUnion('kind', [
  z.object({
    ...reportBase,
    kind: z.literal('chunks'),
    /** Number of the first chunk within the attempt, from 0. */
    first: z.int().min(0),
    /** Bytes of each chunk. The body is the chunks' JSON joined by commas. */
    sizes: z.array(z.int().min(2)).min(1),
  }),
  z.object({ ...reportBase, kind: z.literal('progress') }),
  z.object({
    ...reportBase,
    kind: z.literal('log'),
    /** Lines that the worker had to leave out before these. The body is NDJSON. */
    dropped: z.int().min(0),
  }),
  z.object({ ...reportBase, kind: z.literal('outcome'), outcome }),
]);
export type ReportHeader = z.infer<typeof reportHeader>;
export type Report = ReportHeader & { body: Uint8Array };

export interface ReportRequest {
  workerId: string;
  incarnation: number;
  reports: Report[];
}

export const reportReply = z.discriminatedUnion('answer', [
  z.object({ answer: z.literal('applied') }),
  /** Was applied before. */
  z.object({ answer: z.literal('duplicate') }),
  /** One before it is missing: send again from `expected`. */
  z.object({ answer: z.literal('gap'), expected: z.int() }),
  /** A newer attempt has the job, or it has ended: forget it. */
  z.object({ answer: z.literal('superseded') }),
  /** The job exists no more: forget it. */
  z.object({ answer: z.literal('gone') }),
]);
export type ReportReply = z.infer<typeof reportReply>;

export const workerBye = z.object({
  ...workerIdentity,
  reason: z.enum(['drained', 'crashed']),
  /** As in hello. */
  outbox: z.array(leaseRef),
  /** What is known of why it died. */
  detail: z.string().max(4_000).exactOptional(),
});
export type WorkerBye = z.infer<typeof workerBye>;
