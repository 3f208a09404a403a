// What is recorded of an endpoint, with a clock that the test moves.
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { MINUTE_MS } from '../../../../src/queue/activity/minute.ts';
import { SqlReader } from '../../../../src/store/sql/sql-reader.ts';
import type { Outcome } from '../../../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';
import type { ScalingFacts } from '../../../../src/wire/resources/scaling.ts';
import { completed, ENDPOINT, failed, Hand, Platform } from '../../../support/queue-platform.ts';

const HOUR_MS = 3_600_000;

const COSTLY: ScalingFacts = {
  ...{ workersMax: 1, workers: 1, costPerHour: 1, cause: 'minimum', reason: '1 is the minimum' },
  ...{ since: 0, starting: null, unversioned: null },
  crashes: { streak: 0, notBefore: 0, reason: null, isHandler: false },
};

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform({
    isRecording: true,
    endpoint: { maxAttempts: 1 },
    settings: { leaseMs: 120_000 },
  });
  // Minutes begin with whole minutes of the clock.
  await platform.clock.advance(MINUTE_MS - (platform.clock.now() % MINUTE_MS));
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
});

afterEach(() => platform.close());

/** In steps, as time passes for the recorder; the worker stays connected. */
async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 10_000)
    await platform.clock.advance(Math.min(left, 10_000));
}

async function runJob(outcome: Outcome): Promise<void> {
  await platform.submit();
  const lease = await worker.takeOne();
  await platform.clock.advance(1_000);
  await worker.finish(lease, outcome);
}

function series(hours = 1) {
  const to = platform.clock.now();
  const from = Math.floor((to - hours * HOUR_MS) / MINUTE_MS) * MINUTE_MS;
  return platform.queue.activity.series(ENDPOINT, { from, to, stepMs: MINUTE_MS });
}

async function sum(name: 'submitted' | 'completed' | 'failed', hours = 1): Promise<number> {
  return (await series(hours)).reduce((total, point) => total + point[name], 0);
}

