// Splits a whole output into chunks, for readers of the stream of a job that does not stream. Splitting
// 20 MB takes longer than the rest of a response, and a reader fetches many pages, so the chunks stay in a
// cache while a reader fetches them.
import type { Clock } from '../../base/clock.ts';
import { runInSlices } from '../../base/slices.ts';
import type { JobKey } from '../../store/store.ts';
import { MAX_CHUNK_BYTES } from '../../wire/chunk/chunk.ts';
import { splitInSlices } from '../../wire/chunk/chunk-split.ts';

/** The cache drops an output this long after its last read, ms. */
const KEEP_MS = 10_000;
/** Most outputs in the cache; each needs at most 40 MB, twice the size of the largest output. */
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
  readonly #pending = new Map<string, Promise<readonly Uint8Array[]>>();

  constructor({ clock, closing }: SplitOutputsOptions) {
    this.#clock = clock;
    closing.addEventListener('abort', () => {
      for (const name of this.#kept.keys()) this.#forget(name);
    });
  }

  /** Undefined if the output must be split first. */
  find(job: JobKey): readonly Uint8Array[] | undefined {
    const kept = this.#kept.get(nameOf(job));
    return kept && this.#keep(nameOf(job), kept.chunks);
  }

  /** In slices, once for all that ask at a time. `read`: the output's JSON. */
  async split(
    job: JobKey,
    read: () => Promise<Uint8Array | undefined>,
  ): Promise<readonly Uint8Array[]> {
    const name = nameOf(job);
    const pending = this.#pending.get(name) ?? this.#split(job, read);
    this.#pending.set(name, pending);
    try {
      return await pending;
    } finally {
      this.#pending.delete(name);
    }
  }

  async #split(
    job: JobKey,
    read: () => Promise<Uint8Array | undefined>,
  ): Promise<readonly Uint8Array[]> {
    const output = await read();
    if (!output) return [];
    const work = splitInSlices(output, { maxBytes: MAX_CHUNK_BYTES });
    return this.#keep(nameOf(job), await runInSlices(job.endpointId, work));
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

function nameOf({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}
