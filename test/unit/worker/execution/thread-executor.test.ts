// Handlers in real threads: starting, running, stopping. What becomes of them and their neighbours when
// a handler misbehaves is in containment.test.ts.
import { describe, expect, it } from 'vitest';
import { HandlerNotLoadedError } from '../../../../src/worker/execution/executor.ts';
import { until } from '../../../support/until.ts';
import { cpu, readOutput } from '../../../support/workers/leases.ts';
import {
  createThreads,
  startThreads,
  writeHandler,
} from '../../../support/workers/thread-script.ts';

describe('starting', () => {
  it('returns the handler’s config and has the configured slots in every thread', async () => {
    const { executor } = createThreads({ threads: 2 });
    expect(await executor.start()).toMatchObject({ concurrency: 4 });
    expect(executor).toMatchObject({ slots: 8, free: 8, trouble: undefined });
  });

  it('returns the JSON Schema of the handler’s input', async () => {
    const handlerPath = await writeHandler(
      "export default { run: () => 1, inputSchema: { type: 'object' } };",
    );
    const { describedInput } = await createThreads({ handlerPath }).executor.start();
    expect(describedInput).toEqual({ kind: 'schema', text: '{"type":"object"}' });
  });

  it('runs setup with the devices once per thread, before the first job', async () => {
    const { begin } = await startThreads();
    const ends = await Promise.all([begin({ do: 'describe' }).end, begin({ do: 'describe' }).end]);
    const expected = { setups: 1, devices: [cpu], setUpWith: [cpu], attempt: 1 };
    expect(ends.map(readOutput)).toEqual([expected, expected]);
  });
});

describe('running', () => {
  it('returns outputs of any size unchanged', async () => {
    const { begin } = await startThreads();
    const texts = ['', 'é', 'x'.repeat(20_000), 'y'.repeat(3_000_000)];
    const ends = await Promise.all(texts.map((value) => begin({ do: 'answer', value }).end));
    expect(ends.map(readOutput)).toEqual(texts);
  });

  it('delivers chunks in order, before the end', async () => {
    const { begin } = await startThreads();
    const { sink, end } = begin({ do: 'yield', count: 5_000 });
    expect((await end).outcome).toMatchObject({ kind: 'completed', output: 'chunks' });
    expect(sink.outputs).toEqual(Array.from({ length: 5_000 }, (_, index) => index));
  });

  it('makes jobs wait for a slot and spreads them over the threads', async () => {
    const { executor, begin } = await startThreads({ threads: 2, concurrency: 1 });
    const jobs = [1, 2, 3].map(() => begin({ do: 'wait for the signal' }));
    expect(executor.free).toBe(0);
    const third = jobs[2];
    third?.stop('cancelled');
    expect((await third?.end)?.outcome).toEqual({
      kind: 'cancelled',
      executionMs: 0,
      stopped: 'signal',
    });
    for (const job of jobs) job.stop('cancelled');
    await Promise.all(jobs.map((job) => job.end));
    // A thread that was still starting when its job was stopped may have been replaced.
    await expect.poll(() => executor.free).toBe(2);
  });

  it('releases a job whose time runs out before it has a slot, instead of timing it out', async () => {
    const { begin } = await startThreads({ concurrency: 1 });
    begin({ do: 'wait for the signal' });
    const waiting = begin({ do: 'answer' });
    waiting.stop('timeout');
    expect((await waiting.end).outcome).toEqual({ kind: 'released', reason: 'not_started' });
  });

  it('pauses a generator until its chunks are granted', async () => {
    const { begin } = await startThreads({ windowBytes: 1_000 });
    const { sink, execution, end } = begin({ do: 'yield', count: 1_000 });
    let granted = 0;
    while (sink.outputs.length < 1_000) {
      await sink.until(({ chunkSizes }) => chunkSizes.length > granted);
      const fresh = sink.chunkSizes.slice(granted);
      expect(fresh.length).toBeLessThan(100);
      granted += fresh.length;
      execution.grant(fresh.reduce((sum, size) => sum + size, 0));
    }
    expect((await end).outcome.kind).toBe('completed');
  });

  it('writes a job’s console and log lines to the job’s log and the worker’s log', async () => {
    const { begin, workerLog } = await startThreads();
    const { lease, sink, end } = begin({ do: 'speak' });
    await end;
    const said = sink.logLines.map(({ level, msg }) => [level, msg]);
    expect(said).toEqual([
      [20, 'quiet word'],
      [30, 'plain { a: 1 }'],
      [40, 'careful'],
      [50, 'gone wrong'],
      [30, expect.stringContaining('│')],
      [30, 'by pino'],
      [30, 'after an await'],
    ]);
    expect(new Set(sink.logLines.map(({ job }) => job))).toEqual(new Set([lease.jobId]));
    expect(workerLog).toEqual(expect.arrayContaining(sink.logLines));
  });

  it('writes the console output of a generator to its job’s log', async () => {
    const { begin } = await startThreads();
    const { sink, end } = begin({ do: 'yield and speak' });
    await end;
    expect(sink.logLines).toMatchObject([{ msg: 'from the generator' }]);
  });

  it('writes the log lines of setup to the worker’s log', async () => {
    const { workerLog } = await startThreads();
    const messages = workerLog.map(({ msg }) => msg);
    expect(messages).toEqual(['setting up', 'console in setup']);
  });
});

