// Batch handlers in real threads: how batches form across the port, and what becomes of the other jobs
// of a batch when one is stopped or takes the thread down.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { BatchEvent } from '../../../../src/handler/batch/settings.ts';
import { HandlerNotLoadedError } from '../../../../src/worker/execution/executor.ts';
import type { ThreadExecutorOptions } from '../../../../src/worker/execution/thread-executor.ts';
import type { BatchTask } from '../../../support/handlers/batched.ts';
import { until } from '../../../support/until.ts';
import { readOutput } from '../../../support/workers/leases.ts';
import {
  createThreads,
  startThreads,
  writeHandler,
} from '../../../support/workers/thread-script.ts';

const handlerPath = join(import.meta.dirname, '../../../support/handlers/batched.ts');

async function startBatches(options: Partial<ThreadExecutorOptions> = {}) {
  const { begin, executor, workerLog } = await startThreads({ handlerPath, ...options });
  const events: BatchEvent[] = [];
  executor.onBatch((event) => events.push(event));
  const run = (tasks: readonly BatchTask[], timeoutMs?: number) =>
    tasks.map((task) => begin(task, timeoutMs));
  return { run, begin, executor, events, workerLog };
}

type Started = ReturnType<Awaited<ReturnType<typeof startBatches>>['run']>;

const endAll = (jobs: Started) => Promise.all(jobs.map(({ end }) => end));
const outcomesOf = async (jobs: Started) => (await endAll(jobs)).map(({ outcome }) => outcome);

describe('batches in a thread', () => {
  it('hold the jobs that arrive together, each with its own output', async () => {
    const { run, executor, events } = await startBatches();
    expect([executor.slots, executor.free]).toEqual([4, 4]);
    const jobs = run([1, 2, 3, 4].map((n) => ({ n })));
    expect(executor.free).toBe(0);
    const outputs = (await endAll(jobs)).map(readOutput);
    expect(outputs).toEqual([1, 2, 3, 4].map((n) => ({ n, size: 4 })));
    expect(events).toMatchObject([{ kind: 'started', size: 4, of: 4 }]);
    await expect.poll(() => executor.free).toBe(4);
  });

  it('start incomplete after maxWaitMs, and leave no slot free while they run', async () => {
    const { run, executor } = await startBatches();
    const [first] = run([{ n: 1, do: 'wait' }]);
    // Known at once: the next take must not wait longer than the batch.
    expect(executor.freeForMs).toBeLessThanOrEqual(30);
    expect(executor.free).toBe(3);
    await first?.hasBegun;
    await expect.poll(() => executor.free).toBe(0);
    first?.stop('cancelled');
    await expect.poll(() => executor.free).toBe(4);
    expect(executor.freeForMs).toBeUndefined();
  });

  it('have free slots again after a job that never entered a batch', async () => {
    const { begin, executor } = await startBatches();
    const refused = await begin({ n: 'one' }).end;
    expect(refused.outcome).toMatchObject({ error: { code: 'input_invalid' } });
    await expect.poll(() => [executor.free, executor.freeForMs]).toEqual([4, undefined]);
  });

  it('fill one thread before the next one', async () => {
    const { run, executor } = await startBatches({ threads: 2 });
    expect(executor.slots).toBe(8);
    const jobs = run([1, 2, 3, 4, 5, 6].map((n) => ({ n })));
    const sizes = (await endAll(jobs)).map((end) => Object(readOutput(end)).size);
    expect(sizes).toEqual([4, 4, 4, 4, 2, 2]);
  });

  it('stream to all their jobs, in order', async () => {
    const { run } = await startBatches();
    const jobs = run([1, 2, 3].map((n) => ({ n, do: 'stream' })));
    await endAll(jobs);
    const expected = [1, 2, 3].map((n) => Array.from({ length: 20 }, (_, turn) => n * 100 + turn));
    expect(jobs.map(({ sink }) => sink.outputs)).toEqual(expected);
  });

  it('write to the worker’s log, and their jobs to their own logs', async () => {
    const { run, workerLog } = await startBatches();
    const jobs = run([{ n: 1, do: 'speak' }, { n: 2 }]);
    await endAll(jobs);
    expect(jobs.map(({ sink }) => sink.logLines.map(({ msg }) => msg))).toEqual([
      ['by the job'],
      [],
    ]);
    await expect.poll(() => workerLog.map(({ msg }) => msg)).toContain('from the batch');
    expect(workerLog).toContainEqual(
      expect.objectContaining({ msg: 'by its log', batch: 1, jobs: 2 }),
    );
  });

  it('do not go with a number of jobs given by the operator', async () => {
    const { executor } = createThreads({ handlerPath, concurrency: 2 });
    const error = await executor.start().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(HandlerNotLoadedError);
    expect(error).toMatchObject({
      message: expect.stringContaining('--jobs-per-thread: the number of jobs'),
    });
  });
});

