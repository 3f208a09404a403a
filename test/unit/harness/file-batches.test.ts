// Batches of files in the harness: each line has one result, in simulated time and with faults.
import { expect, it } from 'vitest';
import type { Job } from '../../../src/index.ts';
import { createHarness } from '../../../src/testing.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const clock = 'manual';

function double({ input: { n } }: Job<{ n: number }>): number {
  if (n < 0) throw new Error('a negative number');
  return 2 * n;
}

const linesOf = (...numbers: number[]) => numbers.map((n) => ({ id: `line ${n}`, input: { n } }));

it('runs a job for each line, and has one result for each', async () => {
  await using harness = await createHarness({ handler: double, maxAttempts: 1 });
  const batch = await harness.submitBatch(linesOf(1, -2, 3));
  expect(await batch.end()).toMatchObject({
    state: 'completed',
    total: 3,
    completed: 2,
    failed: 1,
  });
  const results = await batch.results();
  expect(results).toHaveLength(3);
  expect(results).toEqual(
    expect.arrayContaining([
      { id: 'line 1', job: expect.objectContaining({ status: 'COMPLETED', output: 2 }) },
      { id: 'line 3', job: expect.objectContaining({ status: 'COMPLETED', output: 6 }) },
      { id: 'line -2', job: expect.objectContaining({ status: 'FAILED' }) },
    ]),
  );
});

it('retries lines over hours, a killed worker and a restarted platform', async () => {
  let isBroken = true;
  const handler = ({ input: { n } }: Job<{ n: number }>) => {
    if (isBroken) throw new Error('broken');
    return n;
  };
  const retry = { backoff: 'fixed', delayMs: HOUR, jitter: 0 } as const;
  await using harness = await createHarness({ handler, clock, maxAttempts: 3, retry });
  const batch = await harness.submitBatch(linesOf(1, 2));
  await harness.advance(HOUR / 2);
  await harness.killWorker();
  await harness.restartPlatform();
  expect(await batch.record()).toMatchObject({ state: 'running', live: 2 });
  isBroken = false;
  await harness.advance(2 * HOUR);
  expect(await batch.record()).toMatchObject({ state: 'completed', completed: 2 });
});

it('gives up the lines that have not ended when its window ends, or when it is cancelled', async () => {
  await using harness = await createHarness({ handler: double, clock });
  await harness.pause();
  const expiring = await harness.submitBatch(linesOf(1, 2), { window: MINUTE });
  const cancelled = await harness.submitBatch(linesOf(3));
  await cancelled.cancel();
  await harness.advance(MINUTE + 1_000);
  expect(await cancelled.results()).toMatchObject([{ error: { code: 'batch_cancelled' } }]);
  const expired = await expiring.results();
  expect(expired.map((line) => 'error' in line && line.error.code)).toEqual([
    'batch_expired',
    'batch_expired',
  ]);
});

it('refuses two lines with one ID', async () => {
  await using harness = await createHarness({ handler: double, clock });
  await expect(harness.submitBatch(linesOf(1, 1))).rejects.toThrow(/names another line/);
});
