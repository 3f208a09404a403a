// Builds the output of a job as its record and its stream show it, and keeps what a caller is about to ask for. Measures inputs and
// outputs without reading them.
import type { Clock } from '../../base/clock.ts';
import { runInSlices } from '../../base/slices.ts';
import {
  type ChunkBatch,
  type JobKey,
  PayloadFileError,
  type Reader,
  type StoredJob,
} from '../../store/store.ts';
import { MAX_CHUNK_BYTES } from '../../wire/chunk/chunk.ts';
import { joinOutputs, splitInSlices, viewBuffer } from '../../wire/chunk/chunk-bytes.ts';
import { ChunkOrderError } from '../../wire/chunk/chunk-pieces.ts';
import type { QueueParts } from '../queue-parts.ts';
import { hasOutput } from '../records.ts';
import type { LargePayloads } from './large-payloads.ts';

/** Estimates the size of the result of `readOutput`. */
export function measureOutput(tx: Reader, job: StoredJob, maxBytes: number): number {
  if (!hasOutput(job)) return 0;
  if (job.outputKind === 'value') return tx.outputBytes(job);
  return Math.min(job.chunkBytes, maxBytes);
}

export function measureInput(tx: Reader, key: JobKey): number {
  const input = tx.payloadUpTo('input', key, 0);
  return typeof input === 'number' ? input : (input?.length ?? 0);
}

export interface OutputBounds {
  /** Largest stream of chunks that is joined. */
  maxBytes: number;
  /** Of an output that is larger than this, only the size is returned. */
  maxAtOnce: number;
}

/**
 * Returns JSON; undefined if the job has no output, if the joined output exceeds `maxBytes`, or if the
 * worker reported its chunks incomplete or out of order. The chunks stay readable.
 */
export function readOutput(
  tx: Reader,
  job: StoredJob,
  { maxAtOnce, maxBytes }: OutputBounds,
): Uint8Array | number | undefined {
  if (!hasOutput(job)) return undefined;
  if (job.outputKind === 'value') return tx.payloadUpTo('output', job, maxAtOnce);
  return joinChunks(tx, job, maxBytes);
}

/**
 * The whole output of a job as JSON. `gone`: there is no such job. `none`: it has no output. `lost`: another attempt would
 * not find it either.
 */
export async function readWholeOutput(
  { payloads, settings, store }: Pick<QueueParts, 'payloads' | 'settings' | 'store'>,
  key: JobKey,
): Promise<Uint8Array | 'gone' | 'lost' | 'none'> {
  const bounds = { maxBytes: settings.maxOutputBytes, maxAtOnce: payloads.partBytes };
  const found = await store.read((tx) => {
    const job = tx.job(key);
    return job && { hasOutput: hasOutput(job), output: readOutput(tx, job, bounds) };
  });
  if (!found) return 'gone';
  if (!found.hasOutput) return 'none';
  const { output } = found;
  if (typeof output !== 'number') return output ?? 'lost';
  return (await readLarge(payloads, { kind: 'output', key, bytes: output })) ?? 'lost';
}

/** Undefined: it is lost. */
export async function readLarge(
  payloads: Pick<LargePayloads, 'read'>,
  { bytes, key, kind }: { kind: 'input' | 'output'; key: JobKey; bytes: number },
): Promise<Uint8Array | undefined> {
  try {
    return await payloads.read(kind, key, bytes);
  } catch (error) {
    if (error instanceof PayloadFileError && error.isLost) return undefined;
    throw error;
  }
}

/** Like `readOutput`, for a job that streams. */
export function joinChunks(tx: Reader, job: StoredJob, maxBytes: number): Uint8Array | undefined {
  if (job.chunkCount === 0) return Buffer.from('[]');
  // The frame of each chunk, `{"output":,"metrics":{}}`, is not part of the joined array.
  const frameBytes = job.chunkCount * 24;
  if (job.chunkBytes - frameBytes > maxBytes * 2) return undefined;
  const { endpointId, id, attempt } = job;
  const all = { endpointId, id, attempt, from: 0, maxBytes: Number.MAX_SAFE_INTEGER };
  const batches = tx.chunks(all);
  try {
    return joinOutputs(sliceBatches(batches, 0), maxBytes);
  } catch (error) {
    if (error instanceof ChunkOrderError) return undefined;
    throw error;
  }
}

/** Yields the chunks of the batches from chunk number `from` on, without copying them. */
export function* sliceBatches(batches: Iterable<ChunkBatch>, from: number): Generator<Uint8Array> {
  for (const { first, sizes, bytes } of batches) {
    let at = 0;
    for (const [index, size] of sizes.entries()) {
      if (first + index >= from) yield bytes.subarray(at, at + size);
      at += size + 1;
    }
  }
}

