// Flows in the harness: graphs of jobs in simulated time, with faults.
import { expect, it } from 'vitest';
import type { Job } from '../../../src/index.ts';
import { createHarness } from '../../../src/testing.ts';

const HOUR = 3_600_000;
const clock = 'manual';

interface Step {
  add: number;
  /** Output of a parent. */
  sum?: number;
}

function add({ input: { add: number, sum = 0 } }: Job<Step>): number {
  if (number < 0) throw new Error('a negative number');
  return sum + number;
}

it('runs the jobs after their parents, with their outputs, and waits for the end', async () => {
  await using harness = await createHarness({ handler: add });
  const flow = await harness.submitFlow([
    { name: 'last', input: { add: 3 }, after: [{ job: 'middle', as: 'sum' }] },
    { name: 'first', input: { add: 1 } },
    { name: 'middle', input: { add: 2 }, after: [{ job: 'first', as: 'sum' }] },
  ]);
  expect(await flow.end()).toMatchObject({ id: flow.id, status: 'COMPLETED', total: 3 });
  expect(await flow.job('last').result()).toBe(6);
  expect(() => flow.job('nobody')).toThrow('no job of the flow is named "nobody"');
});

it('lets hours pass for a delay, kills the worker meanwhile, and retries what has failed', async () => {
  let isBroken = true;
  const handler = ({ input }: Job<{ name: string }>) => {
    if (isBroken && input.name === 'second') throw new Error('broken');
    return input.name;
  };
  await using harness = await createHarness({ handler, clock, maxAttempts: 1 });
  const flow = await harness.submitFlow([
    { name: 'first', input: { name: 'first' }, policy: { delay: HOUR } },
    { name: 'second', input: { name: 'second' }, after: ['first'], policy: { delay: HOUR } },
    { name: 'third', input: { name: 'third' }, after: [{ job: 'second', onFailure: 'skip' }] },
  ]);
  const states = async () => (await flow.record()).jobs.map(({ state }) => state);
  await harness.advance(HOUR + 1_000);
  expect(await states()).toEqual(['COMPLETED', 'IN_QUEUE', 'WAITING']);
  await harness.killWorker();
  await harness.restartPlatform();
  await harness.advance(HOUR);
  expect(await states()).toEqual(['COMPLETED', 'FAILED', 'SKIPPED']);
  expect((await flow.end()).status).toBe('FAILED');
  isBroken = false;
  expect(await flow.retry(['second'])).toBe(2);
  await harness.advance(2 * HOUR);
  expect((await flow.end()).status).toBe('COMPLETED');
});

it('cancels some jobs or all, and refuses a graph with a cycle', async () => {
  await using harness = await createHarness({ handler: add, clock });
  const policy = { delay: HOUR };
  const flow = await harness.submitFlow([
    { name: 'a', input: { add: 1 }, policy },
    { name: 'b', input: { add: 1 }, policy },
    { name: 'c', input: { add: 1 }, after: ['b'] },
  ]);
  expect(await flow.cancel(['a'])).toBe(1);
  expect(await flow.cancel()).toBe(2);
  expect((await flow.end()).status).toBe('CANCELLED');
  const cycle = harness.submitFlow([
    { name: 'a', input: { add: 1 }, after: ['b'] },
    { name: 'b', input: { add: 1 }, after: ['a'] },
  ]);
  await expect(cycle).rejects.toThrow(/cycle|each other/);
});
