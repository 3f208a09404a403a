// Batch handlers with a real queue and a real worker: full batches, retries of single jobs, crashes.
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { defineBatchHandler } from '../../../src/index.ts';
import { createHarness, type HarnessOptions } from '../../../src/testing.ts';
import { fc } from '../../support/properties.ts';

async function start(handler: HarnessOptions['handler'], options: Partial<HarnessOptions> = {}) {
  const harness = await createHarness({ handler, ...options });
  onTestFinished(() => harness.close());
  return harness;
}

const numberSchema = z.object({ n: z.number() });

/** Counts how often each number ran. */
function count(runs: number[][], act: (ns: number[]) => void = () => {}) {
  return defineBatchHandler({
    input: numberSchema,
    batch: { maxSize: 8, maxWaitMs: 5 },
    run(jobs) {
      const ns = jobs.map(({ input }) => input.n);
      runs.push(ns);
      act(ns);
      return ns.map((n) => n * 10);
    },
  });
}

const inputs = (length: number) => Array.from({ length }, (_, n) => ({ n }));

describe.each(['flowing', 'manual'] as const)('harness.runBatch with a %s clock', (clock) => {
  it('runs the inputs as full batches and returns the records in order', async () => {
    const runs: number[][] = [];
    const harness = await start(count(runs), { clock });
    const records = await harness.runBatch(inputs(8));
    expect(records.map(({ output }) => output)).toEqual([0, 10, 20, 30, 40, 50, 60, 70]);
    expect(runs).toEqual([[0, 1, 2, 3, 4, 5, 6, 7]]);
  });
});

describe('batches on a platform', () => {
  it('starts a single job after maxWaitMs', async () => {
    const runs: number[][] = [];
    const harness = await start(count(runs), { clock: 'manual' });
    const job = await harness.submit({ n: 7 });
    await harness.advance(4);
    expect(runs).toEqual([]);
    await harness.advance(1);
    expect(await job.result()).toBe(70);
  });

  it('takes no job that would have to wait for a running batch', async () => {
    const gate = Promise.withResolvers<void>();
    const run = async (jobs: readonly unknown[]) => {
      await gate.promise;
      return jobs.map(() => null);
    };
    const handler = defineBatchHandler({ batch: { maxSize: 4, maxWaitMs: 5 }, run });
    const harness = await start(handler, { clock: 'manual' });
    const first = await harness.submit({});
    await harness.advance(10);
    const second = await harness.submit({});
    await harness.advance(30_000);
    expect(await first.record()).toMatchObject({ status: 'IN_PROGRESS' });
    expect(await second.record()).toMatchObject({ status: 'IN_QUEUE', attempt: 0 });
    gate.resolve();
    await harness.advance(10);
    expect((await second.end()).status).toBe('COMPLETED');
  });

  it('fails exactly the culprits of random batches, after their own attempts', async () => {
    const culprits = fc.uniqueArray(fc.integer({ min: 0, max: 15 }), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(culprits, async (bad) => {
        const runs: number[][] = [];
        const handler = count(runs, (ns) => {
          const culprit = ns.find((n) => bad.includes(n));
          if (culprit !== undefined) throw new Error(`cannot do ${culprit}`);
        });
        const harness = await createHarness({ handler, maxAttempts: 2, clock: 'manual' });
        try {
          const jobs = [];
          for (const input of inputs(16)) jobs.push(await harness.submit(input));
          await harness.advance(60_000);
          const records = await Promise.all(jobs.map((job) => job.record()));
          for (const [n, record] of records.entries()) {
            if (bad.includes(n)) expect(record).toMatchObject({ status: 'FAILED', attempt: 2 });
            else expect(record).toMatchObject({ status: 'COMPLETED', attempt: 1, output: n * 10 });
          }
          // Two batches of 8 at first, then the culprits' second attempts.
          expect(runs.length).toBeLessThanOrEqual(2 * 15 + 2 * bad.length);
        } finally {
          await harness.close();
        }
      }),
      { numRuns: 20 },
    );
  });

  it('runs each job alone after the worker died in the middle of a batch', async () => {
    const runs: number[][] = [];
    const gate = Promise.withResolvers<void>();
    const handler = defineBatchHandler({
      input: numberSchema,
      batch: { maxSize: 4, maxWaitMs: 5 },
      async run(jobs) {
        runs.push(jobs.map(({ input }) => input.n));
        if (jobs.length > 1) await gate.promise;
        return jobs.map(({ input }) => input.n);
      },
    });
    const harness = await start(handler, { clock: 'manual' });
    const jobs = [];
    for (const input of inputs(4)) jobs.push(await harness.submit(input));
    await harness.advance(1_000);
    expect(runs).toEqual([[0, 1, 2, 3]]);
    await harness.killWorker();
    await harness.advance(60_000);
    gate.resolve();
    const records = await Promise.all(jobs.map((job) => job.record()));
    expect(records).toMatchObject([0, 1, 2, 3].map((output) => ({ status: 'COMPLETED', output })));
    expect(runs.slice(1)).toEqual([[0], [1], [2], [3]]);
  });

  it('isolates a job that always breaks a stream, after at most three shared attempts', async () => {
    const handler = defineBatchHandler({
      input: numberSchema,
      batch: { maxSize: 4, maxWaitMs: 5 },
      async *run(jobs) {
        for (const job of jobs) yield { job, output: job.input.n };
        if (jobs.some(({ input }) => input.n === 2)) throw new Error('broken stream');
      },
    });
    const harness = await start(handler, { clock: 'manual', maxAttempts: 1 });
    const jobs = [];
    for (const input of inputs(4)) jobs.push(await harness.submit(input));
    await harness.advance(60_000);
    const records = await Promise.all(jobs.map((job) => job.record()));
    expect(records.map(({ status }) => status)).toEqual([
      'COMPLETED',
      'COMPLETED',
      'FAILED',
      'COMPLETED',
    ]);
    expect(records[2]?.error).toMatchObject({ code: 'handler_error', message: 'broken stream' });
    expect(Math.max(...records.map(({ attempt }) => attempt))).toBeLessThanOrEqual(4);
  });
});
