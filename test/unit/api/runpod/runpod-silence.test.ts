// When a RunPod worker counts as silent: its pings say how long that takes, a lease is the least.
import { expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { type Platform, startPlatform, submitJob } from '../../../support/api/platform.ts';
import { ask, readRecord, take } from '../../../support/api/python-calls.ts';

const LEASE_MS = 15_000;
const RENEW_MS = 5_000;

const pingEvery = (platform: Platform, pingMs: number, name: string) =>
  ask(platform, `ping/pod-1?every=${pingMs}&job_id=${name}`);

/** A job that its worker runs without a poll, as a handler does that blocks the event loop. */
async function runJob(platform: Platform, pingMs: number) {
  const id = await submitJob(platform);
  const name = String((await take(platform))['id']);
  await pingEvery(platform, pingMs, name);
  return { id, name };
}

const INTERVALS = [1_000, 2_000, 4_000, 5_000, 10_000, 20_000];

it.each(INTERVALS)('never takes a worker as silent that pings every %i ms', async (pingMs) => {
  const clock = new ManualClock();
  const platform = await startPlatform({ clock });
  const { id, name } = await runJob(platform, pingMs);

  for (let spent = 0; spent < LEASE_MS + RENEW_MS; spent += pingMs) {
    await clock.advance(pingMs);
    await pingEvery(platform, pingMs, name);
  }

  expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
  expect(platform.logged()).not.toContain('worker stopped sending pings');
});

it.each(INTERVALS)(
  'leaves a worker that pinged every %i ms its job for three intervals and a lease',
  async (pingMs) => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const { id } = await runJob(platform, pingMs);
    const keptMs = Math.max(3 * pingMs, LEASE_MS);

    await clock.advance(keptMs - 100);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
    expect(platform.logged()).not.toContain('worker stopped sending pings');
    // The last renewal was made at any time within its rhythm.
    await clock.advance(RENEW_MS + 200);

    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_QUEUE' });
    expect(platform.logged()).toContain('worker stopped sending pings');
  },
);

it('leaves a worker its job after a report just before the end', async () => {
  const clock = new ManualClock();
  const platform = await startPlatform({ clock });
  const { id, name } = await runJob(platform, 2_000);

  await clock.advance(LEASE_MS - 100);
  await pingEvery(platform, 2_000, name);
  await clock.advance(LEASE_MS - 100);

  expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
  expect(platform.logged()).not.toContain('worker stopped sending pings');
});
