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

  it('shows the given trace to the handler', async () => {
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const handler = async (_job: Job, ctx: Context) => [ctx.traceparent, ctx.tracestate ?? null];
    expect(await runHandler(handler, {}, { traceparent })).toMatchObject({
      output: [traceparent, null],
    });
  });
});
