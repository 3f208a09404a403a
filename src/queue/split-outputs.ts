// Splits the outputs of jobs that do not stream into chunks. Splitting 20 MB takes longer than the rest
// of a response, and a reader fetches many pages, so the chunks are cached while they are read.
import type { Clock } from '../base/clock.ts';
import type { Reader, Step, StoredJob } from '../store/store.ts';
import { encodeJsonChunk } from '../wire/chunk/chunk.ts';

/** Time since the last read, ms. */
const KEEP_MS = 10_000;
/** Outputs kept at a time; each needs at most twice the 20 MB of an output. */
const MAX_KEPT = 4;

interface Kept {
  chunks: readonly Uint8Array[];
  cancelForget: () => void;
}

export interface SplitOutputsOptions {
  clock: Clock;
  closing: AbortSignal;
}

export class SplitOutputs {
  readonly #clock: Clock;
  /** By job, the least recently used first. A stored output never changes. */
  readonly #kept = new Map<string, Kept>();

  constructor({ clock, closing }: SplitOutputsOptions) {
    this.#clock = clock;
    closing.addEventListener('abort', () => {
      for (const name of this.#kept.keys()) this.#forget(name);
    });
  }

  *chunksOf(tx: Reader, job: StoredJob): Step<readonly Uint8Array[]> {
    const name = `${job.endpointId}/${job.id}`;
    const kept = this.#kept.get(name);
    if (kept) return this.#keep(name, kept.chunks);
    const output = yield* tx.output(job);
    if (!output) return [];
    const chunks = encodeJsonChunk(output, {});
    return chunks.length > 1 ? this.#keep(name, chunks) : chunks;
  }

  #keep(name: string, chunks: readonly Uint8Array[]): readonly Uint8Array[] {
    this.#forget(name);
    const cancelForget = this.#clock.after(KEEP_MS, () => this.#kept.delete(name));
    this.#kept.set(name, { chunks, cancelForget });
    const [oldest] = this.#kept.keys();
    if (oldest !== undefined && this.#kept.size > MAX_KEPT) this.#forget(oldest);
    return chunks;
  }

  #forget(name: string): void {
    this.#kept.get(name)?.cancelForget();
    this.#kept.delete(name);
  }
}
