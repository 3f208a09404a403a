// A wall clock that is set while jobs run, or while the platform is down: leases last as long as they
// should, for dead workers and for living ones.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type Clock, createSteadyNow, ManualClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../src/store/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';
import type { Lease } from '../../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';

const HOUR_MS = 3_600_000;
const ENDPOINT = 'e';
const WORKER = { workerId: 'w', incarnation: 1 };
const { signal } = new AbortController();

let manual: ManualClock;
let offsetMs: number;
let store: Store;
let queue: Queue;

/** As a process has it: what it knows of time ends with it. */
function readClock(): Clock {
  const now = createSteadyNow({
    wall: () => manual.now() + offsetMs,
    monotonic: () => manual.now(),
  });
  return { now, after: (ms, act) => manual.after(ms, act) };
}

async function startQueue(): Promise<void> {
  queue = new Queue({ store, clock: readClock(), log: silentLog });
  await queue.start();
}

beforeEach(async () => {
  manual = new ManualClock();
  offsetMs = 0;
  store = openSqliteStore({ path: ':memory:' });
  const settings = endpointSettings.parse({ maxAttempts: 3 });
  await store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: manual.now() }));
  await startQueue();
});

afterEach(async () => {
  await queue.close();
  await store.close();
});

async function takeJob(): Promise<Lease> {
  const input = Buffer.from('{}');
  const policy = { executionTimeout: 600_000, ttl: 86_400_000 };
  const submission = { endpointId: ENDPOINT, mode: 'run' as const, input, policy };
  await queue.submissions.submit({ ...submission, idempotency: undefined });
  const link = queue.link(ENDPOINT);
  const hello = { protocol: 1, version: '1', slots: 1, devices: [], outbox: [] };
  await link.hello({ ...WORKER, ...hello });
  const request = { ...WORKER, takeId: 't', max: 1, waitMs: 0, held: [] };
  const [lease] = await link.take(request, signal);
  if (!lease) throw new Error('a lease was expected');
  await renew(lease);
  return lease;
}

async function renew({ jobId, token }: Lease): Promise<unknown[]> {
  const leases = [{ jobId, token, stopping: false }];
  return (await queue.link(ENDPOINT).renew({ ...WORKER, waitMs: 0, leases }, signal)).ended;
}

async function readStatus({ jobId }: Lease): Promise<string | undefined> {
  const job = await store.read((tx) => tx.job({ endpointId: ENDPOINT, id: jobId }));
  return job?.status;
}

it.each([
  ['back', -HOUR_MS],
  ['forward', HOUR_MS],
])('a dead worker loses its lease when the clock was set %s', async (_name, stepMs) => {
  const lease = await takeJob();
  offsetMs += stepMs;
  await manual.advance(60_000);
  expect(await readStatus(lease)).toBe('IN_QUEUE');
  expect((await queue.health(ENDPOINT)).workers).toEqual({ idle: 0, running: 0 });
});

it.each([
  ['back', -HOUR_MS],
  ['forward', HOUR_MS],
])('a living worker keeps its lease when the clock is set %s', async (_name, stepMs) => {
  const lease = await takeJob();
  offsetMs += stepMs;
  for (let ms = 0; ms < 60_000; ms += 5_000) {
    await manual.advance(5_000);
    expect(await renew(lease)).toEqual([]);
  }
  expect(await readStatus(lease)).toBe('IN_PROGRESS');
  expect((await queue.health(ENDPOINT)).workers).toEqual({ idle: 0, running: 1 });
});

it('a dead worker loses its lease when the clock was set back while the platform was down', async () => {
  const lease = await takeJob();
  await queue.close();
  offsetMs -= HOUR_MS;
  await startQueue();
  await manual.advance(60_000);
  expect(await readStatus(lease)).toBe('IN_QUEUE');
});
