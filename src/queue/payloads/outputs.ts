// Builds the output of a job as its record shows it.
import type { Reader, StoredJob } from '../../store/store.ts';
import { ChunkOrderError } from '../../wire/chunk/chunk-pieces.ts';
import { joinOutputs } from '../../wire/chunk/chunk-reassembly.ts';
import { hasOutput } from '../records.ts';
import { sliceBatches } from '../reports/streams.ts';

/** Estimates the size of the result of `readOutput`. */
export function measureOutput(tx: Reader, job: StoredJob, maxBytes: number): number {
  if (!hasOutput(job)) return 0;
  if (job.outputKind === 'value') return tx.outputBytes(job);
  return Math.min(job.chunkBytes, maxBytes);
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
