// Wraps a store and reports every change of a job to a callback.
import type { Step, Store, StoredJob, Transaction } from '../../src/store/store.ts';

/** `after` is undefined when the job is removed. */
export type OnChange = (before: StoredJob, after: StoredJob | undefined) => void;

/** Calls `onChange` before a transaction changes or removes a job. */
export function watchStore(store: Store, onChange: OnChange): Store {
  return {
    read: (operation) => store.read(operation),
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
    write: <T>(operation: (tx: Transaction) => Step<T>) =>
      store.write((tx) => operation(watchTransaction(tx, onChange))),
  };
}

function watchTransaction(tx: Transaction, onChange: OnChange): Transaction {
  const verbs: Partial<Transaction> = {
    saveJob: (before, after, retried) => {
      onChange(before, after);
      return tx.saveJob(before, after, retried);
    },
    removeJob: (job) => {
      onChange(job, undefined);
      return tx.removeJob(job);
    },
  };
  // The methods read private members, so they must be called on the transaction itself.
  return new Proxy(tx, {
    get(target, name) {
      const watched: unknown = Reflect.get(verbs, name);
      if (watched) return watched;
      const member: unknown = Reflect.get(target, name);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
}
