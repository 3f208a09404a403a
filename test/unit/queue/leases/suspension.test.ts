// Attempts that stand still in the middle of their work: their limits do too, exactly for that time.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type JobEvent, next } from '../../../../src/queue/lifecycle/lifecycle.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import type { WorkerParking } from '../../../../src/wire/link/worker-link.ts';
import { ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';
import { makeJob, makeLease, momentAt, NOW, T0 } from '../../../support/store/job-states.ts';

const POD = 'pod_1';
const RUN_MS = 60_000;
const AWAY_MS = 300_000;

let platform: Platform;
let worker: Hand;
let id: string;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT, POD), { id: 'w', incarnation: 1 });
  await worker.hello();
  await say('ready', 1);
  id = await platform.submit({ executionTimeout: RUN_MS, ttl: 2 * RUN_MS });
});

afterEach(() => platform.close());

async function say(
  state: WorkerParking['state'],
  change: number,
  more: Partial<WorkerParking> = {},
): Promise<void> {
  const about = { way: 'driver', vramBytes: 1, hostLimitBytes: 10, suspendable: true } as const;
  await worker.renew([], { parking: { ...about, state, change, ...more } });
}

const leave = () => say('parked', 2, { suspended: true });
const back = () => say('ready', 4);

/** Renews the lease all the time. */
async function pass(ms: number, lease: Parameters<Hand['renew']>[0][number]): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5_000) {
    await platform.clock.advance(5_000);
    await worker.renew([lease]);
  }
}

const readLimits = async () => {
  const { deadlineAt, expiresAt } = await platform.job(id);
  return { deadlineAt, expiresAt };
};

const later = ({ deadlineAt, expiresAt }: Awaited<ReturnType<typeof readLimits>>, ms: number) => ({
  deadlineAt: (deadlineAt ?? 0) + ms,
  expiresAt: expiresAt + ms,
});

