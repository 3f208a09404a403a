// Handlers in real threads: that they run, and what becomes of them and their neighbours when a
// handler blocks, leaves, throws where nobody catches it, or takes all memory.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { HandlerNotLoadedError } from '../../../src/worker/executor.ts';
import { ThreadExecutor, type ThreadExecutorOptions } from '../../../src/worker/thread-executor.ts';
import { cpu, makeLease, readOutput } from '../../support/leases.ts';
import { type LogLine, parseLines, RecordingSink } from '../../support/recording-sink.ts';

const deeds = join(import.meta.dirname, '../../support/handlers/deeds.ts');

const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

function create(options: Partial<ThreadExecutorOptions> = {}) {
  const workerLog: LogLine[] = [];
  const executor = new ThreadExecutor({
    handlerPath: deeds,
    devices: [cpu],
    graceMs: 50,
    logDestination: { write: (lines) => workerLog.push(...parseLines(lines)) },
    ...options,
  });
  cleanups.push(() => executor.stop());
  const begin = (input: unknown, timeoutMs = 60_000) => {
    const sink = new RecordingSink();
    const lease = makeLease(input);
    const execution = executor.execute(lease, timeoutMs, sink);
    /** The handler has come to its first wait. */
    const hasBegun = sink.until(({ progressValues }) => progressValues.length > 0);
    return {
      hasBegun,
      lease,
      execution,
      sink,
      end: execution.end,
      stop: execution.stop.bind(execution),
    };
  };
  return { executor, begin, workerLog };
}

async function startUp(options: Partial<ThreadExecutorOptions> = {}) {
  const created = create(options);
  await created.executor.start();
  return created;
}

async function writeHandler(source: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-thread-'));
  cleanups.push(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
  await writeFile(join(folder, 'handler.ts'), source);
  return join(folder, 'handler.ts');
}

function until(executor: ThreadExecutor, isMet: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const look = () => isMet() && resolve();
    executor.onChange(look);
    look();
  });
}

describe('starting', () => {
  it('answers the handler’s config and has its slots in every thread', async () => {
    const { executor } = create({ threads: 2 });
    expect(await executor.start()).toEqual({ concurrency: 4 });
    expect(executor).toMatchObject({ slots: 8, free: 8, trouble: undefined });
  });

  it('runs setup with the devices, once in a thread, before its jobs', async () => {
    const { begin } = await startUp();
    const ends = await Promise.all([begin({ do: 'describe' }).end, begin({ do: 'describe' }).end]);
    const expected = { setups: 1, devices: [cpu], setUpWith: [cpu], attempt: 1 };
    expect(ends.map(readOutput)).toEqual([expected, expected]);
  });

  it('fails with the reason if setup throws', async () => {
    const handlerPath = await writeHandler(
      "export const setup = () => { throw new Error('no weights'); };\nexport default () => 1;",
    );
    const start = create({ handlerPath }).executor.start();
    await expect(start).rejects.toThrow(HandlerNotLoadedError);
    await expect(start).rejects.toThrow(/handler\.ts: setup threw: .*no weights/);
  });

  it('fails with the line if the module cannot be loaded', async () => {
    const handlerPath = await writeHandler('enum A { B }\nexport default () => A.B;');
    await expect(create({ handlerPath }).executor.start()).rejects.toThrow(/handler\.ts:1: .*enum/);
  });

  it('fails if setup takes too long, also when it blocks its thread', async () => {
    const handlerPath = await writeHandler(
      'export const config = { setupTimeoutMs: 50 };\n' +
        'export const setup = () => { for (;;); };\nexport default () => 1;',
    );
    await expect(create({ handlerPath }).executor.start()).rejects.toThrow(/longer than 50 ms/);
  });

  it('fails with the code if the module ends its thread', async () => {
    const handlerPath = await writeHandler('process.exit(9);\nexport default () => 1;');
    await expect(create({ handlerPath }).executor.start()).rejects.toThrow(/process\.exit\(9\)/);
  });
});