describe('stopping a job', () => {
  it('aborts the signal of a waiting handler', async () => {
    const { begin } = await startThreads();
    const { end, stop, hasBegun } = begin({ do: 'wait for the signal' });
    await hasBegun;
    stop('cancelled');
    expect((await end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'signal' });
  });

  it('stops a generator that never yields to the event loop', async () => {
    const { begin } = await startThreads({ windowBytes: Number.POSITIVE_INFINITY, graceMs: 5_000 });
    const { sink, end, stop } = begin({ do: 'yield for ever' });
    await sink.until(({ outputs }) => outputs.length > 0);
    stop('cancelled');
    expect((await end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'return' });
  });

  it('happens at its timeout', async () => {
    const { begin } = await startThreads();
    const { outcome } = await begin({ do: 'wait for the signal' }, 30).end;
    expect(outcome).toMatchObject({
      kind: 'timed_out',
      stopped: 'signal',
      error: { code: 'execution_timeout' },
    });
  });
});

describe('a thread that ends unexpectedly', () => {
  it('is replaced again, with a logged reason, if the new setup fails', async () => {
    const handlerPath = await writeHandler(`
      import { existsSync, rmSync, writeFileSync } from 'node:fs';
      const flag = import.meta.filename + '.broken';
      export const setup = () => {
        if (!existsSync(flag)) return;
        rmSync(flag);
        throw new Error('the model is gone');
      };
      export default (job: { input: { exit?: boolean } }) => {
        if (!job.input.exit) return 'well';
        writeFileSync(flag, '');
        process.exit(1);
      };`);
    const { begin, executor } = await startThreads({ handlerPath });
    await begin({ exit: true }).end;
    await until(() => executor.trouble !== undefined);
    expect(executor.trouble).toContain('the model is gone');
    expect(executor.free).toBe(0);
    expect(readOutput(await begin({}).end)).toBe('well');
    expect(executor).toMatchObject({ trouble: undefined, free: 1 });
  });
});

describe('a job that runs the exit listeners of its thread itself', () => {
  it('completes, and the thread lives on', async () => {
    const handlerPath = await writeHandler(`
      let jobs = 0;
      export default () => {
        process.emit('exit', undefined);
        return ++jobs;
      };`);
    const { begin } = await startThreads({ handlerPath });
    expect(readOutput(await begin({}).end)).toBe(1);
    expect(readOutput(await begin({}).end)).toBe(2);
  });
});

describe('a thread that ends unexpectedly several times', () => {
  it('is restarted without a completed job in between only after a wait, with a logged reason', async () => {
    const handlerPath = await writeHandler(`
      export const setup = () => {
        setTimeout(() => { throw new Error('the driver is gone'); }, 100);
      };
      export default () => 1;`);
    const { executor } = await startThreads({ handlerPath });
    await until(() => executor.trouble !== undefined);
    expect(executor.trouble).toContain('the driver is gone');
    expect(executor.free).toBe(0);
    await until(() => executor.free === 1);
  });
});

describe('stopping the executor', () => {
  it('releases running and waiting jobs, and runs teardown', async () => {
    const { begin, executor, workerLog } = await startThreads({ concurrency: 1 });
    const [running, waiting] = [begin({ do: 'wait for the signal' }), begin({ do: 'answer' })];
    await running.hasBegun;
    await executor.stop();
    expect((await running.end).outcome).toEqual({ kind: 'released', reason: 'drain' });
    expect((await waiting.end).outcome).toEqual({ kind: 'released', reason: 'not_started' });
    expect(workerLog.map(({ msg }) => msg)).toContain('tearing down');
    expect(executor.free).toBe(0);
  });

  it('kills threads that do not stop', async () => {
    const { begin, executor } = await startThreads();
    const { end, hasBegun } = begin({ do: 'ignore the signal' });
    await hasBegun;
    await executor.stop();
    expect((await end).outcome).toEqual({ kind: 'released', reason: 'drain' });
  });

  it('does not wait for a teardown that does not end', async () => {
    const handlerPath = await writeHandler(
      'export const teardown = () => new Promise(() => {});\nexport default () => 1;',
    );
    const { executor } = await startThreads({ handlerPath, teardownMs: 30 });
    await expect(executor.stop()).resolves.toBeUndefined();
  });

  it('releases jobs that it receives afterwards', async () => {
    const { begin, executor } = await startThreads();
    await executor.stop();
    const { outcome } = await begin({ do: 'answer' }).end;
    expect(outcome).toEqual({ kind: 'released', reason: 'not_started' });
  });

  it('fails a start in progress', async () => {
    const handlerPath = await writeHandler(
      'export const setup = () => new Promise(() => {});\nexport default () => 1;',
    );
    const { executor } = createThreads({ handlerPath });
    const start = executor.start();
    const refused = expect(start).rejects.toThrow(HandlerNotLoadedError);
    await executor.stop();
    await refused;
  });
});