describe('a time series', () => {
  it('has a point for each minute, with what ended in it', async () => {
    await runJob(completed);
    await runJob(failed);
    await pass(MINUTE_MS);
    await platform.submit();
    await pass(20_000);
    const [first, second] = (await series()).slice(-2);
    expect(first).toMatchObject({ submitted: 2, completed: 1, failed: 1, queued: 0 });
    expect(first?.executionMs?.p50).toBeGreaterThan(0);
    expect(second).toMatchObject({
      submitted: 1,
      completed: 0,
      failed: 0,
      queued: 1,
      waitMs: null,
    });
    expect(second?.oldestWaitMs).toBeGreaterThanOrEqual(10_000);
  });

  it('is the same after a restart, and counts what happened at its edge once', async () => {
    for (let count = 0; count < 3; count += 1) await runJob(completed);
    await pass(MINUTE_MS);
    await runJob(completed);
    await platform.restart(5_000);
    worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
    await runJob(completed);
    await pass(2 * MINUTE_MS);
    expect(await sum('completed')).toBe(5);
    expect(await sum('submitted')).toBe(5);
  });

  it('counts a job that ends at the edge of a minute before the platform stops', async () => {
    await runJob(completed);
    await pass(54_000);
    await runJob(completed);
    await pass(5_000);
    await platform.restart(1_000);
    await pass(2 * MINUTE_MS);
    expect(await sum('completed')).toBe(2);
  });

  it('gets the last minute of an hour although its first write fails', async () => {
    await platform.clock.advance(HOUR_MS - MINUTE_MS - (platform.clock.now() % HOUR_MS));
    await worker.hello();
    await runJob(completed);
    const write = vi.spyOn(platform.store, 'write').mockRejectedValue(new Error('disk error'));
    await pass(MINUTE_MS);
    expect(await sum('completed')).toBe(1);
    await pass(MINUTE_MS);
    expect(await sum('completed')).toBe(1);
    write.mockRestore();
    await pass(3 * MINUTE_MS);
    await platform.restart(1_000);
    await pass(MINUTE_MS);
    expect(await sum('completed')).toBe(1);
  });

  it('keeps the minutes of seven days and no others', async () => {
    await runJob(completed);
    await pass(2 * MINUTE_MS);
    await platform.restart(169 * HOUR_MS);
    worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
    await runJob(completed);
    await pass(2 * MINUTE_MS);
    expect(await sum('completed', 170)).toBe(1);
    const rows = await platform.store.read((tx) =>
      tx.resources({ kind: 'series', parent: ENDPOINT, limit: 100 }),
    );
    expect(rows).toHaveLength(1);
  });

  it('has every minute in which jobs only wait, with few writes', async () => {
    await worker.bye('drained');
    await platform.submit();
    await pass(3 * MINUTE_MS);
    const readRows = () =>
      platform.store.read((tx) => tx.resources({ kind: 'series', parent: ENDPOINT, limit: 9 }));
    const rows = await readRows();
    const find = vi.spyOn(platform.queue.workerLoads, 'load');
    await pass(6 * MINUTE_MS);
    expect(await readRows()).toEqual(rows);
    expect(find.mock.calls.length).toBeLessThan(8);
    await pass(7 * MINUTE_MS);
    expect((await series()).slice(-15).map(({ queued }) => queued)).toEqual(Array(15).fill(1));
    await platform.restart(1_000);
    await pass(MINUTE_MS);
    expect((await series()).filter(({ queued }) => queued === 1).length).toBeGreaterThan(11);
  });

  it('has the wait of the job that is the oldest now, and asks for it only if the queue has changed', async () => {
    await worker.bye('drained');
    await platform.submit({ ttl: 30_000 });
    await pass(10_000);
    const find = vi.spyOn(platform.queue.workerLoads, 'load');
    const readEndpoints = vi.spyOn(SqlReader.prototype, 'endpoints');
    onTestFinished(() => readEndpoints.mockRestore());
    const oldestWaitMs = async () => (await series()).at(-1)?.oldestWaitMs;
    await pass(10_000);
    expect(find).not.toHaveBeenCalled();
    await platform.clock.advance(9_000);
    const submitted = platform.clock.now();
    await platform.submit();
    await platform.clock.advance(1_000);
    // The first job is removed, and the counters are as before.
    await pass(10_000);
    expect(await oldestWaitMs()).toBeLessThanOrEqual(platform.clock.now() - submitted);
    const calls = find.mock.calls.length;
    await pass(10 * MINUTE_MS);
    expect(find).toHaveBeenCalledTimes(calls);
    expect(readEndpoints).not.toHaveBeenCalled();
  });

  it('writes nothing while nothing happens', async () => {
    await worker.bye('drained');
    await pass(HOUR_MS);
    const count = async () =>
      (await platform.store.read((tx) => tx.resources({ kind: 'series', limit: 100 }))).length;
    const before = await count();
    await pass(3 * HOUR_MS);
    expect(await count()).toBe(before);
  });

  it('has nothing of endpoints of other shards, which the store of shard 0 names too', async () => {
    const onShard0 = new Platform({
      isRecording: true,
      owns: (id) => id !== 'elsewhere',
      // Each endpoint has a worker that costs, so that no minute is quiet.
      findScaling: () => COSTLY,
    });
    onTestFinished(() => onShard0.close());
    const settings = endpointSettings.parse({});
    const endpoint = { id: 'elsewhere', settings, createdAt: onShard0.clock.now() };
    await onShard0.store.write((tx) => tx.putEndpoint(endpoint));
    await onShard0.start();
    for (let step = 0; step < 20; step += 1) await onShard0.clock.advance(10_000);
    const rows = await onShard0.store.read((tx) => tx.resources({ kind: 'series', limit: 100 }));
    expect(rows.map(({ parent }) => parent)).toEqual([ENDPOINT]);
  });

  it('never asks the store for a negative number of rows, which a time to come would give', async () => {
    await platform.queue.close();
    const silent = new Platform({ store: platform.store, isRecording: false });
    onTestFinished(() => silent.queue.close());
    const rows = vi.spyOn(SqlReader.prototype, 'resources');
    onTestFinished(() => rows.mockRestore());
    const from = silent.clock.now() + 24 * HOUR_MS;
    const range = { from, to: from + HOUR_MS, stepMs: HOUR_MS };
    expect(await silent.queue.activity.series(ENDPOINT, range)).toHaveLength(1);
    expect(rows.mock.calls.map(([{ limit }]) => limit)).toEqual([1]);
  });

  it('keeps the minutes of the hour although a node whose clock was ahead has written the next one', async () => {
    await runJob(completed);
    await pass(2 * MINUTE_MS);
    await platform.queue.close();
    await platform.store.write((tx) => {
      const [row] = tx.resources({ kind: 'series', parent: ENDPOINT, limit: 1 });
      if (!row) throw new Error('no hour is written');
      const position = row.position + HOUR_MS;
      const { totals } = JSON.parse(row.body);
      const body = JSON.stringify({ minutes: [], totals });
      tx.putResource({ ...row, id: `${ENDPOINT}/${position}`, position, body });
    });
    await platform.restart();
    worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
    await runJob(completed);
    await pass(2 * MINUTE_MS);
    await platform.restart();
    expect(await sum('completed')).toBe(2);
  });

  it('rolls minutes up to longer steps', async () => {
    await runJob(completed);
    await pass(MINUTE_MS);
    await runJob(completed);
    await pass(MINUTE_MS);
    const to = platform.clock.now();
    const range = { from: to - HOUR_MS, to, stepMs: HOUR_MS };
    const points = await platform.queue.activity.series(ENDPOINT, range);
    expect(points).toHaveLength(1);
    expect(points[0]).toMatchObject({ completed: 2, workers: { idle: 1 } });
  });
});

