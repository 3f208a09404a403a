// A process that writes jobs to the store at its first argument for as long as it lives, and names
// each on standard output once its write has resolved.
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, ENDPOINT, INPUT, makeJob } from './stored-jobs.ts';

const store = openSqliteStore({ path: process.argv[2] ?? '' });
await addEndpoint(store);

async function writeOn(lane: number): Promise<void> {
  for (let position = 0; ; position++) {
    const job = makeJob({ id: `${lane}-${position}`, position });
    await store.write((tx) => {
      tx.insertJob(job, INPUT);
      tx.putOutput({ endpointId: ENDPOINT, id: job.id }, INPUT);
    });
    process.stdout.write(`${job.id}\n`);
  }
}

await Promise.all(Array.from({ length: 8 }, (_, lane) => writeOn(lane)));