describe('the other jobs of a batch', () => {
  it('go on when one is cancelled', async () => {
    const { run } = await startBatches();
    const jobs = run([{ n: 1 }, { n: 2, do: 'outlast' }, { n: 3 }]);
    await jobs[0]?.hasBegun;
    jobs[0]?.stop('cancelled');
    expect((await jobs[0]?.end)?.outcome).toMatchObject({ kind: 'cancelled', stopped: 'signal' });
    expect((await outcomesOf(jobs)).map(({ kind }) => kind)).toEqual([
      'cancelled',
      'completed',
      'completed',
    ]);
  });

  it('go on when one times out', async () => {
    const { begin } = await startBatches();
    const short = begin({ n: 1 }, 100);
    const jobs = [short, begin({ n: 2, do: 'outlast' })];
    expect((await outcomesOf(jobs)).map(({ kind }) => kind)).toEqual(['timed_out', 'completed']);
  });

  it('go on when one fails by ctx.fail or by itself', async () => {
    const { run } = await startBatches();
    const failing = await outcomesOf(run([{ n: 1 }, { n: 2, do: 'fail' }]));
    expect(failing).toMatchObject([{ kind: 'completed' }, { error: { message: 'not 2' } }]);
    const throwing = await outcomesOf(run([{ n: 1 }, { n: 2, do: 'throw' }, { n: 3 }, { n: 4 }]));
    expect(throwing).toMatchObject([
      { kind: 'completed' },
      { kind: 'failed', error: { message: 'cannot do 2' } },
      { kind: 'completed' },
      { kind: 'completed' },
    ]);
  });

  it.each(['exit', 'uncaught'] as const)(
    'are suspects like the one that ended the thread: %s',
    async (how) => {
      const { run, executor } = await startBatches();
      const jobs = run([{ n: 1 }, { n: 2, do: how }, { n: 3 }]);
      const suspect = { kind: 'released', reason: 'suspect' };
      expect(await outcomesOf(jobs)).toEqual([suspect, suspect, suspect]);
      await expect.poll(() => executor.free, { timeout: 10_000 }).toBe(4);
    },
  );

  it.each([
    ['exit', 'handler_exited'],
    ['uncaught', 'uncaught_exception'],
  ] as const)(
    'are not there when a job ends the thread alone, and it is to blame: %s',
    async (how, code) => {
      const { run } = await startBatches();
      expect(await outcomesOf(run([{ n: 1, do: how }]))).toMatchObject([
        { kind: 'failed', error: { code } },
      ]);
    },
  );

  it('return to the queue if the job that ended the thread was alone in another batch', async () => {
    const handler = await writeHandler(`export default {
      batch: { maxSize: 1, maxWaitMs: 0, maxInFlight: 2 },
      async run([job]) {
        job.progress('begun');
        if (job.input.mustExit) setTimeout(() => process.exit(7), 50);
        await new Promise(() => {});
      },
    };`);
    const { begin } = await startThreads({ handlerPath: handler });
    const other = begin({ mustExit: false });
    await other.hasBegun;
    expect(await outcomesOf([begin({ mustExit: true }), other])).toMatchObject([
      { kind: 'failed', error: { code: 'handler_exited' } },
      { kind: 'released', reason: 'neighbour' },
    ]);
  });

  it('return to the queue when the thread is killed because the batch does not end', async () => {
    const { run } = await startBatches();
    const folder = mkdtempSync(join(tmpdir(), 'millrace-batch-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'spins');
    const jobs = run([{ n: 1, do: 'spin', file }, { n: 2 }]);
    await until(() => existsSync(file));
    jobs[0]?.stop('timeout');
    expect(await outcomesOf(jobs)).toMatchObject([
      { kind: 'timed_out', stopped: 'thread' },
      { kind: 'released', reason: 'neighbour' },
    ]);
  });

  it('do not keep a thread alive whose batch hangs: the last one that stops has it killed', async () => {
    const { run, executor } = await startBatches();
    const jobs = run([{ n: 1, do: 'hang' }, { n: 2 }]);
    await jobs[0]?.hasBegun;
    for (const job of jobs) job.stop('cancelled');
    expect(await outcomesOf(jobs)).toMatchObject([
      { kind: 'cancelled', stopped: 'signal' },
      { kind: 'cancelled', stopped: 'thread' },
    ]);
    await expect.poll(() => executor.free, { timeout: 10_000 }).toBe(4);
  });
});
