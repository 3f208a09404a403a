// A handler run alone, without a queue: which time limit holds, and that it may be tried again.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { type Context, defineBatchHandler, type Job } from '../../../src/index.ts';
import { runHandler } from '../../../src/testing.ts';

const waitForSignal = async (_job: Job, { signal }: Context) => {
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
  signal.throwIfAborted();
};

describe('runHandler', () => {
  it.each([
    ['of the handler’s config', { config: { timeoutMs: 1_000 } }, {}, 1_000],
    ['that the test sets', { config: { timeoutMs: 1_000 } }, { timeoutMs: 500 }, 500],
    ['of the default', {}, {}, 600_000],
  ])('times out after the time %s', async (_whose, module, options, timeoutMs) => {
    const clock = new ManualClock();
    const handler = { ...module, run: waitForSignal };
    const run = runHandler(handler, {}, { ...options, clock });
    await clock.advance(timeoutMs - 1);
    await clock.advance(1);
    const { status, error } = await run;
    expect(status).toBe('TIMED_OUT');
    expect(error?.message).toContain(`${timeoutMs} ms`);
  });

  it('runs a job of a batch handler alone, without waiting for others', async () => {
    const batch = { maxSize: 8, maxWaitMs: 10_000 };
    const run = (jobs: readonly unknown[]) => jobs.map(() => jobs.length);
    const handler = defineBatchHandler({ batch, run });
    const done = await runHandler(handler, {}, { clock: new ManualClock() });
    expect(done).toMatchObject({ status: 'COMPLETED', output: 1 });
  });

  it('retries as often as requested, and returns the last attempt', async () => {
    const handler = async (_job: Job, { attempt }: Context) => {
      if (attempt < 3) throw new Error('not yet');
      return attempt;
    };
    expect(await runHandler(handler, {}, { attempts: 2 })).toMatchObject({
      status: 'FAILED',
      attempts: 2,
    });
    expect(await runHandler(handler, {}, { attempts: 5 })).toMatchObject({
      output: 3,
      attempts: 3,
    });
  });

  it('shows the given S3 configuration to the handler', async () => {
    const s3Config = { bucketName: 'b', objectPath: 'made' };
    const handler = async (job: Job) => job.s3Config ?? null;
    expect(await runHandler(handler, {}, { s3Config })).toMatchObject({ output: s3Config });
    expect(await runHandler(handler, {})).toMatchObject({ output: null });
  });

  it('runs the handler again after a sleep, with what its steps returned', async () => {
    const calls: string[] = [];
    const handler = async (_job: Job, ctx: Context) => {
      calls.push(`attempt ${ctx.attempt}`);
      const made = await ctx.step('made', () => {
        calls.push('step');
        return { at: new Date(0) };
      });
      await Promise.all([ctx.sleep('short', 1_000), ctx.sleep('long', 86_400_000)]);
      return made;
    };
    expect(await runHandler(handler, {})).toMatchObject({
      status: 'COMPLETED',
      output: { at: '1970-01-01T00:00:00.000Z' },
      attempts: 2,
    });
    expect(calls).toEqual(['attempt 1', 'step', 'attempt 2']);
  });

  it('sleeps on the given clock, on which only the time of attempts counts for the timeout', async () => {
    const clock = new ManualClock();
    const startedAt = clock.now();
    const handler = async (_job: Job, ctx: Context) => {
      await ctx.sleep('one', 60_000);
      await ctx.sleep('two', new Date(startedAt + 90_000));
      return clock.now() - startedAt;
    };
    const run = runHandler(handler, {}, { clock, timeoutMs: 1_000 });
    await clock.advance(89_999);
    await clock.advance(1);
    expect(await run).toMatchObject({ status: 'COMPLETED', output: 90_000, attempts: 3 });
  });

  it('remembers steps in the attempt after a failure, which counts no sleep as an attempt', async () => {
    let steps = 0;
    const handler = async (_job: Job, ctx: Context) => {
      const made = await ctx.step('made', () => ++steps);
      await ctx.sleep('pause', 10);
      if (ctx.attempt < 3) throw new Error('not yet');
      return made;
    };
    const run = await runHandler(handler, {}, { attempts: 2 });
    expect(run).toMatchObject({ status: 'COMPLETED', output: 1, attempts: 3 });
    expect(steps).toBe(1);
  });

  it('fails a handler that is not repeatable', async () => {
    let runs = 0;
    const handler = async (_job: Job, ctx: Context) => {
      runs += 1;
      if (runs === 1) await ctx.sleep('name', 10);
      else await ctx.step('name', () => 1);
    };
    expect(await runHandler(handler, {}, { attempts: 3 })).toMatchObject({
      status: 'FAILED',
      error: { message: expect.stringMatching('"name" was the name of a sleep') },
      attempts: 2,
    });
  });

  it('cancels a handler that sleeps', async () => {
    const clock = new ManualClock();
    const controller = new AbortController();
    const handler = (_job: Job, ctx: Context) => ctx.sleep('pause', 60_000);
    const run = runHandler(handler, {}, { clock, signal: controller.signal });
    await clock.advance(1_000);
    controller.abort();
    expect(await run).toMatchObject({ status: 'CANCELLED', attempts: 1 });
  });

  it.each([
    [
      'starts a child',
      (ctx: Context) => ctx.run('scene', { input: {} }),
      'ctx.run("scene"): runHandler starts no child jobs; use createHarness with `endpoints`',
    ],
    [
      'sleeps for too long',
      (ctx: Context) => ctx.sleep('long', new Date('2100-01-01T00:00:00Z')),
      'ctx.sleep: 2100-01-01T00:00:00.000Z is in more than 30 days',
    ],
  ])('fails a handler that %s', async (_what, act, message) => {
    const handler = (_job: Job, ctx: Context) => act(ctx);
    expect(await runHandler(handler, {}, { attempts: 3 })).toMatchObject({
      status: 'FAILED',
      error: { code: 'wait_failed', message },
      attempts: 1,
    });
  });

  it('shows the given trace to the handler', async () => {
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const handler = async (_job: Job, ctx: Context) => [ctx.traceparent, ctx.tracestate ?? null];
    expect(await runHandler(handler, {}, { traceparent })).toMatchObject({
      output: [traceparent, null],
    });
  });
});
