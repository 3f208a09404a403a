// What a worker reports of the GPUs that its attempts used, and what it does when one of them ran out of
// their memory: a scripted queue and executor.
import { describe, expect, it } from 'vitest';
import type { Device, Report } from '../../../src/wire/link/worker-link.ts';
import { lease, type Script, startScript } from '../../support/workers/worker-script.ts';

const gpu: Device = { kind: 'gpu', index: 0, uuid: 'GPU-1', name: 'a', memoryBytes: 1 };
const cpu: Device = { kind: 'cpu', index: 0, uuid: 'cpu-0', name: 'b', memoryBytes: 1 };

async function start(devices: Device[]): Promise<Script> {
  const started = await startScript({ devices });
  started.link.lastTake.answer([lease('a')]);
  await started.clock.advance(0);
  return started;
}

function usageOf(report: Report | undefined): unknown {
  return report?.kind === 'outcome' ? report.usage : 'no outcome';
}

describe('the outcome of an attempt', () => {
  it('says what it used of GPUs', async () => {
    const { clock, executor, link, worker } = await start([gpu, { ...gpu, uuid: 'GPU-2' }]);
    await clock.advance(500);
    worker.noteGpuFigures({
      vramScope: 'process',
      vramBytes: 7,
      utilization: 0.5,
      powerWatts: 600,
    });
    await clock.advance(500);
    executor.last.complete();
    await clock.advance(0);
    expect(usageOf(link.reportCalls.at(-1)?.reports.at(-1))).toEqual({
      gpu: {
        ...{ seconds: 2, vramPeakBytes: 7, vramMeanBytes: 7, vramScope: 'process' },
        ...{ utilizationMean: 0.5, energyJoules: 600, shared: false },
      },
    });
  });

  it.each([
    ['released', { kind: 'released', reason: 'neighbour' } as const],
    ['cancelled', { kind: 'cancelled', executionMs: 1, stopped: 'signal' } as const],
  ])('says it also when %s', async (_, outcome) => {
    const { clock, executor, link } = await start([gpu]);
    await clock.advance(250);
    executor.last.finish({ outcome, output: undefined });
    await clock.advance(0);
    const usage = usageOf(link.reportCalls.at(-1)?.reports.at(-1));
    expect(usage).toEqual({ gpu: { seconds: 0.25, shared: false } });
  });

  it('says nothing without a GPU', async () => {
    const { clock, executor, link, worker } = await start([cpu]);
    worker.noteGpuFigures({ vramScope: 'process', vramBytes: 7 });
    executor.last.complete();
    await clock.advance(0);
    expect(usageOf(link.reportCalls.at(-1)?.reports.at(-1))).toBe(undefined);
  });

  it('says how long it waited for the start of a model process, also without a GPU', async () => {
    const { clock, executor, link } = await start([cpu]);
    executor.last.sink.held?.(true);
    await clock.advance(300);
    executor.last.sink.held?.(false);
    await clock.advance(50);
    executor.last.sink.held?.(true);
    await clock.advance(200);
    executor.last.complete();
    await clock.advance(0);
    expect(link.reportCalls.at(-1)?.reports.at(-1)).toMatchObject({ waitedMs: 500 });
  });

  it('says nothing if the attempt never began', async () => {
    const { clock, link, worker } = await startScript({ devices: [gpu] });
    void worker.drain();
    link.lastTake.answer([lease('late')]);
    await clock.advance(0);
    expect(usageOf(link.reportCalls.at(-1)?.reports.at(-1))).toBe(undefined);
  });
});

describe('a worker whose job ran out of GPU memory', () => {
  const MIB = 2 ** 20;

  async function runOut() {
    const started = await startScript({ devices: [gpu] });
    const { clock, executor, link, worker } = started;
    const note = (mib: number) =>
      worker.noteGpuFigures({ vramScope: 'process', vramBytes: mib * MIB });
    note(1_000);
    link.lastTake.answer([lease('a')]);
    await clock.advance(500);
    note(9_000);
    const takes = link.takes.length;
    executor.last.finish({
      outcome: {
        ...{ kind: 'failed', executionMs: 500, retry: 'default' },
        error: { code: 'gpu_out_of_memory', message: 'CUDA out of memory' },
      },
      output: undefined,
    });
    return { ...started, note, takes };
  }

  it('asks for a new process if the memory does not come back', async () => {
    const { clock, link, note, worker } = await runOut();
    // The take that was open has the slots of before.
    link.lastTake.answer([]);
    await clock.advance(1_000);
    note(9_000);
    await clock.advance(10_000);
    expect(await worker.ended).toMatchObject({
      name: 'stopped',
      recycle: {
        reason: 'a job ran out of GPU memory, and 8000 MiB more than before it are still in use',
      },
    });
  });

  it.each([
    ['the memory is back', 1_000, true],
    ['10 s have passed without a sample', 10_000, false],
  ])('takes jobs again when %s', async (_, waitMs, hasSample) => {
    const { clock, link, note, worker } = await runOut();
    link.lastTake.answer([]);
    await clock.advance(waitMs - 1);
    const before = link.takes.length;
    await clock.advance(1);
    if (hasSample) note(1_100);
    await clock.advance(1);
    expect(link.takes.length).toBe(before + 1);
    expect(worker.state.name).toBe('ready');
  });
});

describe('the outcome of a short attempt', () => {
  async function startShort() {
    const started = await startScript({ devices: [gpu] });
    const { clock, executor, link, worker } = started;
    const note = (vramBytes: number) =>
      worker.noteGpuFigures({ vramScope: 'process', vramBytes, powerWatts: 100 });
    const begin = async (name: string) => {
      link.lastTake.answer([lease(name)]);
      await clock.advance(100);
      executor.last.complete();
      await clock.advance(0);
    };
    const usage = () => usageOf(link.reportCalls.at(-1)?.reports.at(-1));
    return { ...started, begin, note, usage };
  }

  it('waits for a sample if the last one found no memory, and the wait does not count', async () => {
    const { begin, clock, link, note, usage } = await startShort();
    note(0);
    await begin('a');
    expect(link.reported).toEqual([]);
    await clock.advance(400);
    note(500);
    await clock.advance(0);
    expect(link.reported).toEqual(['a#1 completed']);
    expect(usage()).toMatchObject({
      gpu: { seconds: 0.1, vramPeakBytes: 500, vramMeanBytes: 500 },
    });
    await begin('b');
    expect(usage()).toMatchObject({ gpu: { vramPeakBytes: 500 } });
    expect(link.reported).toEqual(['a#1 completed', 'b#1 completed']);
  });

  it('does not wait without end, nor again if the process uses no memory', async () => {
    const { begin, clock, link, note, usage } = await startShort();
    note(0);
    await begin('a');
    await clock.advance(1_500);
    expect(link.reported).toEqual(['a#1 completed']);
    expect(usage()).toEqual({ gpu: { seconds: 0.1, energyJoules: 10, shared: false } });
    await begin('b');
    note(0);
    await clock.advance(0);
    await begin('c');
    expect(link.reported).toEqual(['a#1 completed', 'b#1 completed', 'c#1 completed']);
  });
});
