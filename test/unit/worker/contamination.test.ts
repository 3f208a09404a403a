// What a job that changes built-ins does to the next ones: in real threads, each innocent job either
// has the right output or does not count. Which changes are seen is in handler/built-ins.test.ts.
import { describe, expect, it } from 'vitest';
import {
  contaminatingHandler,
  expectRight,
  innocentValue,
  targets,
  writeChange,
} from '../../support/contamination.ts';
import { readOutput } from '../../support/workers/leases.ts';
import { startThreads, writeHandler } from '../../support/workers/thread-script.ts';

async function start(options = {}) {
  const handlerPath = await writeHandler(contaminatingHandler);
  return startThreads({ handlerPath, concurrency: 1, ...options });
}

/** One of a kind: each takes a new thread. */
const quick = new Set([
  ...['JSON', 'Array.prototype', 'Object.prototype', 'Map.prototype', 'globalThis'],
  ...['performance', 'process', 'console', 'Error'],
]);

describe('an innocent job', () => {
  // All objects, all their members, in both ways: test/soak/contamination.test.ts.
  it('has its own output or none, whatever the previous job changed', {
    timeout: 60_000,
  }, async () => {
    const { begin } = await start();
    for (const [target, [method = '']] of targets.filter(([name]) => quick.has(name))) {
      await begin({ code: writeChange(target, method, 'fake') }, 3_000).end;
      expectRight(await begin({ value: innocentValue }, 3_000).end);
    }
    expect(readOutput(await begin({ value: innocentValue }).end)).toEqual(innocentValue);
  });

  it('completes correctly as soon as the thread is replaced', async () => {
    const { begin } = await start();
    expect((await begin({ code: 'JSON.stringify = fake' }).end).outcome.kind).toBe('completed');
    const { sink, end } = begin({ value: innocentValue, stream: true });
    expect((await end).outcome).toMatchObject({ kind: 'completed', output: 'chunks' });
    expect(sink.outputs).toEqual([innocentValue, [innocentValue]]);
    expect(readOutput(await begin({ count: true }).end)).toEqual({ jobs: 2, loads: 1 });
  });
});

describe('a job that changes a built-in', () => {
  it('keeps its own output, serialized with the original built-ins', async () => {
    const { begin } = await start();
    const code = 'JSON.stringify = Buffer.from = Buffer.prototype.toString = Object.keys = fake';
    const end = await begin({ code }).end;
    expect(end.outcome.kind).toBe('completed');
    expect(readOutput(end)).toBe('done');
  });

  it('is named in the logs of worker and job with the changed built-in, and teardown runs', async () => {
    const { begin, workerLog } = await start();
    const { lease, sink, end } = begin({ code: 'Array.prototype.map = fake' });
    await end;
    const line = { level: 40, job: lease.jobId, changed: 'Array.prototype.map' };
    expect(sink.logLines).toContainEqual(expect.objectContaining(line));
    expect(workerLog).toContainEqual(expect.objectContaining(line));
    await begin({ value: 1 }).end;
    expect(workerLog.map(({ msg }) => msg)).toContain('teardown');
  });

  it('is a suspect if other jobs ran in its thread before, and runs again alone', async () => {
    const { begin, executor } = await start();
    await begin({ value: 1 }).end;
    const { outcome } = await begin({ code: 'JSON.parse = fake' }).end;
    expect(outcome).toEqual({ kind: 'released', reason: 'suspect' });
    expect(executor.trouble).toBeUndefined();
  });

  it('makes its neighbours suspects, because their outputs may be wrong', async () => {
    const { begin } = await start({ concurrency: 4 });
    const neighbour = begin({ wait: true, value: 1 });
    await neighbour.hasBegun;
    const culprit = begin({ code: 'JSON.parse = fake' });
    const suspect = { kind: 'released', reason: 'suspect' };
    expect((await culprit.end).outcome).toEqual(suspect);
    expect((await neighbour.end).outcome).toEqual(suspect);
  });

  it('fails if its output is not JSON', async () => {
    const { begin } = await start();
    const code =
      "Object.defineProperty(Uint8Array.prototype.__proto__, 'length', { get: () => 2, configurable: true })";
    const { outcome, output } = await begin({ code }, 3_000).end;
    if (outcome.kind === 'completed') expect(() => readOutput({ output })).not.toThrow();
    else expect(output).toBeUndefined();
  });
});

describe("config.isolation 'job'", () => {
  const isolated = contaminatingHandler.replace('concurrency: 4', "isolation: 'job'");

  it('gives each job a thread of its own, with a setup of its own', async () => {
    const handlerPath = await writeHandler(isolated);
    const { begin, executor, workerLog } = await startThreads({ handlerPath, threads: 2 });
    expect(executor.slots).toBe(2);
    const ends = await Promise.all([1, 2, 3, 4].map(() => begin({ count: true }).end));
    expect(ends.map(readOutput)).toEqual(Array(4).fill({ jobs: 1, loads: 1 }));
    await executor.stop();
    expect(workerLog.filter(({ msg }) => msg === 'teardown').length).toBeGreaterThanOrEqual(4);
  });

  it("takes precedence over the worker's number of jobs per thread", async () => {
    const handlerPath = await writeHandler(isolated);
    const { executor } = await startThreads({ handlerPath, concurrency: 8 });
    expect(executor.slots).toBe(1);
  });
});
