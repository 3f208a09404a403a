// Reads a job's chunks from a position on and waits for the next ones.
import {
  ENDING,
  type JobKey,
  type Reader,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import { encodeJsonChunk, MAX_CHUNK_BYTES } from '../../wire/chunk/chunk.ts';
import { isTerminal, type JobStatus } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import { SplitOutputs, sliceBatches } from '../payloads/outputs.ts';
import type { QueueParts } from '../queue-parts.ts';
import { hasForeignFormat, hasOutput } from '../records.ts';

/** An output up to this size is one chunk, with `{"output":,"metrics":{}}` around it. */
const MAX_WHOLE_BYTES = MAX_CHUNK_BYTES - 24;

/** Refers to the chunks after chunk `n` of an attempt; `n` is -1 before the first. */
export interface Position {
  attempt: number;
  n: number;
}

export interface StreamRequest extends JobKey {
  /** Undefined: the default cursor, which `noteSent` moves. */
  after: Position | undefined;
  /** Wait for a chunk if none is available and the job runs, ms. */
  waitMs: number;
  maxBytes: number;
  signal: AbortSignal;
  /** Answer at once, even without chunks, if an attempt newer than that of `after` has begun. */
  wakeOnReset?: true;
}

export interface StreamPage {
  /** JSON of each chunk. */
  chunks: Uint8Array[];
  /** Position of the last returned chunk, or where to continue. */
  position: Position;
  status: JobStatus;
  /** The chunks belong to a newer attempt than the requested position. */
  reset: boolean;
  /** More chunks are available. */
  more: boolean;
  /** No chunks will follow. */
  complete: boolean;
  /** The caller must call `noteSending` before it sends these chunks. */
  needsMark: boolean;
}

type StreamsOptions = Pick<
  QueueParts,
  'clock' | 'closing' | 'payloads' | 'removal' | 'signals' | 'store'
>;

export class Streams {
  readonly #options: StreamsOptions;
  readonly #splits: SplitOutputs;

  constructor(options: StreamsOptions) {
    this.#options = options;
    this.#splits = new SplitOutputs(options);
  }

  /** @throws ProblemError `not_found`, `invalid` for an impossible position */
  async read(request: StreamRequest): Promise<StreamPage> {
    const { clock, closing, removal, signals } = this.#options;
    const until = clock.now() + request.waitMs;
    const ended = AbortSignal.any([request.signal, closing]);
    for (;;) {
      const waiter = signals.jobMoved(request);
      try {
        removal.refuseGone(request.endpointId);
        const page = await this.#readPage(request);
        if (!page) throw new ProblemError('not_found', `job ${request.id} not found`);
        const leftMs = until - clock.now();
        const isNews = page.reset && request.wakeOnReset;
        const enough = page.chunks.length > 0 || page.complete || isNews;
        if (enough || leftMs <= 0 || ended.aborted) return page;
        await waiter.wait(leftMs, ended);
      } finally {
        waiter.close();
      }
    }
  }

  /**
   * Notes that a client is about to receive the first chunks of the attempt, so no other attempt may
   * follow. Returns false if the attempt has already ended: its chunks must not be sent.
   */
  async noteSending(key: JobKey, { attempt }: Position): Promise<boolean> {
    return this.#options.store.write((tx) => markSending(tx, key, attempt), ENDING);
  }

  /** Returns the job's status without reading its chunks. @throws ProblemError as `read` */
  async readStatus({ after, ...key }: JobKey & { after: Position }): Promise<JobStatus> {
    const { removal, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const job = await store.read((tx) => tx.job(key));
    if (!job) throw new ProblemError('not_found', `job ${key.id} not found`);
    findStart(job, after);
    return job.status;
  }

  /** Bytes of the output that `read` would have to split first; 0 if there is none. */
  async splitBytes(key: JobKey): Promise<number> {
    const bytes = await this.#options.store.read((tx) => measureChunk(tx, key));
    return bytes > MAX_WHOLE_BYTES && !this.#splits.find(key) ? bytes : 0;
  }

  async #readPage(request: StreamRequest): Promise<StreamPage | undefined> {
    const { store } = this.#options;
    const page = await store.read((tx) => readPage(tx, request, this.#splits.find(request)));
    if (page !== 'unsplit') return page;
    // Split outside of `store.read`: the store does nothing else until a read ends.
    const chunks = await this.#splits.split(request, () => this.#readWhole(request));
    const split = await store.read((tx) => readPage(tx, request, chunks));
    return split === 'unsplit' ? undefined : split;
  }

  async #readWhole(key: JobKey): Promise<Uint8Array | undefined> {
    const { payloads, store } = this.#options;
    const output = await store.read((tx) => tx.payloadUpTo('output', key, payloads.partBytes));
    return typeof output === 'number' ? payloads.read('output', key, output) : output;
  }

  /** Moves the default cursor past these chunks, after the response with them was sent completely. */
  async noteSent(key: JobKey, position: Position): Promise<void> {
    await this.#options.store.write((tx) => moveCursor(tx, key, position), ENDING);
  }
}

function markSending(tx: Transaction, key: JobKey, attempt: number): boolean {
  const job = tx.job(key);
  if (job?.attempt !== attempt || job.status === 'IN_QUEUE') return false;
  if (needsMark(job)) {
    tx.saveJob(job, { ...job, cursorAttempt: attempt, cursorNext: 0 }, 0);
  }
  return true;
}

/** Bytes of the output that is the job's one chunk; 0 without one. */
function measureChunk(tx: Reader, key: JobKey): number {
  const job = tx.job(key);
  return job && isOneChunk(job) ? tx.outputBytes(job) : 0;
}

function moveCursor(tx: Transaction, key: JobKey, { attempt, n }: Position): void {
  const job = tx.job(key);
  if (!job) return;
  const isBehind = job.cursorAttempt < attempt || job.cursorNext <= n;
  if (job.attempt !== attempt || !isBehind) return;
  tx.saveJob(job, { ...job, cursorAttempt: attempt, cursorNext: n + 1 }, 0);
}

/** A job that does not stream has its output as its one chunk, split like any other. */
function isOneChunk(job: StoredJob): boolean {
  return job.chunkCount === 0 && hasOutput(job) && job.outputKind === 'value';
}

/** `split`: the chunks of an output that is too large for one. `unsplit`: they are needed. */
function readPage(
  tx: Reader,
  request: StreamRequest,
  split: readonly Uint8Array[] | undefined,
): StreamPage | 'unsplit' | undefined {
  const job = tx.job(request);
  if (!job) return undefined;
  const { from, reset } = findStart(job, request.after);
  // A new attempt will replace the stored chunks, and clients of foreign formats cannot learn that.
  if (hasForeignFormat(job.attachment) && job.status === 'IN_QUEUE') return emptyPage(job, from);
  const output = isOneChunk(job) ? (split ?? readSmall(tx, job)) : undefined;
  if (output === 'unsplit') return output;
  const total = output ? output.length : job.chunkCount;
  const chunks = output
    ? takeUpTo(output.slice(from), request.maxBytes)
    : readChunks(tx, job, from, request.maxBytes);
  const n = from + chunks.length - 1;
  return {
    chunks,
    position: { attempt: job.attempt, n },
    status: job.status,
    reset,
    more: n + 1 < total,
    complete: isTerminal(job.status) && n + 1 >= total,
    needsMark: needsMark(job),
  };
}

function needsMark(job: StoredJob): boolean {
  if (isTerminal(job.status) || !hasForeignFormat(job.attachment)) return false;
  return job.cursorAttempt !== job.attempt;
}

function readSmall(tx: Reader, job: StoredJob): readonly Uint8Array[] | 'unsplit' {
  if (tx.outputBytes(job) > MAX_WHOLE_BYTES) return 'unsplit';
  const output = tx.output(job);
  return output ? encodeJsonChunk(output, {}) : [];
}

function emptyPage(job: StoredJob, from: number): StreamPage {
  const position = { attempt: job.attempt, n: from - 1 };
  const nothing = { chunks: [], reset: false, more: false, complete: false, needsMark: false };
  return { ...nothing, position, status: job.status };
}

function findStart(job: StoredJob, after: Position | undefined): { from: number; reset: boolean } {
  if (!after) {
    const isCurrent = job.cursorAttempt === job.attempt;
    return { from: isCurrent ? job.cursorNext : 0, reset: !isCurrent && job.cursorNext > 0 };
  }
  if (after.attempt > job.attempt) {
    throw new ProblemError('invalid', 'the position belongs to an attempt that has not started', {
      errors: [
        `after: attempt ${after.attempt} has not started, the job is at attempt ${job.attempt}`,
      ],
    });
  }
  if (after.attempt < job.attempt) return { from: 0, reset: after.attempt > 0 };
  return { from: after.n + 1, reset: false };
}

function readChunks(tx: Reader, job: StoredJob, from: number, maxBytes: number): Uint8Array[] {
  if (from >= job.chunkCount) return [];
  const { endpointId, id, attempt } = job;
  const batches = tx.chunks({ endpointId, id, attempt, from, maxBytes });
  return takeUpTo(sliceBatches(batches, from), maxBytes);
}

/** Takes chunks up to `maxBytes`, but at least one. */
function takeUpTo(chunks: Iterable<Uint8Array>, maxBytes: number): Uint8Array[] {
  const taken: Uint8Array[] = [];
  let bytes = 0;
  for (const chunk of chunks) {
    bytes += chunk.length;
    if (taken.length > 0 && bytes > maxBytes) break;
    taken.push(chunk);
  }
  return taken;
}
