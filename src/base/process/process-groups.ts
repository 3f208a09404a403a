// Lists the process groups that a thread has started, in memory that the thread shares with the one that created it: a
// thread that dies cannot end them itself.

/** Set in a thread whose groups are ended with it. A handler's own copy of this package finds it too. */
const LIST = Symbol.for('millrace.processGroups');
/** Groups of one thread at a time; further ones are not listed. */
const MAX_GROUPS = 64;

/** IDs of process groups; 0: a free place. */
export type ProcessGroups = Int32Array<SharedArrayBuffer>;

export function createGroupList(): ProcessGroups {
  return new Int32Array(new SharedArrayBuffer(MAX_GROUPS * Int32Array.BYTES_PER_ELEMENT));
}

/** From now on `noteGroup` in this thread uses the list. */
export function shareGroups(list: ProcessGroups): void {
  Object.defineProperty(globalThis, LIST, { value: list, configurable: true });
}

/** Lists a group that this thread has started. @returns how it is removed; call that when all of its processes are dead */
export function noteGroup(id: number): () => void {
  const list: unknown = Reflect.get(globalThis, LIST);
  if (!(list instanceof Int32Array)) return () => undefined;
  for (let place = 0; place < list.length; place += 1) {
    if (Atomics.compareExchange(list, place, 0, id) !== 0) continue;
    return () => {
      Atomics.compareExchange(list, place, id, 0);
    };
  }
  return () => undefined;
}

/** Kills all listed groups: the thread is dead. The first process of each is not reaped yet, so its ID is still its own. */
export function endGroups(list: ProcessGroups): void {
  for (let place = 0; place < list.length; place += 1) {
    const id = Atomics.exchange(list, place, 0);
    if (id > 0) killGroup(id);
  }
}

/** SIGKILL for all processes of the group. */
export function killGroup(id: number): void {
  try {
    process.kill(-id, 'SIGKILL');
  } catch {
    // No process of the group is left.
  }
}