describe('running', () => {
  it('gives back outputs of any size whole', async () => {
    const { begin } = await startUp();
    const texts = ['', 'é', 'x'.repeat(20_000), 'y'.repeat(3_000_000)];
    const ends = await Promise.all(texts.map((value) => begin({ do: 'answer', value }).end));
    expect(ends.map(readOutput)).toEqual(texts);
  });

  it('gives chunks in their order, before the end', async () => {
    const { begin } = await startUp();
    const { sink, end } = begin({ do: 'yield', count: 5_000 });
    expect((await end).outcome).toMatchObject({ kind: 'completed', output: 'chunks' });
    expect(sink.outputs).toEqual(Array.from({ length: 5_000 }, (_, index) => index));
  });

  it('has jobs wait for a slot, and spreads them over the threads', async () => {
    const { executor, begin } = await startUp({ threads: 2, concurrency: 1 });
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
    expect(executor.free).toBe(2);
  });

  it('gives a job back, not timed out, whose time is over before it had a slot', async () => {
    const { begin } = await startUp({ concurrency: 1 });
    begin({ do: 'wait for the signal' });
    const waiting = begin({ do: 'answer' });
    waiting.stop('timeout');
    expect((await waiting.end).outcome).toEqual({ kind: 'released', reason: 'not_started' });
  });

  it('holds a generator whose chunks are not granted, and lets it go on when they are', async () => {
    const { begin } = await startUp({ windowBytes: 1_000 });
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

  it('leads console and log of a job into its log, and into the worker’s', async () => {
    const { begin, workerLog } = await startUp();
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

  it('leads console of a generator into its job’s log', async () => {
    const { begin } = await startUp();
    const { sink, end } = begin({ do: 'yield and speak' });
    await end;
    expect(sink.logLines).toMatchObject([{ msg: 'from the generator' }]);
  });

  it('cuts down a flood of lines and tells how many it dropped', async () => {
    const { begin } = await startUp();
    const { sink, end } = begin({ do: 'flood' });
    await end;
    expect(sink.droppedLines).toBeGreaterThan(0);
    expect(sink.logLines.length + sink.droppedLines).toBe(20_000);
  });

  it('leads what setup says into the worker’s log', async () => {
    const { workerLog } = await startUp();
    const messages = workerLog.map(({ msg }) => msg);
    expect(messages).toEqual(['setting up', 'console in setup']);
  });
});

describe('stopping a job', () => {
  it('reaches the signal of a handler that waits', async () => {
    const { begin } = await startUp();
    const { end, stop, hasBegun } = begin({ do: 'wait for the signal' });
    await hasBegun;
    stop('cancelled');
    expect((await end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'signal' });
  });

  it('reaches a generator that never lets go of the event loop', async () => {
    const { begin } = await startUp({ windowBytes: Number.POSITIVE_INFINITY, graceMs: 5_000 });
    const { sink, end, stop } = begin({ do: 'yield for ever' });
    await sink.until(({ outputs }) => outputs.length > 0);
    stop('cancelled');
    expect((await end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'return' });
  });

  it('comes by itself when the timeout is over', async () => {
    const { begin } = await startUp();
    const { outcome } = await begin({ do: 'wait for the signal' }, 30).end;
    expect(outcome).toMatchObject({
      kind: 'timed_out',
      stopped: 'signal',
      error: { code: 'execution_timeout' },
    });
  });

  it('kills the thread of a handler that does not give way, and only that one', async () => {
    const { begin, executor } = await startUp({ threads: 2, concurrency: 1 });
    const [blocked, other] = [begin({ do: 'block' }), begin({ do: 'wait for the signal' })];
    await Promise.all([blocked.hasBegun, other.hasBegun]);
    await new Promise((resolve) => setTimeout(resolve, 40));
    blocked.stop('timeout');
    expect((await blocked.end).outcome).toMatchObject({ kind: 'timed_out', stopped: 'thread' });
    await until(executor, () => executor.free === 1);
    expect(readOutput(await begin({ do: 'answer', value: 'again' }).end)).toBe('again');
    other.stop('cancelled');
    expect((await other.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'signal' });
  });

  it('releases the neighbours of a job whose thread it kills', async () => {
    const { begin } = await startUp();
    const neighbour = begin({ do: 'wait for the signal' });
    const stubborn = begin({ do: 'ignore the signal' });
    await Promise.all([neighbour.hasBegun, stubborn.hasBegun]);
    stubborn.stop('cancelled');
    expect((await stubborn.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'thread' });
    expect((await neighbour.end).outcome).toEqual({ kind: 'released', reason: 'neighbour' });
  });
});

describe('a thread that dies', () => {
  it.each([
    ['exit', /process\.exit\(3\)/],
    ['exit from a timer', /process\.exit\(4\)/],
    ['throw from a timer', /nobody catches this/],
    ['reject unheard', /nobody hears this/],
  ])('by "%s" fails the job that did it', async (deed, message) => {
    const { begin } = await startUp();
    const { outcome } = await begin({ do: deed }).end;
    expect(outcome).toMatchObject({
      kind: 'failed',
      retry: 'default',
      error: { code: 'thread_crashed', message: expect.stringMatching(message) },
    });
    expect(readOutput(await begin({ do: 'answer', value: 1 }).end)).toBe(1);
  });

  it('keeps the class and the stack of what nobody caught', async () => {
    const { begin } = await startUp();
    const { outcome } = await begin({ do: 'throw from a timer' }).end;
    const error = { type: 'TypeError', stack: expect.stringContaining('deeds.ts') };
    expect(outcome).toMatchObject({ error });
  });

  it('releases the neighbours of the job that did it', async () => {
    const { begin } = await startUp();
    const neighbour = begin({ do: 'wait for the signal' });
    const culprit = begin({ do: 'throw from a timer' });
    expect((await culprit.end).outcome).toMatchObject({ error: { code: 'thread_crashed' } });
    expect((await neighbour.end).outcome).toEqual({ kind: 'released', reason: 'neighbour' });
  });

  it('for want of memory fails the job with out_of_memory if it ran alone', async () => {
    const resourceLimits = { maxOldGenerationSizeMb: 32 };
    const { begin, executor } = await startUp({ resourceLimits });
    const { outcome } = await begin({ do: 'fill memory' }).end;
    expect(outcome).toMatchObject({
      kind: 'failed',
      error: { code: 'out_of_memory', message: expect.stringContaining('32 MB') },
    });
    await until(executor, () => executor.free === 4);
  });

  it('for want of memory blames nobody if several ran', async () => {
    const { begin } = await startUp({ resourceLimits: { maxOldGenerationSizeMb: 32 } });
    const jobs = [begin({ do: 'wait for the signal' }), begin({ do: 'fill memory' })];
    const ends = await Promise.all(jobs.map((job) => job.end));
    const released = { kind: 'released', reason: 'neighbour' };
    expect(ends.map(({ outcome }) => outcome)).toEqual([released, released]);
  });

  it('is not replaced in silence if setup fails now: the reason is told, and it is tried again', async () => {
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
    const { begin, executor } = await startUp({ handlerPath });
    await begin({ exit: true }).end;
    await until(executor, () => executor.trouble !== undefined);
    expect(executor.trouble).toContain('the model is gone');
    expect(executor.free).toBe(0);
    expect(readOutput(await begin({}).end)).toBe('well');
    expect(executor).toMatchObject({ trouble: undefined, free: 1 });
  });
});

describe('a thread that dies again and again', () => {
  it('with no job done between is started again only after a wait, and the reason is told', async () => {
    const handlerPath = await writeHandler(`
      export const setup = () => {
        setTimeout(() => { throw new Error('the driver is gone'); }, 100);
      };
      export default () => 1;`);
    const { executor } = await startUp({ handlerPath });
    await until(executor, () => executor.trouble !== undefined);
    expect(executor.trouble).toContain('the driver is gone');
    expect(executor.free).toBe(0);
    await until(executor, () => executor.free === 1);
  });
});

describe('stopping the executor', () => {
  it('releases what runs and what waits, and runs teardown', async () => {
    const { begin, executor, workerLog } = await startUp({ concurrency: 1 });
    const [running, waiting] = [begin({ do: 'wait for the signal' }), begin({ do: 'answer' })];
    await running.hasBegun;
    await executor.stop();
    expect((await running.end).outcome).toEqual({ kind: 'released', reason: 'drain' });
    expect((await waiting.end).outcome).toEqual({ kind: 'released', reason: 'not_started' });
    expect(workerLog.map(({ msg }) => msg)).toContain('tearing down');
    expect(executor.free).toBe(0);
  });

  it('kills what does not give way', async () => {
    const { begin, executor } = await startUp();
    const { end, hasBegun } = begin({ do: 'ignore the signal' });
    await hasBegun;
    await executor.stop();
    expect((await end).outcome).toEqual({ kind: 'released', reason: 'drain' });
  });

  it('does not wait for a teardown that never ends', async () => {
    const handlerPath = await writeHandler(
      'export const teardown = () => new Promise(() => {});\nexport default () => 1;',
    );
    const { executor } = await startUp({ handlerPath, teardownMs: 30 });
    await expect(executor.stop()).resolves.toBeUndefined();
  });

  it('releases what is given to it afterwards', async () => {
    const { begin, executor } = await startUp();
    await executor.stop();
    const { outcome } = await begin({ do: 'answer' }).end;
    expect(outcome).toEqual({ kind: 'released', reason: 'not_started' });
  });

  it('makes a start that is under way fail', async () => {
    const handlerPath = await writeHandler(
      'export const setup = () => new Promise(() => {});\nexport default () => 1;',
    );
    const { executor } = create({ handlerPath });
    const start = executor.start();
    const refused = expect(start).rejects.toThrow(HandlerNotLoadedError);
    await executor.stop();
    await refused;
  });
});
