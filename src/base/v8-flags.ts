// Flags of V8 for the process of a platform, which passes large payloads on.
import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';

/** The heap, with the buffers that it refers to, may grow by so much between two full collections. */
const GROWTH_BYTES = 64 * 1_048_576;
/** A larger heap may double. */
const LEAST_PERCENT = 100;

/**
 * Call it at the start of a process. V8 chooses the next full collection from how fast the heap itself grows. The heap
 * of such a process is small and grows slowly, so V8 grants it 8 MB, and counts the bytes of buffers as well: every
 * payload of 10 MB then costs one or two full collections of up to 60 ms, though it leaves almost no garbage on the heap.
 * V8 takes a share of the heap, so the share follows the heap's size.
 */
export function letHeapGrow(): void {
  setGrowth();
  // V8 computes the next limit before it reports a collection, so the share must follow the small collections as well.
  new PerformanceObserver(setGrowth).observe({ entryTypes: ['gc'] });
}

function setGrowth(): void {
  const share = (100 * GROWTH_BYTES) / getHeapStatistics().used_heap_size;
  setFlagsFromString(`--heap-growing-percent=${Math.max(LEAST_PERCENT, Math.round(share))}`);
}
