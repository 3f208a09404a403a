// What a handler can do to its thread, its neighbours and its process, each with what its job is told:
// real handlers in real threads. Deaths of the whole process are in test/e2e.
import { execFile, execFileSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { systemClock } from '../../../src/base/clock.ts';
import type { Lease } from '../../../src/wire/link/worker-link.ts';
import { HandlerNotLoadedError } from '../../../src/worker/execution/executor.ts';
import { createWorker, type WorkerOptions } from '../../../src/worker/worker.ts';
import { isRunning } from '../../support/models/model-stand.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';
import { until } from '../../support/until.ts';
import { cpu, makeLease, readOutput } from '../../support/workers/leases.ts';
import {
  createThreads,
  effects,
  startThreads,
  writeHandler,
} from '../../support/workers/thread-script.ts';
import { ScriptedLink } from '../../support/workers/worker-script.ts';

const root = resolve(import.meta.dirname, '../../..');
const locate = (path: string) => pathToFileURL(join(root, 'src', path)).href;

const released = (reason: string) => ({ kind: 'released', reason });
const failed = (code: string, message: RegExp) => ({
  kind: 'failed',
  error: { code, message: expect.stringMatching(message) },
});
const timedOut = (stopped: string, stuck: object) => ({
  kind: 'timed_out',
  stopped,
  error: { code: 'execution_timeout', stuck: expect.objectContaining(stuck) },
});

/** A file that blocks whoever reads it, until the test is over. */
function makeFifo(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-fifo-'));
  const file = join(folder, 'fifo');
  execFileSync('sh', ['-c', 'mkfifo "$0"', file]);
  onTestFinished(() => {
    closeSync(openSync(file, constants.O_RDWR | constants.O_NONBLOCK));
    rmSync(folder, { recursive: true });
  });
  return file;
}

describe('an attempt whose handler', () => {
  it.each([
    [
      'throws a value that is not an error',
      'throw a string',
      failed('handler_error', /^no error at all$/),
    ],
    [
      'leaves a rejected promise unhandled',
      'reject unhandled',
      failed('unhandled_rejection', /nobody handles/),
    ],
    ['throws in a timer', 'throw from a timer', failed('uncaught_exception', /nobody c/)],
    ['calls process.exit', 'exit', failed('handler_exited', /process\.exit\(3\)/)],
    ['exits later', 'exit from a timer', failed('handler_exited', /process\.exit\(4\)/)],
    [
      'returns a value that is not JSON',
      'return no JSON',
      failed('output_invalid', /output\.items\[0\]\.score/),
    ],
  ])('fails if it %s, and the next one runs', async (_, effect, expected) => {
    const { begin } = await startThreads();
    expect((await begin({ do: effect }).end).outcome).toMatchObject(expected);
    expect(readOutput(await begin({ do: 'answer', value: 1 }).end)).toBe(1);
  });

  it.each(['setTimeout(() => { throw error; })', 'Promise.reject(error)'])(
    'ends its thread with %s fails with the errors within that error',
    async (act) => {
      const handlerPath = await writeHandler(`export default async () => {
        const error = new AggregateError([new Error('refused', { cause: new Error('socket') })], 'all');
        ${act};
        await new Promise(() => {});
      }`);
      const { begin } = await startThreads({ handlerPath });
      const { outcome } = await begin({}).end;
      expect(outcome).toMatchObject({
        error: {
          message: expect.stringMatching(/: all: refused$/),
          stack: expect.stringMatching(/Error: refused[\s\S]*caused by: Error: socket/),
        },
      });
    },
  );

  it('loses the context of a device in a callback fails with that code, and its process must end', async () => {
    const handlerPath = await writeHandler(`export default async () => {
      setTimeout(() => { throw new Error('CUDA error: device-side assert triggered'); });
      await new Promise(() => {});
    }`);
    const { begin, executor } = await startThreads({ handlerPath });
    const { contextLoss, outcome } = await begin({}).end;
    expect(outcome).toMatchObject(failed('gpu_context_lost', /device-side assert/));
    expect(contextLoss).toBe('CUDA error: device-side assert');
    await until(() => executor.stuckThread !== undefined);
  });

  it('returns 25 MB fails with the sizes', async () => {
    const { begin } = await startThreads();
    const { outcome } = await begin({ do: 'return bytes', count: 25 * 2 ** 20 }).end;
    expect(outcome).toMatchObject(failed('output_too_large', /26214402 bytes.*20971520/));
  });

  it('overflows the heap fails with the limit', async () => {
    const resourceLimits = { maxOldGenerationSizeMb: 32 };
    const { begin, executor } = await startThreads({ resourceLimits });
    const { outcome } = await begin({ do: 'fill memory' }).end;
    expect(outcome).toMatchObject(failed('out_of_memory', /limit is 32 MB/));
    await until(() => executor.free === 4);
  });

  // Now and then V8 gives up with the whole process instead; then it is the supervisor who tells.
  it('overflows the heap fails with the limit of the process if its thread has none', {
    retry: 2,
  }, async () => {
    const source = `
      import { ThreadExecutor } from ${JSON.stringify(locate('worker/execution/thread-executor.ts'))};
      const executor = new ThreadExecutor({ handlerPath: ${JSON.stringify(effects)}, devices: [] });
      await executor.start();
      const input = Buffer.from('{ "do": "fill memory" }');
      const sink = { chunks() {}, progress() {}, log() {} };
      const { outcome } = await executor.execute({ input }, 60_000, sink).end;
      process.stdout.write(JSON.stringify(outcome));
      await executor.stop();
    `;
    const args = ['--max-old-space-size=64', '--input-type=module', '--eval', source];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root });
    expect(JSON.parse(stdout)).toMatchObject(failed('out_of_memory', /limit is \d+ MB/));
  });

  it('floods its log continues, and the worker counts the dropped lines', async () => {
    const { begin } = await startThreads();
    const { end, sink } = begin({ do: 'flood' });
    expect((await end).outcome.kind).toBe('completed');
    expect(sink.droppedLines).toBeGreaterThan(0);
    expect(sink.logLines.length + sink.droppedLines).toBe(20_000);
  });

  it('waits for a promise that never settles is timed out and its thread killed', async () => {
    const { begin } = await startThreads();
    const { outcome } = await begin({ do: 'ignore the signal' }, 30).end;
    expect(outcome).toMatchObject(timedOut('thread', { state: 'waiting', chunks: 0 }));
  });

  it('loops forever is timed out and its thread killed', async () => {
    const { begin } = await startThreads({ examineMs: 4_000 });
    const { outcome } = await begin({ do: 'block' }, 300).end;
    expect(outcome).toMatchObject(timedOut('thread', { state: 'running' }));
  });

  it('blocks in native code is timed out, and the process must end', async () => {
    const { begin, executor } = await startThreads({ terminateMs: 200 });
    const { outcome } = await begin({ do: 'block natively', file: makeFifo() }, 50).end;
    expect(outcome).toMatchObject(timedOut('process', { state: 'unreachable' }));
    expect(executor.stuckThread).toBeDefined();
  });
});

