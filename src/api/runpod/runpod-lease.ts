// One attempt of a RunPod worker. RunPod's protocol has neither tokens nor numbers of reports. So
// the platform holds the attempt's token, numbers its reports, and sends them one after the other.
import { hash } from 'node:crypto';
import type { OpenLease } from '../../queue/leases/open-leases.ts';
import type { LeaseRef, Outcome, Report, ReportReply } from '../../wire/link/worker-link.ts';
import type { WorkerReport } from './results.ts';
import type { SessionLink } from './session-link.ts';
import { formatAttemptId } from './worker-urls.ts';

export type LeaseReport =
  | WorkerReport
  | { kind: 'outcome'; outcome: Outcome }
  | { kind: 'warning'; text: string };

export interface HeldLeaseOptions {
  lease: Omit<OpenLease, 'workerId' | 'incarnation' | 'isShown'>;
  link: SessionLink;
  now: () => number;
}

/** pino's level `warn`. */
const WARNING = 40;
const NO_BYTES = Buffer.alloc(0);
const COMMA = Buffer.from(',');

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
  readonly #options: HeldLeaseOptions;
  #isBroken: boolean;
  /** The refused chunk that the worker should send again. */
  #refused: { digest: string; times: number } | undefined;
  #seq: number;
  #chunks: number;
  #yields: number;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(options: HeldLeaseOptions) {
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
