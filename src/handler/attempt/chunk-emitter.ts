// The stream of one attempt: recognises a handler that streams, and turns each yield into chunks, within the limit of
// their total size and at the pace of the receiver. The chunks of one iteration of the event loop leave together.
import { clearImmediate, elapsedTime, setImmediate } from '../../base/clock.ts';
import { encodeChunk, type Metrics } from '../../wire/chunk/chunk.ts';
import { COMMA } from '../../wire/json-bytes.ts';
import type { AttemptContext } from './context.ts';
import { Refusal, refuseNotJson } from './refusal.ts';
import type { AttemptHistory } from './stop.ts';

/** A generator that never waits yields to the event loop this often, ms. */
const SLICE_MS = 5;

/** Large enough to make the cost of a message negligible, small enough to be sent soon. */
const FLUSH_BYTES = 128 * 1024;

export interface Steps {
  next(): Promise<IteratorResult<unknown>> | IteratorResult<unknown>;
  return?(): unknown;
}

/** Generators, iterators and readable streams are streams. Arrays and texts are values. */
export function findSteps(answer: unknown): Steps | undefined {
  if (typeof answer !== 'object' || answer === null) return undefined;
  if (isAsyncIterable(answer)) return answer[Symbol.asyncIterator]();
  return isSteps(answer) ? answer : undefined;
}

function isAsyncIterable(value: object): value is AsyncIterable<unknown> {
  return Symbol.asyncIterator in value && typeof value[Symbol.asyncIterator] === 'function';
}

function isSteps(value: object): value is Steps {
  return 'next' in value && typeof value.next === 'function';
}

interface ChunkEmitterOptions {
  chunks: ChunkBatcher;
  /** Largest total of all chunks, bytes. */
  chunkTotalBytes: number;
  context: AttemptContext;
  history: AttemptHistory;
}

export class ChunkEmitter {
  readonly #options: ChunkEmitterOptions;
  #bytes = 0;
  #sliceStartedAt = 0;
  #isStopped = false;

  constructor(options: ChunkEmitterOptions) {
    this.#options = options;
  }

  get hasEmitted(): boolean {
    return this.#bytes > 0;
  }

  /** The handler begins to run. */
  start(): void {
    this.#sliceStartedAt = elapsedTime();
  }

  /** The attempt is being stopped: from now on, nothing waits for the receiver. */
  stop(): void {
    this.#isStopped = true;
    this.#options.chunks.release();
  }

  /** Returns a promise only if it must wait. `own`: metrics of this yield. @throws Refusal */
  emit(output: unknown, own: Metrics | undefined): Promise<void> | undefined {
    const { chunks, chunkTotalBytes, context, history } = this.#options;
    const pending = context.takeMetrics();
    const metrics = pending && own ? { ...pending, ...own } : (pending ?? own ?? {});
    const encoded = refuseNotJson(() => encodeChunk(output, metrics));
    for (const chunk of encoded) {
      this.#bytes += chunk.length;
      history.add(1);
      chunks.add(chunk);
    }
    if (this.#bytes > chunkTotalBytes) {
      const sizes = `${this.#bytes} bytes of chunks, the limit is ${chunkTotalBytes}`;
      throw new Refusal('output_too_large', `the job has yielded ${sizes}`);
    }
    if (chunks.isFull && !this.#isStopped) return chunks.waitForGrant();
    return elapsedTime() - this.#sliceStartedAt > SLICE_MS ? this.#yieldToLoop() : undefined;
  }

  async #yieldToLoop(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.#sliceStartedAt = elapsedTime();
  }
}

/** Chunks of one message: their JSON joined by commas, and the size of each. */
export interface YieldedChunks {
  sizes: number[];
  bytes: Uint8Array;
}

export class ChunkBatcher {
  readonly #windowBytes: number;
  readonly #send: (batch: YieldedChunks) => void;
  #chunks: Buffer[] = [];
  #pendingBytes = 0;
  #immediate: NodeJS.Immediate | undefined;
  #undeliveredBytes = 0;
  #resume: (() => void) | undefined;

  constructor(windowBytes: number, send: (batch: YieldedChunks) => void) {
    this.#windowBytes = windowBytes;
    this.#send = send;
  }

  /** More bytes are undelivered than granted: nothing should be added now. */
  get isFull(): boolean {
    return this.#undeliveredBytes > this.#windowBytes;
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#pendingBytes += chunk.length;
    this.#undeliveredBytes += chunk.length;
    if (this.#pendingBytes >= FLUSH_BYTES) this.flush();
    else this.#immediate ??= setImmediate(() => this.flush());
  }

  flush(): void {
    if (this.#immediate) clearImmediate(this.#immediate);
    this.#immediate = undefined;
    if (this.#chunks.length === 0) return;
    const chunks = this.#chunks;
    const sizes = chunks.map(({ length }) => length);
    this.#chunks = [];
    const bytes = joinByCommas(chunks, this.#pendingBytes + chunks.length - 1);
    this.#pendingBytes = 0;
    this.#send({ sizes, bytes });
  }

  grant(bytes: number): void {
    this.#undeliveredBytes = Math.max(0, this.#undeliveredBytes - bytes);
    if (!this.isFull) this.release();
  }

  /** Resolves when bytes are granted, or on `release`. */
  waitForGrant(): Promise<void> {
    this.flush();
    return new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  /** Releases the waiting caller, whether bytes are granted or not. */
  release(): void {
    const resume = this.#resume;
    this.#resume = undefined;
    resume?.();
  }
}

function joinByCommas(chunks: readonly Buffer[], length: number): Uint8Array {
  const first = chunks[0];
  if (first !== undefined && chunks.length === 1) return first;
  // Not from Buffer's pool, because the whole memory is transferred to another thread.
  const joined = Buffer.allocUnsafeSlow(length);
  let at = 0;
  for (const chunk of chunks) {
    if (at > 0) joined[at++] = COMMA;
    joined.set(chunk, at);
    at += chunk.length;
  }
  return joined;
}