describe('a suspended attempt', () => {
  it('runs out of time only after its return, and by what was left', async () => {
    const lease = await worker.takeOne();
    await platform.clock.advance(1_000);
    await worker.renew([lease]);
    const before = await readLimits();
    await leave();
    await pass(AWAY_MS, lease);
    expect(await platform.record(id)).toMatchObject({
      ...{ status: 'IN_PROGRESS', attempt: 1, executionTime: 1_000 },
      suspendedSince: expect.any(Number),
    });
    await back();
    expect(await readLimits()).toEqual(later(before, AWAY_MS));
    expect(await platform.record(id)).not.toHaveProperty('suspendedSince');
    // A worker that says nothing of its end is believed until the limit, as always.
    await pass(RUN_MS - 5_000, lease);
    expect((await platform.job(id)).status).toBe('IN_PROGRESS');
    await worker.finish(
      lease,
      { kind: 'completed', executionMs: 1, output: 'value' },
      { body: '1' },
    );
    expect((await platform.job(id)).status).toBe('COMPLETED');
  });

  it('has its limits moved once, whatever is said twice, late or over a restart', async () => {
    const lease = await worker.takeOne();
    await worker.renew([lease]);
    const before = await readLimits();
    await leave();
    await leave();
    await platform.clock.advance(5_000);
    await platform.restart(7_000);
    await worker.renew([lease]);
    await leave();
    // This one has been overtaken.
    await say('parking', 1, { suspended: true });
    await platform.clock.advance(8_000);
    await say('waking', 3, { suspended: true });
    await back();
    await back();
    const { deadlineAt, expiresAt } = later(before, 20_000);
    const after = await readLimits();
    expect(after.expiresAt).toBe(expiresAt);
    expect(after.deadlineAt).toBeGreaterThanOrEqual(deadlineAt);
    expect(await platform.job(id)).toMatchObject({ suspensions: 1, suspendedMs: 20_000 });
  });

  it('goes on if its return was not heard of before a restart', async () => {
    const lease = await worker.takeOne();
    await leave();
    await platform.clock.advance(1_000);
    await platform.restart(1_000);
    await worker.renew([lease]);
    await back();
    expect(await platform.job(id)).toMatchObject({ suspendedAt: null, suspendedMs: 2_000 });
  });

  it('has limits again after a week, whatever its worker says', () => {
    const WEEK_MS = 7 * 86_400_000;
    const limits = { deadlineAt: NOW + 5, expiresAt: NOW + 9 };
    const lease = makeLease({ until: NOW + WEEK_MS });
    const still = makeJob({
      ...{ status: 'IN_PROGRESS', attempt: 1, startedAt: T0, lease, ...limits },
      ...{ suspendedAt: NOW, suspendedMs: 1_000, suspensions: 1 },
    });
    const at = (job: StoredJob, event: JobEvent, now: number) => {
      const decision = next(job, event, momentAt(now));
      if ('refused' in decision) throw new Error(decision.refused);
      return decision.job;
    };
    const overAt = NOW + WEEK_MS - 1_000;
    expect(at(still, { type: 'set_ttl', ttlMs: 9 }, NOW).dueAt).toBe(overAt);
    expect(at(still, { type: 'clock' }, overAt - 1).suspendedAt).toBe(NOW);
    const over = at(still, { type: 'clock' }, overAt);
    expect(over).toMatchObject({ suspendedAt: null, suspendedMs: WEEK_MS });
    expect(over.deadlineAt).toBe(overAt + 5);
    expect(at(over, { type: 'suspended' }, overAt + 1).suspendedAt).toBeNull();
  });

  it('has a worker that counts as parked, and not as running', async () => {
    await worker.takeOne();
    await leave();
    const { workers } = await platform.queue.health(ENDPOINT);
    expect(workers).toEqual({ idle: 0, running: 0, parked: 1 });
  });

  it('stays suspended when a job that waits for it is submitted', async () => {
    await worker.takeOne();
    await leave();
    await platform.clock.advance(1_000);
    await platform.queue.submissions.submit({
      ...{ endpointId: ENDPOINT, mode: 'run', idempotency: undefined, policy: {} },
      ...{ input: Buffer.from('{}'), after: [{ id }] },
    });
    await leave();
    expect(await platform.job(id)).toMatchObject({ suspensions: 1, suspendedMs: 0 });
  });

  it('returns to the queue without a failure if its worker is silent', async () => {
    const lease = await worker.takeOne();
    await worker.renew([lease]);
    await leave();
    // Longer than it could run, or live.
    await pass(AWAY_MS, lease);
    await platform.clock.advance(60_000);
    expect(await platform.job(id)).toMatchObject({
      ...{ status: 'IN_QUEUE', failures: 0, releases: 1, suspendedAt: null },
    });
  });

  it('returns to the queue without a failure if its process is replaced', async () => {
    const lease = await worker.takeOne();
    await worker.renew([lease]);
    await leave();
    const next = new Hand(() => platform.queue.link(ENDPOINT, POD), { id: 'w', incarnation: 2 });
    await next.hello();
    expect(await platform.job(id)).toMatchObject({
      ...{ status: 'IN_QUEUE', failures: 0, solo: false, suspendedAt: null },
    });
    expect((await next.takeOne()).attempt).toBe(2);
  });

  it('may end while it is suspended, or be cancelled', async () => {
    const lease = await worker.takeOne();
    await leave();
    await platform.clock.advance(1_000);
    await worker.finish(
      lease,
      { kind: 'completed', executionMs: 1, output: 'value' },
      { body: '1' },
    );
    expect(await platform.job(id)).toMatchObject({ status: 'COMPLETED', suspendedAt: null });
    const { queue } = platform;
    await back();
    const other = await platform.submit();
    await worker.takeOne();
    await say('parked', 5, { suspended: true });
    await queue.jobs.cancel({ endpointId: ENDPOINT, id: other });
    await say('parked', 5, { suspended: true });
    expect(await platform.job(other)).toMatchObject({ status: 'CANCELLED', suspendedAt: null });
  });
});

describe('a worker that could not be suspended', () => {
  const wish = async () => (await platform.queue.workerLoads.load(ENDPOINT)).workers[0]?.parking;

  it('is asked no more, and not again for a minute', async () => {
    expect(await wish()).toMatchObject({ canSuspend: true });
    platform.queue.workerLoads.park(ENDPOINT, POD, 'suspended');
    await say('ready', 3, { refusals: 1 });
    expect(await wish()).toMatchObject({ wish: 'ready' });
    expect(await wish()).not.toHaveProperty('canSuspend');
    for (let passed = 0; passed < 60_000; passed += 5_000) {
      await platform.clock.advance(5_000);
      await say('ready', 3, { refusals: 1 });
    }
    expect(await wish()).toMatchObject({ canSuspend: true });
  });

  it('is not asked at all if it cannot be', async () => {
    await say('ready', 3, { suspendable: false });
    platform.queue.workerLoads.park(ENDPOINT, POD, 'suspended');
    expect(await wish()).not.toHaveProperty('wish');
  });
});
