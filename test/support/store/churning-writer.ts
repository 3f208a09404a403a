// A process that adds jobs with large inputs and outputs to the store at its first argument, removes them soon after,
// and deletes their files, for as long as it lives. It prints a line for each removed job.
import { LargePayloads } from '../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../src/queue/settings.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { ENDING, type StoredJob, type UploadedPayload } from '../../../src/store/store.ts';
import { makeJob } from './stored-jobs.ts';

const BYTES = 1_500_000;
/** Of each lane. */
const JOBS_KEPT = 2;

const store = openSqliteStore({ path: process.argv[2] ?? '' });
const payloads = new LargePayloads({ store, settings: completeSettings() });

function upload(kind: UploadedPayload['kind'], job: StoredJob): Promise<UploadedPayload> {
  const bytes = new Uint8Array(BYTES).fill(job.position % 251);
  return payloads.upload({ kind, key: job, bytes });
}

async function addJob(job: StoredJob): Promise<void> {
  const uploads = [await upload('input', job), await upload('output', job)] as const;
  const [input, output] = uploads;
  await store.write((tx) => {
    tx.insertJob(job, input);
    tx.putOutput(job, output);
  });
  for (const each of uploads) payloads.release(each);
}

async function workOn(lane: number): Promise<void> {
  const jobs: StoredJob[] = [];
  for (let position = lane; ; position += 2) {
    const job = makeJob({ id: `${position}`, position });
    await addJob(job);
    jobs.push(job);
    const oldest = jobs.length > JOBS_KEPT ? jobs.shift() : undefined;
    if (!oldest) continue;
    await store.write((tx) => tx.removeJob(oldest), ENDING);
    await payloads.deleteSome();
    process.stdout.write(`${oldest.id}\n`);
  }
}

await Promise.all([workOn(0), workOn(1)]);