describe('the activity of now', () => {
  it('says what waits and why, and what failed in the last hour', async () => {
    await runJob(failed);
    await pass(20_000);
    await worker.bye('drained');
    await platform.submit();
    await platform.clock.advance(5_000);
    const now = await platform.queue.activity.now(ENDPOINT);
    expect(now).toMatchObject({ waiting: 1, running: 0, failedLastHour: 1, oldestWaitMs: 5_000 });
    expect(now.waitReason?.code).toBeTypeOf('string');
    await pass(HOUR_MS + 2 * MINUTE_MS);
    expect(await platform.queue.activity.now(ENDPOINT)).toMatchObject({ failedLastHour: 0 });
  });

  it('counts what failed before a restart, and before the hour began', async () => {
    await pass(HOUR_MS - (platform.clock.now() % HOUR_MS) - 2 * MINUTE_MS);
    // The platform has forgotten it meanwhile.
    await worker.hello();
    await runJob(failed);
    await pass(4 * MINUTE_MS);
    await runJob(failed);
    await pass(2 * MINUTE_MS);
    const count = async () => (await platform.queue.activity.now(ENDPOINT)).failedLastHour;
    expect(await count()).toBe(2);
    await platform.restart(5_000);
    await pass(10_000);
    expect(await count()).toBe(2);
    await pass(57 * MINUTE_MS);
    expect(await count()).toBe(1);
    await pass(6 * MINUTE_MS);
    expect(await count()).toBe(0);
  });

  it('counts inputs that the schema refused neither as failures nor as jobs in the failure rate', async () => {
    const refused: Outcome = {
      ...{ kind: 'failed', executionMs: 1, retry: 'never' },
      error: { code: 'input_invalid', message: 'input.text: expected a string' },
    };
    const now = () => platform.queue.activity.now(ENDPOINT);
    expect(await now()).toMatchObject({ failureRate: null });
    for (let count = 0; count < 3; count += 1) await runJob(refused);
    await pass(20_000);
    expect(await now()).toMatchObject({ failedLastHour: 3, failureRate: null });
    await runJob(failed);
    for (let count = 0; count < 3; count += 1) await runJob(completed);
    await pass(2 * MINUTE_MS);
    expect(await now()).toMatchObject({ failedLastHour: 4, failureRate: 0.25 });
    await platform.restart(5_000);
    await pass(10_000);
    expect(await now()).toMatchObject({ failedLastHour: 4, failureRate: 0.25 });
  });

  it('reads no row of the series, because an overview asks for many endpoints at once', async () => {
    await runJob(failed);
    await pass(2 * MINUTE_MS);
    const rows = vi.spyOn(SqlReader.prototype, 'resources');
    onTestFinished(() => rows.mockRestore());
    await platform.queue.activity.now(ENDPOINT);
    expect(rows).not.toHaveBeenCalled();
  });

  it('is not found without the endpoint', async () => {
    await expect(platform.queue.activity.now('none')).rejects.toMatchObject({ code: 'not_found' });
  });
});
