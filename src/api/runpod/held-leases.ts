// The attempts of one RunPod worker, by the names that the worker uses. Stops attempts, and reports the ends that the
// worker does not report. RunPod's protocol has neither tokens nor numbers of reports: the platform holds each attempt's
// token, numbers its reports, and sends them one after the other.
import { hash } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { Waiters } from '../../base/waiters.ts';
import type { OpenLease } from '../../queue/leases/open-leases.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import type {
  LeaseRef,
  Outcome,
  RenewReply,
  Report,
  ReportReply,
} from '../../wire/link/worker-link.ts';
import type { SessionLink } from './session-link.ts';
import { formatAttemptId, type WorkerReport } from './worker-requests.ts';

/** A lease lasts this many pings; a job that this many pings do not name has been lost. */
export const MAX_MISSED_PINGS = 3;
/** A job that the worker has not named within this time never arrived, ms. */
const HANDOVER_MS = 1_000;

/** Reports that do not end the attempt. */
const ONGOING: ReadonlySet<LeaseReport['kind']> = new Set(['chunks', 'progress', 'warning']);

export interface HeldLeasesOptions {
  workerId: string;
  link: SessionLink;
  clock: Clock;
  log: Log;
}

export class HeldLeases {
  readonly stops: StopList;
  readonly #options: HeldLeasesOptions;
  readonly #held = new Map<string, RunPodLease>();

  constructor(options: HeldLeasesOptions) {
    this.#options = options;
    this.stops = new StopList(options.clock);
  }

  get size(): number {
    return this.#held.size;
  }

