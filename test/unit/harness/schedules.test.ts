// Schedules in the harness: months of ticks in the time of a test.
import { expect, it } from 'vitest';
import type { Job } from '../../../src/index.ts';
import { createHarness } from '../../../src/testing.ts';

const DAY = 24 * 3_600_000;
const clock = 'manual';
const startAt = new Date('2026-03-01T00:00:00Z');

it('runs a job for each night of a month, through the change of clocks', async () => {
  const reports: string[] = [];
  const handler = async ({ input, schedule }: Job<{ report: string }>) => {
    reports.push(`${input.report} ${new Date(schedule?.tickAt ?? 0).toISOString().slice(0, 10)}`);
  };
  await using harness = await createHarness({ handler, clock, startAt });
  const nightly = await harness.schedule({
    ...{ cron: '30 2 * * *', timeZone: 'Europe/Berlin', input: { report: 'daily' } },
  });
  await harness.advance(31 * DAY);
  expect(new Set(reports).size).toBe(31);
  expect(reports.at(-1)).toBe('daily 2026-03-31');
  const { jobs, lastTicks, nextTick } = await nightly.state();
  expect([jobs, nextTick]).toEqual([31, '2026-04-01T00:30:00.000Z']);
  // At 2:00 on 29 March the clock goes to 3:00.
  expect(lastTicks.slice(0, 4).map(({ at }) => at.slice(5, 16))).toEqual([
    ...['03-31T00:30', '03-30T00:30', '03-29T01:00', '03-28T01:30'],
  ]);
});

it('catches up after the platform was away, and pauses and triggers', async () => {
  let runs = 0;
  const handler = async ({ schedule }: Job) => [++runs, schedule?.triggered];
  await using harness = await createHarness({ handler, clock, startAt });
  const hourly = await harness.schedule({ every: 3_600_000, catchUp: 'all' });
  await harness.stopPlatform();
  await harness.advance(5 * 3_600_000 + 1);
  await harness.startPlatform();
  await harness.advance(60_000);
  expect(runs).toBe(5);
  await hourly.pause();
  await harness.advance(DAY);
  expect(runs).toBe(5);
  const job = await hourly.trigger();
  await harness.advance(1_000);
  expect(await job.result()).toEqual([6, true]);
});
