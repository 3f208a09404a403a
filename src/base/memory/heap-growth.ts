// Lets V8's heap grow further before the next full garbage collection, for processes that pass large payloads on.
import { setFlagsFromString } from 'node:v8';

/** The heap may double between two full collections. */
const GROWTH_PERCENT = 100;

/**
 * Call it at the start of a process. V8 chooses the next full collection from how fast the heap itself grows. The heap
 * of such a process is small and grows slowly, so V8 grants it 8 MB, and counts the bytes of buffers as well: every
 * payload of 10 MB then costs one or two full collections of up to 60 ms, though it leaves almost no garbage on the heap.
 */
export function letHeapGrow(): void {
  setFlagsFromString(`--heap-growing-percent=${GROWTH_PERCENT}`);
}
