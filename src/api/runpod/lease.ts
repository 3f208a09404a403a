// One attempt of a RunPod worker, held by the platform for that worker: its token and the numbers
// of its reports, which are sent one after the other.
import { hash } from 'node:crypto';
import type { OpenLease } from '../../queue/leases/open-leases.ts';
import type { LeaseRef, Outcome, Report, ReportReply } from '../../wire/link/worker-link.ts';
import { nameAttempt } from './requests.ts';
import type { WorkerWord } from './results.ts';
import type { SessionLink } from './session-link.ts';

export type Saying = WorkerWord | { kind: 'outcome'; outcome: Outcome };

export interface HeldLeaseOptions {
  lease: Omit<OpenLease, 'workerId' | 'incarnation' | 'isShown'>;
  link: SessionLink;
  now: () => number;
}

const NO_BYTES = Buffer.alloc(0);
const COMMA = Buffer.from(',');

export class RunPodLease {
  /** The job's ID for the worker. */
  readonly name: string;
  readonly ref: LeaseRef;
  /** When it was handed out, Unix ms. */
  readonly startedAt: number;
  /** Pings in a row that did not name it. */
  missedPings = 0;
  /** The worker has named it. */
  isKnown = false;
  /** Cancels the end by its execution timeout. */
  cancelTimeout: () => void = () => {};
  readonly #options: HeldLeaseOptions;
  #isBroken: boolean;
  /** The chunk that the worker is to send again. */
  #refused: { digest: string; times: number } | undefined;
  #seq: number;
  #chunks: number;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(options: HeldLeaseOptions) {
    const { attempt, chunkCount, isBroken, jobId, lastSeq, startedAt, token } = options.lease;
    this.#options = options;
    this.ref = { jobId, attempt, token };
    this.name = nameAttempt(this.ref);
    this.startedAt = startedAt;
    this.#isBroken = isBroken;
    this.#seq = lastSeq;
    this.#chunks = chunkCount;
  }

  /** It has yielded something. */
  get isStreaming(): boolean {
    return this.#chunks > 0;
  }

  /** Chunks of it may be missing: these workers drop a chunk that they cannot deliver, and go on. */
  get isBroken(): boolean {
    return this.#isBroken || this.#refused !== undefined;
  }

  /** A chunk was not taken, and the worker sends it again, up to so many times in all. */
  noteRefused(body: Uint8Array, maxAttempts: number): void {
    const digest = digestOf(body);
    const isSame = this.#refused?.digest === digest;
    if (this.#refused && !isSame) this.#isBroken = true;
    const times = (isSame ? (this.#refused?.times ?? 0) : 0) + 1;
    if (times >= maxAttempts) this.#isBroken = true;
    this.#refused = { digest, times };
  }

  /** A chunk was not taken, and does not come again. */
  noteLost(): void {
    this.#isBroken = true;
  }

  /** A chunk was taken: the one that was refused before, or the worker has dropped that. */
  noteTaken(body: Uint8Array): void {
    if (!this.#refused) return;
    if (this.#refused.digest !== digestOf(body)) this.#isBroken = true;
    this.#refused = undefined;
  }

  /** The worker has named it now. */
  noteKnown(): void {
    this.missedPings = 0;
    this.isKnown = true;
  }

  /** Reports it after all earlier reports. @throws LinkError, and the queue's errors */
  say(saying: Saying, { recycle = false } = {}): Promise<ReportReply['answer']> {
    const said = this.#tail.then(() => this.#send(saying, recycle));
    this.#tail = said.catch(() => {});
    return said;
  }

  async #send(saying: Saying, recycle: boolean): Promise<ReportReply['answer']> {
    const report = this.#toReport(saying, recycle);
    const { answer } = await this.#options.link.report(report);
    if (answer === 'applied' || answer === 'duplicate') {
      this.#seq = report.seq;
      if (report.kind === 'chunks') this.#chunks += report.sizes.length;
    }
    return answer;
  }

  #toReport(saying: Saying, recycle: boolean): Report {
    const base = { ...this.ref, seq: this.#seq + 1 };
    const outcome = (outcome: Outcome, body: Uint8Array = NO_BYTES): Report => ({
      ...{ ...base, ...(recycle && { recycle }), kind: 'outcome', outcome, body },
    });
    const executionMs = Math.max(0, this.#options.now() - this.startedAt);
    switch (saying.kind) {
      case 'chunks': {
        const sizes = saying.pieces.map(({ length }) => length);
        const pieces = saying.pieces.flatMap((piece, n) => (n === 0 ? [piece] : [COMMA, piece]));
        const body = Buffer.concat(pieces);
        return { ...base, kind: 'chunks', first: this.#chunks, sizes, body };
      }
      case 'progress':
        return { ...base, kind: 'progress', body: saying.value };
      case 'completed': {
        const output = saying.output === undefined ? 'chunks' : 'value';
        return outcome({ kind: 'completed', executionMs, output }, saying.output);
      }
      case 'failed': {
        const { error, retry } = saying;
        return outcome({ kind: 'failed', executionMs, error, retry });
      }
      case 'released':
        return outcome({ kind: 'released', reason: saying.reason });
      case 'outcome':
        return outcome(saying.outcome);
    }
  }
}

function digestOf(body: Uint8Array): string {
  return hash('sha256', body);
}
