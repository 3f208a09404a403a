// One attempt that a RunPod worker runs, as the platform holds it for that worker: its token, and the
// numbers of its reports, which go out one after the other.
import type { OpenLease } from '../../queue/leases/open-leases.ts';
import type { LeaseRef, Outcome, Report, ReportReply } from '../../wire/link/worker-link.ts';
import { nameAttempt } from './requests.ts';
import type { WorkerWord } from './results.ts';
import type { SeatLink } from './seat-link.ts';

export type Saying = WorkerWord | { kind: 'outcome'; outcome: Outcome };

export interface HeldLeaseOptions {
  lease: Omit<OpenLease, 'workerId' | 'incarnation' | 'isShown'>;
  link: SeatLink;
  now: () => number;
}

const NO_BYTES = Buffer.alloc(0);
const COMMA = Buffer.from(',');

export class HeldLease {
  /** The id under which the worker knows the job. */
  readonly name: string;
  readonly ref: LeaseRef;
  /** Unix ms; here the time at which it was handed out. */
  readonly startedAt: number;
  /** The platform could not be reached for a time: what the worker sent then is lost. */
  readonly isBroken: boolean;
  /** Pings in a row that did not name it. */
  missedPings = 0;
  /** The worker was heard to have it. */
  isKnown = false;
  /** Takes back the end by its execution timeout. */
  cancelTimeout: () => void = () => {};
  readonly #options: HeldLeaseOptions;
  #seq: number;
  #chunks: number;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(options: HeldLeaseOptions) {
    const { attempt, chunkCount, isBroken, jobId, lastSeq, startedAt, token } = options.lease;
    this.#options = options;
    this.ref = { jobId, attempt, token };
    this.name = nameAttempt(this.ref);
    this.startedAt = startedAt;
    this.isBroken = isBroken;
    this.#seq = lastSeq;
    this.#chunks = chunkCount;
  }

  /** It has yielded something. */
  get isStreaming(): boolean {
    return this.#chunks > 0;
  }

  /** The worker was heard to have it now. */
  noteKnown(): void {
    this.missedPings = 0;
    this.isKnown = true;
  }

  /** Reports it after all that was said before. @throws LinkError, and what the queue throws */
  say(saying: Saying, { isWorn = false } = {}): Promise<ReportReply['answer']> {
    const said = this.#tail.then(() => this.#send(saying, isWorn));
    this.#tail = said.catch(() => {});
    return said;
  }

  async #send(saying: Saying, isWorn: boolean): Promise<ReportReply['answer']> {
    const report = this.#toReport(saying, isWorn);
    const { answer } = await this.#options.link.report(report);
    if (answer === 'applied' || answer === 'duplicate') {
      this.#seq = report.seq;
      if (report.kind === 'chunks') this.#chunks += report.sizes.length;
    }
    return answer;
  }

  #toReport(saying: Saying, isWorn: boolean): Report {
    const base = { ...this.ref, seq: this.#seq + 1 };
    const worn = isWorn ? { isWorn } : {};
    const outcome = (outcome: Outcome, body: Uint8Array = NO_BYTES): Report => ({
      ...{ ...base, ...worn, kind: 'outcome', outcome, body },
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
