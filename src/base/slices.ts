// Runs long computations in slices: one slice in each iteration of the event loop, the owners in
// rotation. However many computations are pending, other work waits for one slice at most.
import { setImmediate } from './clock.ts';

/** A slice of a long change ends after this time, so that other work waits for one slice at most, ms. */
export const SLICE_MS = 4;

/** A computation that can pause at each `yield`. */
type Work<T> = Generator<void, T>;

/** The pending computations of each owner, in the order of arrival; the first one runs. */
const lanes = new Map<string, (() => boolean)[]>();
let isScheduled = false;

/** Starts at once. Work that ends within its first slice waits for nothing. */
export async function runInSlices<T>(owner: string, work: Work<T>): Promise<T> {
  const first = work.next();
  if (first.done) return first.value;
  return new Promise((resolve, reject) => {
    const advance = () => {
      try {
        const { done, value } = work.next();
        if (done) resolve(value);
        return Boolean(done);
      } catch (error) {
        reject(error);
        return true;
      }
    };
    const lane = lanes.get(owner);
    if (lane) lane.push(advance);
    else lanes.set(owner, [advance]);
    schedule();
  });
}

/**
 * Resolves when the promise callbacks that are ready now, and those that follow from them, have run: what is urgent
 * goes first. It does not wait for the next iteration of the event loop.
 */
export function yieldToUrgent(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve));
}

let last: Promise<void> = Promise.resolve();

/** Resolves in an iteration of the event loop of its own: use it before work of several milliseconds. */
export function yieldToLoop(): Promise<void> {
  last = last.then(() => new Promise((resolve) => setImmediate(resolve)));
  return last;
}

/** Bytes that may be loaded in one iteration of the event loop; further loads wait for the next one. */
const ITERATION_BYTES = 1_048_576;
let iterationBytes = 0;

/** Loads at once unless ITERATION_BYTES were loaded in this iteration. */
export async function loadPaced<T>(
  load: () => Promise<T>,
  sizeOf: (loaded: T) => number,
): Promise<T> {
  while (iterationBytes >= ITERATION_BYTES) await yieldToLoop();
  const loaded = await load();
  if (iterationBytes === 0) {
    setImmediate(() => {
      iterationBytes = 0;
    });
  }
  iterationBytes += sizeOf(loaded);
  return loaded;
}

function schedule(): void {
  if (isScheduled || lanes.size === 0) return;
  isScheduled = true;
  setImmediate(() => {
    isScheduled = false;
    runSlice();
    schedule();
  });
}

/** Runs one slice and moves its owner to the end of the rotation. */
function runSlice(): void {
  const next = lanes.entries().next().value;
  if (!next) return;
  const [owner, lane] = next;
  lanes.delete(owner);
  if (lane[0]?.()) lane.shift();
  if (lane.length > 0) lanes.set(owner, lane);
}