describe('a handler that does not start', () => {
  const exports = '\nexport default () => 1;';

  it.each([
    ['cannot be imported', 'enum A { B }', 'load', /handler\.ts:1: .*enum/],
    ['throws when it is imported', "throw new Error('no')", 'load', /handler\.ts.*: no/],
    ['ends its thread', 'process.exit(9)', 'load', /process\.exit\(9\)/],
    [
      'has a setup that throws',
      "export function setup() { throw new Error('no weights') }",
      'setup',
      /handler\.ts.*no weights/,
    ],
    [
      'has a setup that hangs',
      'export const config = { setupTimeoutMs: 50 }; export const setup = () => new Promise(() => {})',
      'setup',
      /50 ms/,
    ],
    [
      'has a setup that blocks',
      'export const config = { setupTimeoutMs: 50 }; export const setup = () => { for (;;); }',
      'setup',
      /50 ms/,
    ],
  ])('is reported because it %s, with stage and reason', async (_, source, stage, reason) => {
    const { executor } = createThreads({ handlerPath: await writeHandler(`${source};${exports}`) });
    const error = await executor.start().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(HandlerNotLoadedError);
    expect(error).toMatchObject({ stage, message: expect.stringMatching(reason) });
  });
});

describe('a setup that blocks in native code', () => {
  it('does not start, and the process must end', async () => {
    const read = `readFileSync(${JSON.stringify(makeFifo())})`;
    const source = `
      import { readFileSync } from 'node:fs';
      export const config = { setupTimeoutMs: 50 };
      export const setup = () => ${read};
      export default () => 1;
    `;
    const { executor } = createThreads({ handlerPath: await writeHandler(source) });
    const error = await executor.start().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ name: 'HandlerNotLoadedError', stage: 'setup' });
    expect(executor.stuckThread).toBeDefined();
  });
});

