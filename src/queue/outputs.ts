// Builds the output of a job as its record shows it.
import type { Reader, Step, StoredJob } from '../store/store.ts';
import { joinOutputs } from '../wire/chunk/chunk-reassembly.ts';
import { hasOutput } from './records.ts';
import { sliceBatches } from './streams.ts';

/** Estimates the size of the result of `readOutput`. */
export function* measureOutput(tx: Reader, job: StoredJob, maxBytes: number): Step<number> {
  if (!hasOutput(job)) return 0;
  if (job.outputKind === 'value') return yield* tx.outputBytes(job);
  return Math.min(job.chunkBytes, maxBytes);
}

/** Returns JSON; undefined without an output, or if the joined output is larger than `maxBytes`. */
export function* readOutput(
  tx: Reader,
  job: StoredJob,
  maxBytes: number,
): Step<Uint8Array | undefined> {
  if (!hasOutput(job)) return undefined;
  if (job.outputKind === 'value') return yield* tx.output(job);
  if (job.chunkCount === 0) return Buffer.from('[]');
  // Each chunk has a frame `{"output":,"metrics":{}}` that does not count in the array.
  const frameBytes = job.chunkCount * 24;
  if (job.chunkBytes - frameBytes > maxBytes * 2) return undefined;
  const { endpointId, id, attempt } = job;
  const all = { endpointId, id, attempt, from: 0, maxBytes: Number.MAX_SAFE_INTEGER };
  return joinOutputs(sliceBatches(yield* tx.chunks(all), 0), maxBytes);
}
