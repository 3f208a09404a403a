// Collects garbage, to show what stays in memory: the bytes of a process are those of all tests in it.
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Counts the objects that are still referenced, after a collection. */
export async function countKept(objects: readonly WeakRef<object>[]): Promise<number> {
  // A reference that was made or read in this iteration of the event loop keeps its object.
  await setImmediate();
  collectGarbage();
  return objects.filter((object) => object.deref() !== undefined).length;
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('globalThis.gc');
  if (typeof collect !== 'function') throw new Error('V8 has no gc function');
  collect();
}