describe.skipIf(leaveOutWithoutPython('containment.test.ts'))('a model process', () => {
  it('ends together with its own children when its thread dies', async () => {
    const source = `
      import { createModelProcess } from ${JSON.stringify(locate('process.ts'))};
      const args = [${JSON.stringify(join(root, 'test/support/models/faults.py'))}];
      const model = createModelProcess({ command: 'python3', args });
      export const setup = (ctx) => model.start(ctx);
      export default async ({ input }) => {
        if (input === 'exit') process.exit(3);
        return [model.pid, await model.call('start_helper', null)];
      };`;
    const { begin, executor } = await startThreads({ handlerPath: await writeHandler(source) });
    const found: unknown = readOutput(await begin('start').end);
    const pids = z.tuple([z.number(), z.number()]).parse(found);
    expect(pids.map(isRunning)).toEqual([true, true]);
    expect((await begin('exit').end).outcome).toMatchObject({ kind: 'failed' });
    await expect.poll(() => pids.map(isRunning), { timeout: 20_000 }).toEqual([false, false]);
    // The next thread has a model process of its own, which lives.
    await until(() => executor.free > 0);
    const next = z.tuple([z.number(), z.number()]).parse(readOutput(await begin('start').end));
    expect(next.map(isRunning)).toEqual([true, true]);
  });
});

describe('a module that loads for too long', () => {
  it('fails in the setup stage, because another process may succeed', async () => {
    const handlerPath = await writeHandler('await new Promise(() => {}); export default () => 1;');
    const { executor } = createThreads({ handlerPath, setupTimeoutMs: 50 });
    const error = await executor.start().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ name: 'HandlerNotLoadedError', stage: 'setup' });
  });
});

describe('the other jobs', () => {
  it.each(['throw from a timer', 'reject unhandled', 'exit from a timer'])(
    'are released from the thread of a job that does "%s"; only that job fails',
    async (effect) => {
      const { begin } = await startThreads();
      const neighbour = begin({ do: 'wait for the signal' });
      await neighbour.hasBegun;
      const culprit = begin({ do: effect });
      expect((await culprit.end).outcome.kind).toBe('failed');
      expect((await neighbour.end).outcome).toEqual(released('neighbour'));
    },
  );

  it('are released if their thread is killed', async () => {
    const { begin } = await startThreads();
    const neighbour = begin({ do: 'wait for the signal' });
    const stubborn = begin({ do: 'ignore the signal' });
    await Promise.all([neighbour.hasBegun, stubborn.hasBegun]);
    stubborn.stop('cancelled');
    expect((await stubborn.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'thread' });
    expect((await neighbour.end).outcome).toEqual(released('neighbour'));
  });

  it('are suspects too if one fills the heap, because any of them may have filled it', async () => {
    const { begin } = await startThreads({ resourceLimits: { maxOldGenerationSizeMb: 32 } });
    const jobs = [begin({ do: 'wait for the signal' }), begin({ do: 'fill memory' })];
    const ends = await Promise.all(jobs.map((job) => job.end));
    expect(ends.map(({ outcome }) => outcome)).toEqual([released('suspect'), released('suspect')]);
  });

  it('continue in other threads', async () => {
    const { begin, executor } = await startThreads({ threads: 2, concurrency: 1 });
    const [blocked, other] = [begin({ do: 'block' }), begin({ do: 'wait for the signal' })];
    await Promise.all([blocked.hasBegun, other.hasBegun]);
    blocked.stop('timeout');
    expect((await blocked.end).outcome.kind).toBe('timed_out');
    await until(() => executor.free === 1);
    other.stop('cancelled');
    expect((await other.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'signal' });
  });
});

