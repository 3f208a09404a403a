// Wraps a store and reports every committed change of a job to a callback.

import type { Store, StoredJob, Transaction } from '../../src/store/store.ts';
import { replaceVerb } from '../support/replace-verb.ts';

/** `before` is undefined for a new job, `after` for a removed one. */
export type OnChange = (before: StoredJob | undefined, after: StoredJob | undefined) => void;

/** Calls `onChange` after the commit. */
export function watchStore(store: Store, onChange: OnChange): Store {
  return {
    read: (operation) => store.read(operation),
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
    write: async <T>(operation: (tx: Transaction) => T) => {
      const changes: Parameters<OnChange>[] = [];
      const value = await store.write((tx) => {
        changes.length = 0;
        return operation(watchTransaction(tx, (...change) => changes.push(change)));
      });
      for (const change of changes) onChange(...change);
      return value;
    },
  };
}

/** The store's own transaction, except for the verbs that change or remove a job. */
export function watchTransaction(tx: Transaction, onChange: OnChange): Transaction {
  const verbs: Partial<Transaction> = {
    insertJob: (job, input) => {
      onChange(undefined, job);
      return tx.insertJob(job, input);
    },
    saveJob: (before, after, retried) => {
      onChange(before, after);
      return tx.saveJob(before, after, retried);
    },
    removeJob: (job) => {
      onChange(job, undefined);
      return tx.removeJob(job);
    },
  };
  return replaceVerb(tx, verbs);
}