/** The cache drops an output this long after its last read, ms. */
const KEEP_MS = 10_000;
/** Most outputs in the cache; each needs at most 40 MB, twice the size of the largest output. */
const MAX_RECENT = 4;

interface RecentOutput {
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
  readonly #recent = new Map<string, RecentOutput>();
  readonly #pending = new Map<string, Promise<readonly Uint8Array[]>>();

  constructor({ clock, closing }: SplitOutputsOptions) {
    this.#clock = clock;
    closing.addEventListener('abort', () => {
      for (const name of this.#recent.keys()) this.#forget(name);
    });
  }

  /** Undefined if the output must be split first. */
  find(job: JobKey): readonly Uint8Array[] | undefined {
    const recent = this.#recent.get(nameOf(job));
    return recent && this.#keep(nameOf(job), recent.chunks);
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
    const work = splitInSlices({ json: viewBuffer(output), metricsText: '{}' }, MAX_CHUNK_BYTES);
    return this.#keep(nameOf(job), await runInSlices(job.endpointId, work));
  }

  #keep(name: string, chunks: readonly Uint8Array[]): readonly Uint8Array[] {
    this.#forget(name);
    const cancelForget = this.#clock.after(KEEP_MS, () => this.#recent.delete(name));
    this.#recent.set(name, { chunks, cancelForget });
    const [oldest] = this.#recent.keys();
    if (oldest !== undefined && this.#recent.size > MAX_RECENT) this.#forget(oldest);
    return chunks;
  }

  #forget(name: string): void {
    this.#recent.get(name)?.cancelForget();
    this.#recent.delete(name);
  }
}

function nameOf({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}

/** How long a report waits for the client, ms. The client reads the record in the same moments, unless it has gone. */
const OFFER_MS = 50;

/** Small outputs kept: together at most 4 MB. A client that has gone does not take its output. */
const SMALL = { bytes: 4_096, recent: 1_024 };

/** Attempts have outputs of their own: one that has lost its lease may report at the same time. */
type AttemptKey = Pick<StoredJob, 'endpointId' | 'id' | 'attempt'>;

interface Offer {
  bytes: Uint8Array;
  end: () => void;
}

export class FreshOutputs {
  readonly #clock: Clock;
  readonly #offers = new Map<string, Offer>();
  readonly #small = new Map<string, Uint8Array>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Call it before the commit that ends the job. The result ends the offer: it waits until a client has taken the
   * bytes, but not long. The caller must keep the bytes counted as in use until then.
   */
  offer(key: AttemptKey, bytes: Uint8Array): { end(isStored: boolean): Promise<void> } {
    const name = nameAttempt(key);
    const { promise: taken, resolve } = Promise.withResolvers<void>();
    const offer = { bytes, end: resolve };
    this.#offers.set(name, offer);
    const withdraw = () => {
      if (this.#offers.get(name) === offer) this.#offers.delete(name);
      resolve();
    };
    const end = async (isStored: boolean) => {
      if (!isStored) return withdraw();
      const cancel = this.#clock.after(OFFER_MS, withdraw);
      await taken;
      cancel();
    };
    return { end };
  }

  /**
   * Keeps a small output until a client has taken it. Call `drop` or `keep` within each operation that stores an
   * outcome: the kept output is then that of the last one, even if others were undone.
   */
  keep(key: JobKey, bytes: Uint8Array): void {
    const name = nameOf(key);
    this.#small.delete(name);
    if (bytes.length > SMALL.bytes) return;
    const [oldest] = this.#small.size >= SMALL.recent ? this.#small.keys() : [];
    if (oldest !== undefined) this.#small.delete(oldest);
    // A copy: the given one may be a part of a request's buffer.
    this.#small.set(name, new Uint8Array(bytes));
  }

  drop(key: JobKey): void {
    if (this.#small.size > 0) this.#small.delete(nameOf(key));
  }

  /** Size of the kept output; undefined if none is kept. */
  smallBytes(key: JobKey): number | undefined {
    return this.#small.size > 0 ? this.#small.get(nameOf(key))?.length : undefined;
  }

  /** Returns the kept output of a job whose output is a value, once. */
  takeSmall(key: JobKey): Uint8Array | undefined {
    if (this.#small.size === 0) return undefined;
    const name = nameOf(key);
    const bytes = this.#small.get(name);
    this.#small.delete(name);
    return bytes;
  }

  /** Returns the output of a job that has ended, once. The bytes must not be changed. */
  take(key: AttemptKey): Uint8Array | undefined {
    const offer = this.#offers.get(nameAttempt(key));
    offer?.end();
    this.#offers.delete(nameAttempt(key));
    return offer?.bytes;
  }
}

function nameAttempt({ attempt, ...key }: AttemptKey): string {
  return `${nameOf(key)} ${attempt}`;
}
