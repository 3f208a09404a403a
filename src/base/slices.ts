// Runs long computations in slices: one slice a turn of the event loop over all of them, the owners by
// turns. However many computations are pending, other work waits for one slice at most.

/** Pauses with each `yield`. */
type Work<T> = Generator<void, T>;

/** One computation at a time for each owner, in the order of arrival. */
const lanes = new Map<string, (() => boolean)[]>();
let isScheduled = false;

/** The work starts at once; work that ends within its first slice never waits for a turn. */
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

let lastTurn: Promise<void> = Promise.resolve();

/** Resolves in a turn of the event loop in which nobody else's does: for work of some milliseconds. */
export function ownTurn(): Promise<void> {
  lastTurn = lastTurn.then(() => new Promise((resolve) => setImmediate(resolve)));
  return lastTurn;
}

/** Bytes that are loaded in one turn of the event loop before the next load waits for another. */
const TURN_BYTES = 1_048_576;
let turnBytes = 0;

/** Loads at once, unless much was loaded in this turn already. */
export async function loadInTurn<T>(
  load: () => Promise<T>,
  sizeOf: (loaded: T) => number,
): Promise<T> {
  while (turnBytes >= TURN_BYTES) await ownTurn();
  const loaded = await load();
  if (turnBytes === 0) {
    setImmediate(() => {
      turnBytes = 0;
    });
  }
  turnBytes += sizeOf(loaded);
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

/** Moves the owner whose turn it was behind the others. */
function runSlice(): void {
  const next = lanes.entries().next().value;
  if (!next) return;
  const [owner, lane] = next;
  lanes.delete(owner);
  if (lane[0]?.()) lane.shift();
  if (lane.length > 0) lanes.set(owner, lane);
}