describe('a thread that is killed', () => {
  it('is replaced before it has ended', async () => {
    const { begin, executor } = await startThreads({ concurrency: 1 });
    const stuck = begin({ do: 'block natively', file: makeFifo() });
    await stuck.hasBegun;
    await new Promise((resolve) => setTimeout(resolve, 40));
    stuck.stop('cancelled');
    expect(readOutput(await begin({ do: 'answer', value: 'meanwhile' }).end)).toBe('meanwhile');
    expect(executor.stuckThread).toBeUndefined();
    expect((await stuck.end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'process' });
  });

  it('is not replaced on a GPU before it has ended, because two setups may not fit', async () => {
    const gpu = { ...cpu, kind: 'gpu' as const };
    const { begin, workerLog } = await startThreads({
      concurrency: 1,
      devices: [gpu],
      terminateMs: 200,
    });
    const stuck = begin({ do: 'block natively', file: makeFifo() }, 60);
    expect((await stuck.end).outcome).toMatchObject({ stopped: 'process' });
    expect(workerLog.filter(({ msg }) => msg === 'setting up')).toHaveLength(1);
  });

  it('is replaced on a GPU as soon as it has ended', async () => {
    const gpu = { ...cpu, kind: 'gpu' as const };
    const { begin, executor } = await startThreads({ concurrency: 1, devices: [gpu] });
    await begin({ do: 'block' }, 60).end;
    expect(executor.trouble).toBeUndefined();
    expect(readOutput(await begin({ do: 'answer', value: 2 }).end)).toBe(2);
  });

  it('is judged after an uncaught error by the event that ends it', async () => {
    const { begin } = await startThreads();
    expect(readOutput(await begin({ do: 'catch what nobody caught' }).end)).toBe('caught');
    const neighbour = begin({ do: 'wait for the signal' });
    await neighbour.hasBegun;
    const { outcome } = await begin({ do: 'exit' }).end;
    expect(outcome).toMatchObject(failed('handler_exited', /process\.exit\(3\)/));
    expect((await neighbour.end).outcome).toEqual(released('neighbour'));
  });

  it('does not prevent the executor from stopping when it does not end', async () => {
    const { begin, executor } = await startThreads({ terminateMs: 200 });
    await begin({ do: 'block natively', file: makeFifo() }, 30).end;
    await expect(executor.stop()).resolves.toBeUndefined();
  });

  it('reports the position of its JavaScript and the yielded chunks', async () => {
    const { begin } = await startThreads({ examineMs: 4_000 });
    const { outcome } = await begin({ do: 'block after a yield' }, 300).end;
    expect(outcome).toMatchObject(
      timedOut('thread', {
        state: 'running',
        stack: expect.stringMatching(/^ {4}at spinForEver \(file:.*effects\.ts:\d+:\d+\)\n/),
        chunks: 2,
        lastChunkMs: expect.any(Number),
        eventLoopUtilization: 1,
        heapUsedBytes: expect.any(Number),
      }),
    );
    const message = /300 ms.*spinForEver \(file:/;
    expect(outcome).toMatchObject({ error: { message: expect.stringMatching(message) } });
  });

  it('reports the position of each of several killed threads', async () => {
    const { begin } = await startThreads({ threads: 2, concurrency: 1, examineMs: 4_000 });
    const jobs = [begin({ do: 'block' }, 300), begin({ do: 'block after a yield' }, 300)];
    const ends = await Promise.all(jobs.map((job) => job.end));
    const stack = expect.stringContaining('spinForEver');
    for (const { outcome } of ends) expect(outcome).toMatchObject(timedOut('thread', { stack }));
  });

  it('ends even if its examination is aborted', async () => {
    const { begin } = await startThreads({ examineMs: 22 });
    expect((await begin({ do: 'block' }, 50).end).outcome).toMatchObject({ stopped: 'thread' });
  });

  it('is logged in the logs of the job and the worker if the job was cancelled', async () => {
    const { begin, workerLog } = await startThreads();
    const { end, hasBegun, lease, sink, stop } = begin({ do: 'ignore the signal' });
    await hasBegun;
    stop('cancelled');
    expect((await end).outcome).toMatchObject({ kind: 'cancelled', stopped: 'thread' });
    const line = { job: lease.jobId, state: 'waiting' };
    expect(sink.logLines).toMatchObject([line]);
    expect(workerLog).toContainEqual(expect.objectContaining(line));
  });
});

describe('an attempt that stops at its timeout', () => {
  it('reports its yielded chunks and that it was waiting', async () => {
    const { begin } = await startThreads();
    const { outcome } = await begin({ do: 'wait for the signal' }, 30).end;
    expect(outcome).toMatchObject(timedOut('signal', { state: 'waiting', chunks: 0 }));
  });
});

describe('a worker', () => {
  /** A real one, but for the platform. */
  async function startWorker(leases: Lease[], options: Partial<WorkerOptions> = {}) {
    const { executor } = createThreads();
    const link = new ScriptedLink();
    const identity = { workerId: 'w', incarnation: 1, version: '0', devices: [cpu] };
    const clock = systemClock;
    const worker = createWorker({ link, executor, clock, ...identity, ...options });
    onTestFinished(async () => {
      for (const { answer } of link.takes) answer([]);
      await worker.stop();
    });
    await worker.start();
    link.lastTake.answer(leases);
    return { link, worker };
  }

  function listOutcomes({ reportCalls }: ScriptedLink) {
    return reportCalls
      .flatMap(({ reports }) => reports)
      .flatMap((report) => (report.kind === 'outcome' ? [report.outcome] : []));
  }

  it('stops at once when a thread is stuck, releases the other jobs, and asks to be killed', async () => {
    const stuck = makeLease({ do: 'block natively', file: makeFifo() });
    const leases = [{ ...stuck, executionTimeoutMs: 50 }, makeLease({ do: 'wait for the signal' })];
    const { link, worker } = await startWorker(leases, { flushMs: 100 });
    const end = await worker.ended;
    expect(end).toMatchObject({ name: 'stopped', recycle: { isStuck: true } });
    expect(listOutcomes(link)).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ kind: 'timed_out', stopped: 'process' }),
        released('neighbour'),
      ]),
    );
    expect(link.byes).toMatchObject([{ reason: 'drained', outbox: [] }]);
  });

  it('fails the job that takes its memory past the limit', async () => {
    const rssBytes = process.memoryUsage.rss();
    const memoryLimitBytes = Math.round(rssBytes * 1.5) + 100 * 2 ** 20;
    const count = memoryLimitBytes - rssBytes + 200 * 2 ** 20;
    const lease = makeLease({ do: 'take memory', count });
    const { link } = await startWorker([lease], { memoryLimitBytes });
    await until(() => listOutcomes(link).length > 0);
    const ended = { ...failed('memory_limit_exceeded', /\d+ MB.*\d+ MB/), stopped: 'signal' };
    expect(listOutcomes(link)).toMatchObject([{ ...ended, retry: 'default' }]);
  });
});
