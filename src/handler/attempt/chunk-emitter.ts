// Turns each yield of a handler into chunks, within the limit of their total size and at the pace of the
// receiver.
import { encodeChunk, type Metrics } from '../../wire/chunk/chunk.ts';
import { elapsedTime, setImmediate } from '../../wire/primordials.ts';
import type { ChunkBatcher } from './chunk-batch.ts';
import type { AttemptContext } from './context.ts';
import { Refusal, refuseNotJson } from './refusal.ts';
import type { RunHistory } from './stuck.ts';

/** A generator that never waits yields to the event loop this often, ms. */
const SLICE_MS = 5;

export interface ChunkEmitterOptions {
  chunks: ChunkBatcher;
  /** Largest total of all chunks, bytes. */
  chunkTotalBytes: number;
  context: AttemptContext;
  history: RunHistory;
}

export class ChunkEmitter {
  readonly #options: ChunkEmitterOptions;
  #bytes = 0;
  #sliceStartedAt = 0;
  #isStopped = false;

  constructor(options: ChunkEmitterOptions) {
    this.#options = options;
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
    for (let index = 0; index < encoded.length; index += 1) {
      const chunk = encoded[index];
      if (chunk === undefined) break;
      this.#bytes += chunk.length;
      history.add(1);
      chunks.add(chunk);
    }
    if (this.#bytes > chunkTotalBytes) {
      const sizes = `${this.#bytes} bytes of chunks, the limit is ${chunkTotalBytes}`;
      throw new Refusal('output_too_large', `the job has yielded ${sizes}`);
    }
    if (chunks.isFull && !this.#isStopped) return chunks.waitForGrant();
    return elapsedTime() - this.#sliceStartedAt > SLICE_MS ? this.#takeTurn() : undefined;
  }

  async #takeTurn(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.#sliceStartedAt = elapsedTime();
  }
}
