import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Context, Job } from '../../../src/index.ts';
import { defineHandler, NonRetryableError } from '../../../src/index.ts';
import { createHarness, type Harness, JobFailedError } from '../../../src/testing.ts';
import type { Chunk } from '../../../src/wire/chunk/chunk.ts';
import { until } from '../../support/until.ts';

const open: Harness[] = [];

async function start(options: Parameters<typeof createHarness>[0]): Promise<Harness> {
  const harness = await createHarness(options);
  open.push(harness);
  return harness;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((harness) => harness.close()));
});

/** A handler that says when it runs and ends when it is told to. */
function createGate() {
  let runs = 0;
  let release: () => void = () => {};
  let released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const signals: AbortSignal[] = [];
  return {
    signals,
    get runs() {
      return runs;
    },
    release: () => release(),
    run: async (_job: Job, ctx: Context) => {
      runs++;
      signals.push(ctx.signal);
      await Promise.race([
        released,
        new Promise((resolve) => ctx.signal.addEventListener('abort', resolve)),
      ]);
      if (runs === 1 && ctx.signal.aborted) released = Promise.resolve();
      return { attempt: ctx.attempt };
    },
  };
}

describe('the harness', () => {
  it('runs a function and returns its output', async () => {
    const harness = await start({ handler: async (job: Job) => ({ got: job.input }) });
    expect(await harness.run({ name: 'Ada' })).toEqual({ got: { name: 'Ada' } });
  });

  it('streams the values of a generator, large outputs in one piece', async () => {
    const large = 'é'.repeat(1_500_000);
    const handler = async function* (_job: Job, ctx: Context) {
      yield ctx.chunk('small', { tokens: 1 });
      yield large;
    };
    const harness = await start({ handler });
    const chunks: Chunk[] = [];
    for await (const chunk of harness.stream({})) chunks.push(chunk);
    expect(chunks).toEqual([
      { output: 'small', metrics: { tokens: 1 } },
      { output: large, metrics: {} },
    ]);
  });

  it('rejects with the record when a job fails', async () => {
    const handler = defineHandler({
      input: z.object({ n: z.number() }),
      run: async () => {
        throw new NonRetryableError('never');
      },
    });
    const harness = await start({ handler });
    const error = await harness.run({ n: 1 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(JobFailedError);
    expect(error).toMatchObject({ record: { status: 'FAILED', error: { code: 'handler_error' } } });
    await expect(harness.run({ n: 'x' })).rejects.toThrow(/input\.n/);
  });

  it('waits between retries only as long as the test specifies', async () => {
    let calls = 0;
    const handler = async () => {
      if (++calls < 3) throw new Error(`failure ${calls}`);
      return calls;
    };
    const harness = await start({ handler, clock: 'manual' });
    const job = await harness.submit({});
    const end = job.end();
    await harness.advance(0);
    expect(calls).toBe(1);
    await harness.advance(1_200);
    expect(calls).toBe(2);
    await harness.advance(2_400);
    expect(await end).toMatchObject({ status: 'COMPLETED', output: 3, attempt: 3 });
  });

  it('cancels a running job', async () => {
    const gate = createGate();
    const harness = await start({ handler: gate.run });
    const job = await harness.submit({});
    await until(() => gate.runs === 1);
    await job.cancel();
    await until(() => gate.signals[0]?.aborted === true);
    expect(await job.record()).toMatchObject({ status: 'CANCELLED' });
  });

  it('times out a job by its clock', async () => {
    const gate = createGate();
    const harness = await start({ handler: gate.run, clock: 'manual' });
    const job = await harness.submit({}, { executionTimeout: 60_000 });
    await harness.advance(0);
    await harness.advance(60_000);
    expect(await job.end()).toMatchObject({
      status: 'TIMED_OUT',
      error: { code: 'execution_timeout' },
    });
  });

  it('keeps a running job across a restart of the platform', async () => {
    const gate = createGate();
    const harness = await start({ handler: gate.run });
    const job = await harness.submit({});
    await until(() => gate.runs === 1);
    await harness.restartPlatform();
    gate.release();
    expect(await job.end()).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    expect(gate.runs).toBe(1);
  });

  it('gives the job of a killed worker to its successor', async () => {
    const gate = createGate();
    const harness = await start({ handler: gate.run });
    const job = await harness.submit({});
    await until(() => gate.runs === 1);
    await harness.killWorker();
    expect(await job.end()).toMatchObject({ status: 'COMPLETED', output: { attempt: 2 } });
  });

  it('aborts an attempt whose lease was lost, and the newer one counts', async () => {
    const gate = createGate();
    const harness = await start({ handler: gate.run });
    const job = await harness.submit({});
    await until(() => gate.runs === 1);
    await harness.loseLease(job.id);
    await until(() => gate.signals[0]?.aborted === true);
    gate.release();
    const record = await job.end();
    expect(record.status).toBe('COMPLETED');
    expect(record.attempt).toBeGreaterThan(1);
  });
});

describe('limits in the harness', () => {
  it('holds back the jobs of a group that a handler pauses, and no others', async () => {
    const ran: string[] = [];
    const handler = async ({ input }: Job<{ name: string }>, ctx: Context) => {
      ran.push(input.name);
      if (input.name === 'first') ctx.pauseGroup(new Date(ctx.deadline - 540_000));
    };
    const harness = await start({ handler, slots: 1, clock: 'manual' });
    await harness.run({ name: 'first' }, { group: 'a', executionTimeout: 600_000 });
    const second = await harness.submit({ name: 'second' }, { group: 'a' });
    await harness.run({ name: 'other' }, { group: 'b' });
    expect((await second.record()).waitReason).toMatchObject({ code: 'group_paused' });
    await harness.advance(59_000);
    expect(ran).toEqual(['first', 'other']);
    await harness.advance(2_000);
    await second.result();
    expect(ran).toEqual(['first', 'other', 'second']);
  });

  it('refuses a pause until something that is no time', async () => {
    const handler = async (_job: Job, ctx: Context) => ctx.pauseGroup(Number.NaN);
    const harness = await start({ handler, maxAttempts: 1 });
    await expect(harness.run({})).rejects.toThrow('pauseGroup takes a Date or Unix ms');
  });

  it('starts no more jobs than the rate limit allows, in virtual time', async () => {
    let runs = 0;
    const handler = async () => {
      runs++;
    };
    const limits = { rateLimit: { max: 2, perMs: 60_000 } };
    const harness = await start({ handler, clock: 'manual', limits });
    for (let i = 0; i < 6; i++) await harness.submit({});
    await harness.advance(59_000);
    expect(runs).toBe(2);
    await harness.advance(120_000);
    expect(runs).toBe(6);
  });

  it('starts no jobs while it is paused', async () => {
    let runs = 0;
    const handler = async () => {
      runs++;
    };
    const harness = await start({ handler, clock: 'manual' });
    await harness.pause();
    const job = await harness.submit({});
    await harness.advance(60_000);
    expect(runs).toBe(0);
    await harness.resume();
    await job.result();
    expect(runs).toBe(1);
  });
});
