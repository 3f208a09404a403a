// A process that uploads inputs in parts to the store at its first argument for as long as it lives, and
// names each job on standard output once it is on disk.
import { LargePayloads } from '../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../src/queue/settings.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { addEndpoint, ENDPOINT, makeJob } from './stored-jobs.ts';

const BYTES = 40_000;

const store = openSqliteStore({ path: process.argv[2] ?? '' });
await addEndpoint(store);
const settings = completeSettings({ payloadPartBytes: 4_096 });
const payloads = new LargePayloads({ store, settings });

async function writeOn(lane: number): Promise<void> {
  for (let position = 0; ; position++) {
    const id = `${lane}-${position}`;
    const bytes = new Uint8Array(BYTES).fill(position % 251);
    const upload = await payloads.upload({
      kind: 'input',
      key: { endpointId: ENDPOINT, id },
      bytes,
    });
    await store.write((tx) => tx.insertJob(makeJob({ id, position }), upload));
    payloads.release(upload);
    process.stdout.write(`${id}\n`);
  }
}

await Promise.all(Array.from({ length: 4 }, (_, lane) => writeOn(lane)));
