// A value that several components read and that redraws them when it changes.
import { useEffect, useState } from 'preact/hooks';

export interface Store<T> {
  read(): T;
  write(value: T): void;
  /** Calls `act` after each change; the returned function ends that. */
  watch(act: () => void): () => void;
}

export function createStore<T>(initial: T): Store<T> {
  let value = initial;
  const watchers = new Set<() => void>();
  return {
    read: () => value,
    write(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const act of [...watchers]) act();
    },
    watch(act) {
      watchers.add(act);
      return () => watchers.delete(act);
    },
  };
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => store.read());
  useEffect(() => {
    const update = () => setValue(() => store.read());
    // It may have changed between the first draw and this.
    update();
    return store.watch(update);
  }, [store]);
  return value;
}
