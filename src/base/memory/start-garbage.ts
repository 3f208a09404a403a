// Frees the memory that the start of a process or thread has left, once it is idle. V8 collects only when memory
// is allocated, so an idle process would keep it: 4 MB of each young generation, and what only the start has used.
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Time from the start until a process counts as idle, ms. */
const IDLE_MS = 1_000;
/** A larger heap would take longer than a few milliseconds; it belongs to a handler, which has allocated it. */
const MAX_HEAP_BYTES = 64 * 1_048_576;

/** Collects once, about a second from now, unless the process or thread is busy then. */
export function collectStartGarbage(isBusy: () => boolean): void {
  setTimeout(() => {
    if (!isBusy() && getHeapStatistics().used_heap_size <= MAX_HEAP_BYTES) collect();
  }, IDLE_MS).unref();
}

/** Does nothing if another thread takes the flag back in this moment. */
function collect(): void {
  setFlagsFromString('--expose-gc');
  const gc: unknown = runInNewContext('globalThis.gc');
  setFlagsFromString('--no-expose-gc');
  // Only this kind also shrinks the young generation.
  if (typeof gc === 'function') gc({ type: 'major', flavor: 'last-resort' });
}
