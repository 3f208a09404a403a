// Queues many jobs in a number of groups on a SQLite file, leases some of them, and prints what that took as JSON:
// `node queued-groups.ts <folder> <jobs> <groups> <leases>`. No groups: 0.
import { join } from 'node:path';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { type Lease, PROTOCOL_VERSION } from '../../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';

export interface QueuedGroups {
  /** Resident memory once all jobs are queued, MB. */
  queuedMb: number;
  /** And after the leases. */
  leasedMb: number;
  leasesPerSecond: number;
  /** Processor time of the process, a lease and its report, µs. */
  processorUs: number;
  /** Groups of which the first leases were, once each. */
  groupsLeased: number;
}

const CLIENTS = 64;
const TAKEN = 16;
const ENDPOINT = 'e';
const WORKER = { workerId: 'w', incarnation: 1 };

const [folder = '', ...numbers] = process.argv.slice(2);
const [jobs = 0, groups = 0, leases = 0] = numbers.map(Number);

const store = openSqliteStore({ path: join(folder, 'jobs.db') });
const settings = endpointSettings.parse({ maxQueued: 10 * jobs });
await store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: 1 }));
const queue = new Queue({ store, clock: systemClock, log: silentLog, settings: {} });
await queue.start();

let submitted = 0;
await Promise.all(Array.from({ length: CLIENTS }, submitSome));
const queuedMb = readMb();

const link = queue.link(ENDPOINT);
const hello = { protocol: PROTOCOL_VERSION, version: '0.0.0', slots: TAKEN, devices: [] };
await link.hello({ ...WORKER, ...hello, outbox: [] });
const groupsLeased = new Set<string>();
const startedAt = performance.now();
const cpuAtStart = process.cpuUsage();
for (let taken = 0; taken < leases; ) {
  const takeId = String(taken);
  const request = { ...WORKER, takeId, max: TAKEN, waitMs: 0, held: [] };
  const given = await link.take(request, new AbortController().signal);
  if (given.length === 0) throw new Error(`no job after ${taken} leases`);
  for (const { input } of given) groupsLeased.add(Buffer.from(input).toString());
  await link.report({ ...WORKER, reports: given.map(complete) });
  taken += given.length;
}
const leasesPerSecond = Math.round((1_000 * leases) / (performance.now() - startedAt));
const { system, user } = process.cpuUsage(cpuAtStart);
const processorUs = Math.round((user + system) / leases);
const result: QueuedGroups = {
  ...{ queuedMb, leasedMb: readMb(), leasesPerSecond, processorUs },
  groupsLeased: groupsLeased.size,
};
console.log(JSON.stringify(result));
await queue.close();
await store.close();

async function submitSome(): Promise<void> {
  while (submitted < jobs) {
    const group = groups > 0 ? `customer-${submitted % groups}` : undefined;
    submitted++;
    await queue.submissions.submit({
      ...{ endpointId: ENDPOINT, mode: 'run', input: Buffer.from(JSON.stringify(group ?? null)) },
      policy: group === undefined ? {} : { group },
      idempotency: undefined,
    });
  }
}

function complete({ attempt, jobId, token }: Lease) {
  const outcome = { kind: 'completed', executionMs: 1, output: 'value' } as const;
  const body = Buffer.from('1');
  return { jobId, attempt, token, kind: 'outcome', seq: 1, outcome, body } as const;
}

function readMb(): number {
  globalThis.gc?.();
  return Math.round(process.memoryUsage().rss / 1e6);
}
