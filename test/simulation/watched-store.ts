// A store that looks at every change of a job as it is written, and says what may never be.
import type { Step, Store, StoredJob, Transaction } from '../../src/store/store.ts';
import { isTerminal } from '../../src/wire/job.ts';

/** The store's own transaction, but for `saveJob`, which is looked at first. */
export function watchStore(
  store: Store,
  onChange: (before: StoredJob, after: StoredJob) => void,
): Store {
  return {
    read: (operation) => store.read(operation),
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
    write: <T>(operation: (tx: Transaction) => Step<T>) =>
      store.write((tx) => {
        const saveJob: Transaction['saveJob'] = (before, after, retried) => {
          onChange(before, after);
          return tx.saveJob(before, after, retried);
        };
        // The verbs read private members: they have to be called on the transaction itself.
        const watched = new Proxy(tx, {
          get(target, name) {
            if (name === 'saveJob') return saveJob;
            const member: unknown = Reflect.get(target, name);
            return typeof member === 'function' ? member.bind(target) : member;
          },
        });
        return operation(watched);
      }),
  };
}

/** What is wrong with the change, if anything is. `wasRetried`: a client asked for it. */
export function findFault(before: StoredJob, after: StoredJob): string | undefined {
  const name = `job ${before.id}: ${before.status} → ${after.status}`;
  if (isTerminal(before.status) && before.status !== after.status) {
    const mayRetry = before.status === 'FAILED' || before.status === 'TIMED_OUT';
    if (after.status !== 'IN_QUEUE' || !mayRetry) return `${name}: left a terminal status`;
  }
  if (after.attempt !== before.attempt) {
    if (after.attempt !== before.attempt + 1)
      return `${name}: attempt ${before.attempt} → ${after.attempt}`;
    if (before.status === 'IN_PROGRESS') return `${name}: a second live lease`;
  } else if (before.lease && after.lease && before.lease.token !== after.lease.token) {
    return `${name}: another token in the same attempt`;
  }
  if (after.failures > after.maxAttempts) return `${name}: ${after.failures} failures`;
  if (after.dueAt > after.expiresAt) return `${name}: due after it expires`;
  return undefined;
}