  get refs(): LeaseRef[] {
    return [...this.#held.values()].map(({ ref }) => ref);
  }

  /** Attempts that have yielded something. */
  get streaming(): RunPodLease[] {
    return [...this.#held.values()].filter(({ isStreaming }) => isStreaming);
  }

  get(name: string): RunPodLease | undefined {
    return this.#held.get(name);
  }

  /** Returns the existing attempt if the name is known. */
  add(lease: RunPodLeaseOptions['lease']): RunPodLease {
    const { clock, link } = this.#options;
    const held = new RunPodLease({ lease, link, now: clock.now });
    const known = this.#held.get(held.name);
    if (known) return known;
    this.#held.set(held.name, held);
    const leftMs = Math.max(0, lease.startedAt + lease.executionTimeoutMs - clock.now());
    held.cancelTimeout = clock.after(leftMs, () => void this.#timeOut(held, lease));
    return held;
  }

  /** Reports on an attempt. @throws LinkError, and the queue's errors */
  async report(held: RunPodLease, report: LeaseReport, { recycle = false } = {}) {
    held.noteKnown();
    const answer = await held.report(report, { recycle });
    const isOngoing = ONGOING.has(report.kind);
    if (!isOngoing || answer === 'superseded' || answer === 'gone') this.#forget(held);
    return answer;
  }

  /** A ping has named all attempts of the worker. */
  async noteNamed(names: ReadonlySet<string>): Promise<void> {
    for (const held of [...this.#held.values()]) {
      if (names.has(held.name)) held.noteKnown();
      else held.missedPings += 1;
      if (held.missedPings < MAX_MISSED_PINGS) continue;
      await this.#lose(held, `${MAX_MISSED_PINGS} of its pings do not name it`);
    }
  }

  /** A ping has named some attempts: others may belong to a worker that sends pings of its own. */
  async noteSomeNamed(names: ReadonlySet<string>, pingMs: number): Promise<void> {
    for (const name of names) this.get(name)?.noteKnown();
    const longestMs = MAX_MISSED_PINGS * pingMs;
    for (const held of [...this.#held.values()]) {
      if (this.#isNamed(held, longestMs)) continue;
      await this.#lose(held, `no ping has named it for ${longestMs} ms`);
    }
  }

  /** A worker has named an attempt within this time, or has just taken it. */
  isAnyNamed(withinMs: number): boolean {
    return [...this.#held.values()].some((held) => this.#isNamed(held, withinMs));
  }

  #isNamed({ namedAt }: RunPodLease, withinMs: number): boolean {
    return this.#options.clock.now() - namedAt < withinMs;
  }

  /** The queue has ended them: the worker must stop those that it runs. */
  noteEnded(ended: RenewReply['ended']): void {
    for (const { token, verdict } of ended) {
      const held = [...this.#held.values()].find(({ ref }) => ref.token === token);
      if (!held) continue;
      this.#forget(held);
      this.stops.add(held.name, verdict === 'cancelled' ? held : undefined);
    }
  }

  /** `hasRestarted`: the call comes from a new process of the worker. */
  async loseAll(why: string, { hasRestarted = false } = {}): Promise<void> {
    for (const held of [...this.#held.values()]) await this.#lose(held, why, hasRestarted);
  }

  /** The worker has not received it. */
  release(held: RunPodLease): Promise<void> {
    return this.#end(held, { kind: 'released', reason: 'not_started' });
  }

  /** Cancels all timers. */
  close(): void {
    for (const held of this.#held.values()) held.cancelTimeout();
  }

  #forget(held: RunPodLease): void {
    held.cancelTimeout();
    if (this.#held.get(held.name) === held) this.#held.delete(held.name);
    this.stops.remove(held);
  }

  /**
   * A job may have ended its process at once: only a process that still runs can have missed the
   * job.
   */
  async #lose(held: RunPodLease, why: string, hasRestarted = false): Promise<void> {
    const { clock, workerId } = this.#options;
    const isFresh = !held.isKnown && clock.now() - held.startedAt < HANDOVER_MS;
    if (isFresh && !hasRestarted) return await this.release(held);
    const message = `worker ${workerId} has lost the job, or its result: ${why}`;
    const error: AttemptError = { code: 'worker_crashed', message };
    await this.#end(held, { kind: 'failed', error, retry: 'default' });
  }

  /** These workers do not enforce timeouts. */
  async #timeOut(held: RunPodLease, { executionTimeoutMs }: { executionTimeoutMs: number }) {
    const message = `the job ran longer than its execution timeout of ${executionTimeoutMs} ms`;
    const error: AttemptError = { code: 'execution_timeout', message };
    const executionMs = Math.max(executionTimeoutMs, this.#options.clock.now() - held.startedAt);
    const outcome = { kind: 'timed_out', executionMs, error, stopped: 'signal' } as const;
    await this.#end(held, { kind: 'outcome', outcome });
    this.stops.add(held.name);
  }

  /** Nobody waits for this report: if it fails, the lease expires instead. */
  async #end(held: RunPodLease, report: LeaseReport): Promise<void> {
    this.#forget(held);
    try {
      await held.report(report);
    } catch (error) {
      this.#options.log.warn(
        { err: error, job: held.ref.jobId },
        'reporting the end of an attempt failed',
      );
    }
  }
}

/** Bounded, because old workers never ask for stops. */
const MAX_STOPS = 1_000;

/**
 * The attempts that a worker must stop and that no response has named yet. The platform reports the end of a stopped
 * attempt, because these workers report nothing after a stop.
 */
class StopList {
  /** By name; with the lease if its end must still be reported. */
  readonly #stops = new Map<string, RunPodLease | undefined>();
  readonly #clock: Clock;
  readonly #waiters: Waiters;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#waiters = new Waiters(clock);
  }

  add(name: string, held = this.#stops.get(name)): void {
    this.#stops.set(name, held);
    const [oldest] = this.#stops.keys();
    if (oldest !== undefined && this.#stops.size > MAX_STOPS) this.#stops.delete(oldest);
    this.#waiters.wake('stops');
  }

  /** The attempt has ended by itself. */
  remove({ name }: RunPodLease): void {
    this.#stops.delete(name);
  }

  /** Resolves with the names; empty if there are none within this time. */
  async wait(ms: number, signal: AbortSignal): Promise<string[]> {
    const waiter = this.#waiters.open('stops');
    try {
      if (this.#stops.size === 0) await waiter.wait(ms, signal);
      return [...this.#stops.keys()];
    } finally {
      waiter.close();
    }
  }

  /** The worker has received these names. @throws LinkError, and the queue's errors */
  async noteSent(names: readonly string[]): Promise<void> {
    for (const name of names) {
      const held = this.#stops.get(name);
      this.#stops.delete(name);
      if (!held) continue;
      const executionMs = Math.max(0, this.#clock.now() - held.startedAt);
      const outcome = { kind: 'cancelled', executionMs, stopped: 'signal' } as const;
      await held.report({ kind: 'outcome', outcome });
    }
  }
}

type LeaseReport =
  | WorkerReport
  | { kind: 'outcome'; outcome: Outcome }
  | { kind: 'warning'; text: string };

interface RunPodLeaseOptions {
  lease: Omit<OpenLease, 'workerId' | 'incarnation' | 'isShown'>;
  link: SessionLink;
  now: () => number;
}

/** pino's level `warn`. */
const WARNING = 40;
const NO_BYTES = Buffer.alloc(0);
const COMMA = Buffer.from(',');

/** One attempt. */
export class RunPodLease {
  /** The job's ID for the worker. */
  readonly name: string;
  readonly ref: LeaseRef;
  /** When the worker took it, Unix ms. */
  readonly startedAt: number;
  /** Consecutive pings that did not name the attempt. */
  missedPings = 0;
  /** Last time at which the worker named the attempt, or the platform began to hold it. Unix ms. */
  namedAt: number;
  /** The worker has named the attempt, so it received the job. */
  isKnown = false;
  cancelTimeout: () => void = () => {};
  readonly #options: RunPodLeaseOptions;
  #isBroken: boolean;
  /** The refused chunk that the worker should send again. */
  #refused: { digest: string; times: number } | undefined;
  #seq: number;
  #chunks: number;
  #yields: number;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(options: RunPodLeaseOptions) {
    const { attempt, chunkCount, isBroken, jobId, lastSeq, startedAt, token } = options.lease;
    this.#options = options;
    this.namedAt = options.now();
    this.ref = { jobId, attempt, token };
    this.name = formatAttemptId(this.ref);
    this.startedAt = startedAt;
    this.#isBroken = isBroken;
    this.#seq = lastSeq;
    this.#chunks = chunkCount;
    this.#yields = chunkCount;
  }

  /** Number of values received; a large value is several chunks. After a restart, the number of chunks, which may be higher. */
  get yields(): number {
    return this.#yields;
  }

  /** The attempt has chunks. */
  get isStreaming(): boolean {
    return this.#chunks > 0;
  }

  /** Chunks may be missing: these workers drop a chunk that they cannot deliver, and continue. */
  get isBroken(): boolean {
    return this.#isBroken || this.#refused !== undefined;
  }

  /** The platform refused a chunk; the worker sends it up to `maxAttempts` times in total. */
  noteRefused(body: Uint8Array, maxAttempts: number): void {
    const digest = digestOf(body);
    const isSame = this.#refused?.digest === digest;
    if (this.#refused && !isSame) this.#isBroken = true;
    const times = (isSame ? (this.#refused?.times ?? 0) : 0) + 1;
    if (times >= maxAttempts) this.#isBroken = true;
    this.#refused = { digest, times };
  }

  /** The platform refused a chunk, and the worker does not send it again. */
  noteLost(): void {
    this.#isBroken = true;
  }

  /** The platform accepted a chunk. If it is not the refused one, the worker has dropped that one. */
  noteAccepted(body: Uint8Array): void {
    if (!this.#refused) return;
    if (this.#refused.digest !== digestOf(body)) this.#isBroken = true;
    this.#refused = undefined;
  }

  /** The worker has named the attempt in a request. */
  noteKnown(): void {
    this.missedPings = 0;
    this.namedAt = this.#options.now();
    this.isKnown = true;
  }

  /** Sends a report after all earlier ones. @throws LinkError, and the queue's errors */
  report(content: LeaseReport, { recycle = false } = {}): Promise<ReportReply['answer']> {
    const answer = this.#tail.then(() => this.#send(content, recycle));
    this.#tail = answer.catch(() => {});
    return answer;
  }

  async #send(content: LeaseReport, recycle: boolean): Promise<ReportReply['answer']> {
    const report = this.#toReport(content, recycle);
    const { answer } = await this.#options.link.report(report);
    if (answer === 'applied' || answer === 'duplicate') {
      this.#seq = report.seq;
      if (report.kind === 'chunks') {
        this.#chunks += report.sizes.length;
        this.#yields += 1;
      }
    }
    return answer;
  }

  #toReport(content: LeaseReport, recycle: boolean): Report {
    const base = { ...this.ref, seq: this.#seq + 1 };
    const outcome = (outcome: Outcome, body: Uint8Array = NO_BYTES): Report => ({
      ...base,
      ...(recycle && { recycle }),
      kind: 'outcome',
      outcome,
      body,
    });
    const executionMs = Math.max(0, this.#options.now() - this.startedAt);
    switch (content.kind) {
      case 'chunks': {
        const sizes = content.pieces.map(({ length }) => length);
        const pieces = content.pieces.flatMap((piece, n) => (n === 0 ? [piece] : [COMMA, piece]));
        const body = Buffer.concat(pieces);
        return { ...base, kind: 'chunks', first: this.#chunks, sizes, body };
      }
      case 'progress':
        return { ...base, kind: 'progress', body: content.value };
      case 'completed': {
        const output = content.output === undefined ? 'chunks' : 'value';
        return outcome({ kind: 'completed', executionMs, output }, content.output);
      }
      case 'failed': {
        const { error, retry } = content;
        return outcome({ kind: 'failed', executionMs, error, retry });
      }
      case 'released':
        return outcome({ kind: 'released', reason: content.reason });
      case 'outcome':
        return outcome(content.outcome);
      case 'warning': {
        const line = { level: WARNING, time: this.#options.now(), msg: content.text };
        return { ...base, kind: 'log', dropped: 0, body: Buffer.from(`${JSON.stringify(line)}\n`) };
      }
    }
  }
}

function digestOf(body: Uint8Array): string {
  return hash('sha256', body);
}
