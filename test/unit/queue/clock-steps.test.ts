// A wall clock that is set while jobs run or while the platform is down: leases, delays, times to live and
// webhook retries keep their length.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock, type ResumableClock, SteadyTime } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { Queue } from '../../../src/queue/queue.ts';
import type { WebhookSender } from '../../../src/queue/webhooks/webhooks.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import type { Store, StoredJob } from '../../../src/store/store.ts';
import type { JobPolicy } from '../../../src/wire/job/job.ts';
import type { Lease } from '../../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { syncAtOnce } from '../../support/sync-at-once.ts';

const HOUR_MS = 3_600_000;
const ENDPOINT = 'e';
const WORKER = { workerId: 'w', incarnation: 1 };
const { signal } = new AbortController();

let manual: ManualClock;
let offsetMs: number;
let folder: string;
let path: string;
let clock: ResumableClock;
let store: Store;
let queue: Queue;

/** A process's view of time: it ends with the process. */
function openClock(): ResumableClock {
  const { monotonic, now, startFrom } = new SteadyTime({
    wall: () => manual.now() + offsetMs,
    monotonic: () => manual.now(),
  });
  return { now, startFrom, monotonic, after: (ms, act) => manual.after(ms, act) };
}

async function startQueue(webhooks?: WebhookSender): Promise<void> {
  clock = openClock();
  queue = new Queue({ store, clock, log: silentLog, ...(webhooks && { webhooks }) });
  await queue.start();
}

async function restart({ downMs, stepMs }: { downMs: number; stepMs: number }): Promise<void> {
  await queue.close();
  await store.close();
  await manual.advance(downMs);
  offsetMs += stepMs;
  store = openSqliteStore({ path, syncFile: syncAtOnce });
  await startQueue();
}

beforeEach(async () => {
  manual = new ManualClock();
  offsetMs = 0;
  folder = mkdtempSync(join(tmpdir(), 'millrace-clock-steps-'));
  path = join(folder, 'millrace.db');
  store = openSqliteStore({ path, syncFile: syncAtOnce });
  const settings = endpointSettings.parse({ maxAttempts: 3 });
  await store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: manual.now() }));
  await startQueue();
});

afterEach(async () => {
  await queue.close();
  await store.close();
  rmSync(folder, { recursive: true });
});

async function submit(policy: JobPolicy = {}, webhook?: string): Promise<string> {
  const input = Buffer.from('{}');
  const submission = { endpointId: ENDPOINT, mode: 'run' as const, input, policy, webhook };
  return (await queue.submissions.submit({ ...submission, idempotency: undefined })).id;
}

async function takeJob(): Promise<Lease> {
  await submit({ executionTimeout: 600_000, ttl: 86_400_000 });
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

function readJob(id: string): Promise<StoredJob | undefined> {
  return store.read((tx) => tx.job({ endpointId: ENDPOINT, id }));
}

async function readStatus({ jobId }: Lease): Promise<string | undefined> {
  return (await readJob(jobId))?.status;
}

it.each([
  ['back', -HOUR_MS],
  ['forward', HOUR_MS],
])('ends the lease of a dead worker when the clock was set %s', async (_name, stepMs) => {
  const lease = await takeJob();
  offsetMs += stepMs;
  await manual.advance(60_000);
  expect(await readStatus(lease)).toBe('IN_QUEUE');
  expect((await queue.health(ENDPOINT)).workers).toEqual({ idle: 0, running: 0 });
});

it.each([
  ['back', -HOUR_MS],
  ['forward', HOUR_MS],
])('keeps the lease of a living worker when the clock is set %s', async (_name, stepMs) => {
  const lease = await takeJob();
  offsetMs += stepMs;
  for (let ms = 0; ms < 60_000; ms += 5_000) {
    await manual.advance(5_000);
    expect(await renew(lease)).toEqual([]);
  }
  expect(await readStatus(lease)).toBe('IN_PROGRESS');
  expect((await queue.health(ENDPOINT)).workers).toEqual({ idle: 0, running: 1 });
});

it('ends the lease of a dead worker when the clock was set back while the platform was down', async () => {
  const lease = await takeJob();
  await restart({ downMs: 0, stepMs: -HOUR_MS });
  await manual.advance(60_000);
  expect(await readStatus(lease)).toBe('IN_QUEUE');
});

describe.each([
  ['a second', 1_000],
  ['an hour', HOUR_MS],
  ['six days', 144 * HOUR_MS],
])('when the clock is set back by %s while the platform is down', (_name, stepMs) => {
  it('makes a job wait no longer than its delay', async () => {
    const id = await submit({ delay: 60_000 });
    await manual.advance(10_000);
    await restart({ downMs: 5_000, stepMs: -stepMs });
    // While the clock is ahead of the wall clock, 95 ms pass in 100 ms.
    await manual.advance(60_000 / 0.95);
    expect((await readJob(id))?.delayed).toBe(false);
  });

  it('removes a job when its time to live is over', async () => {
    const id = await submit({ ttl: 60_000 });
    await restart({ downMs: 0, stepMs: -stepMs });
    await manual.advance(60_000 / 0.95 + 1);
    expect(await readJob(id)).toBeUndefined();
  });

  it('writes no time that lies in the future', async () => {
    const first = await submit();
    await manual.advance(999);
    const last = await submit();
    await restart({ downMs: 0, stepMs: -stepMs });
    const [before, after] = [await readJob(last), await readJob(await submit())];
    expect(before?.submittedAt).toBeLessThanOrEqual(clock.now());
    expect(after?.position).toBeGreaterThan(before?.position ?? Number.NaN);
    expect(after?.submittedAt).toBeGreaterThanOrEqual(before?.submittedAt ?? Number.NaN);
    expect(first < last && last < (after?.id ?? '')).toBe(true);
  });
});

it('attempts a webhook again when the clock is set forward by two days', async () => {
  await queue.close();
  const tries: number[] = [];
  await startQueue({
    judge: () => undefined,
    send: async (delivery) => {
      tries.push(delivery.attempts);
      return { result: delivery.attempts < 3 ? 'unreachable' : '2xx', detail: 'refused' };
    },
    close: async () => {},
  });
  await queue.jobs.cancel({ endpointId: ENDPOINT, id: await submit({}, 'https://a.example/') });
  await manual.advance(0);
  offsetMs += 48 * HOUR_MS;
  await manual.advance(120_000);
  expect(tries).toEqual([0, 1, 2, 3]);
});

it('does not follow a clock after the restart that was more than seven days ahead', async () => {
  offsetMs += 365 * 24 * HOUR_MS;
  await submit();
  await restart({ downMs: 0, stepMs: -365 * 24 * HOUR_MS });
  expect(clock.now()).toBe(manual.now());
  await submit();
  await restart({ downMs: 0, stepMs: -HOUR_MS });
  expect(clock.now()).toBeGreaterThanOrEqual(manual.now());
});

it('keeps the order of jobs, and purges all, after a restart with a clock that was ahead', async () => {
  offsetMs += 365 * 24 * HOUR_MS;
  const earlier = await submit();
  await restart({ downMs: 0, stepMs: -365 * 24 * HOUR_MS });
  const later = await submit();
  const positions = [(await readJob(earlier))?.position, (await readJob(later))?.position];
  expect(positions).toEqual([...positions].sort());
  const purged = queue.jobs.purge(ENDPOINT);
  await submit();
  expect(await purged).toBe(2);
});

it('does not move time at a restart with a correct clock', async () => {
  await submit();
  await manual.advance(400);
  await restart({ downMs: 100, stepMs: 0 });
  expect(clock.now()).toBe(manual.now());
});
