// Handlers that remember steps and wait for children and times, on the real queue and worker.
import type { Context, Job } from 'millrace';
import { createHarness } from 'millrace/testing';
import { describe, expect, it } from 'vitest';

type Runs = string[];

/** A handler that writes down what it does. */
function make<Input extends object>(
  act: (job: Job<Input>, ctx: Context, runs: Runs) => Promise<unknown>,
) {
  const runs: Runs = [];
  const handler = (job: Job<Input>, ctx: Context) => act(job, ctx, runs);
  return { runs, handler };
}

const double = async ({ input }: Job<{ n: number }>) => ({ n: input.n * 2 });

describe('a step', () => {
  it('runs once, and later attempts get its result', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      const first = await ctx.step('first', () => {
        runs.push(`first in ${ctx.attempt}`);
        return { at: new Date(0) };
      });
      if (ctx.attempt === 1) throw new Error('crash');
      return first;
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.result()).toEqual({ at: '1970-01-01T00:00:00.000Z' });
    expect(runs).toEqual(['first in 1']);
  });

  it('is remembered if the worker dies behind it', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      await ctx.step('load', () => runs.push('load'));
      if (ctx.attempt === 1) await new Promise(() => {});
      return 'done';
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(1_000);
    await harness.killWorker();
    await harness.advance(60_000);
    expect(await job.result()).toBe('done');
    expect(runs).toEqual(['load']);
  });

  it('goes on only when the platform has its result', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      await ctx.step('send', () => runs.push('send'));
      runs.push('behind');
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    await harness.advance(1_000);
    const release = harness.holdNextRequest('report');
    const job = await harness.submit({});
    await harness.advance(1_000);
    expect(runs).toEqual(['send']);
    release();
    await harness.advance(1_000);
    await job.result();
    expect(runs).toEqual(['send', 'behind']);
  });

  it('runs again if its function has thrown', async () => {
    const { handler, runs } = make((_, ctx, runs) =>
      ctx.step('flaky', () => {
        if (runs.push(`attempt ${ctx.attempt}`) === 1) throw new Error('flaky');
        return 'ok';
      }),
    );
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(10_000);
    expect(await job.result()).toBe('ok');
    expect(runs).toEqual(['attempt 1', 'attempt 2']);
  });
});

describe('a child', () => {
  it('runs without a slot of its parent, and its parent gets the output', async () => {
    const { handler, runs } = make<{ n: number }>(async ({ input }, ctx, runs) => {
      runs.push(`attempt ${ctx.attempt}`);
      if (input.n > 1) return input.n;
      // One slot: the child runs only if the parent does not hold it.
      return ctx.run('child', { input: { n: 7 } });
    });
    await using harness = await createHarness({ handler, slots: 1, clock: 'manual' });
    const job = await harness.submit({ n: 1 });
    await harness.advance(10_000);
    expect(await job.result()).toBe(7);
    expect(runs).toEqual(['attempt 1', 'attempt 1', 'attempt 2']);
    expect(await job.record()).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('waits together with others that start in the same moment, on other endpoints too', async () => {
    const { handler, runs } = make<{ numbers: number[] }>(async ({ input }, ctx, runs) => {
      runs.push(`attempt ${ctx.attempt}`);
      const doubled = await Promise.all(
        input.numbers.map((n, at) =>
          ctx.run<{ n: number }>(`part ${at}`, { endpoint: 'double', input: { n } }),
        ),
      );
      return doubled.map(({ n }) => n);
    });
    await using harness = await createHarness({
      ...{ handler, clock: 'manual', endpoints: { double } },
    });
    const job = await harness.submit({ numbers: [1, 2, 3] });
    await harness.advance(10_000);
    expect(await job.result()).toEqual([2, 4, 6]);
    expect(runs).toEqual(['attempt 1', 'attempt 2']);
  });
});

describe('a sleep', () => {
  it('ends the attempt, and the job goes on when its time has come', async () => {
    const { handler, runs } = make(async (_, ctx, runs) => {
      runs.push(`attempt ${ctx.attempt}`);
      await ctx.sleep('night', 3_600_000);
      return 'awake';
    });
    await using harness = await createHarness({ handler, clock: 'manual' });
    const job = await harness.submit({});
    await harness.advance(3_590_000);
    expect(await job.record()).toMatchObject({
      status: 'IN_QUEUE',
      waitReason: { code: 'sleeping' },
    });
    await harness.advance(20_000);
    expect(await job.result()).toBe('awake');
    expect(runs).toEqual(['attempt 1', 'attempt 2']);
  });
});
