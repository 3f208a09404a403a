// Flags of V8 for the process of a platform, which passes large payloads on and serves many similar requests.
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

/** Calls after which V8 hands a function to TurboFan, its last compiler; its own default is 3,000. */
const CALLS_BEFORE_TURBOFAN = 80;

/**
 * Call it at the end of a start, so that functions that are hot only then are not compiled. V8 compiles a hot function
 * twice: with Maglev after 400 calls, with TurboFan after 3,000. A platform runs some hundred functions for each job, so in
 * its first ten thousand jobs the two compilers cost a fifth of its processor time. Without Maglev, and with TurboFan early,
 * each function is compiled once. docs/decisions/0004-v8-settings.md has the figures.
 */
export function optimizeEarly(): void {
  setFlagsFromString('--no-maglev');
  setFlagsFromString(`--invocation-count-for-turbofan=${CALLS_BEFORE_TURBOFAN}`);
}
