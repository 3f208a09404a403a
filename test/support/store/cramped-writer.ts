// A process that may not write files beyond a limit set by whoever starts it: it writes to the store
// at its first argument until that fails, then something small, and says what came of each.
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, addJobs, INPUT, makeJob } from './stored-jobs.ts';

// Without a listener the signal, and not the error, would end the process.
process.on('SIGXFSZ', () => {});
const store = openSqliteStore({ path: process.argv[2] ?? '' });
await addEndpoint(store);
await addJobs(store, [makeJob({ id: 'before' })]);
const large = new Uint8Array(4 * 1_048_576);
const results = await Promise.allSettled([
  store.write((tx) => tx.insertJob(makeJob({ id: 'neighbour' }), INPUT)),
  store.write((tx) => tx.insertJob(makeJob({ id: 'large' }), large)),
]);
const errors = results.map((result) => result.status === 'rejected' && result.reason.name);
await addJobs(store, [makeJob({ id: 'after' })]);
const jobs = await store.read((tx) => tx.queuedJobs('ep_test', 10));
console.log(JSON.stringify({ errors, ids: jobs.map((job) => job.id).sort() }));
await store.close();
