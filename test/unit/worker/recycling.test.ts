// When a worker leaves for a fresh process, and what it does about its memory until then: against a
// scripted queue, with the memory that the test says.
import { describe, expect, it } from 'vitest';
import { LinkError } from '../../../src/wire/link/worker-link.ts';
import { lease, startScript } from '../../support/workers/worker-script.ts';

const unavailable = new LinkError('unavailable', 'not now');

/** A limit of 1,000 bytes, of which `rssBytes` are taken. */
async function startLimited(slots = 4) {
  const memory = { rssBytes: 100 };
  const options = { memoryLimitBytes: 1_000, readRssBytes: () => memory.rssBytes };
  return { memory, ...(await startScript({ slots, ...options })) };
}

describe('a recycled worker', () => {
  it('takes no jobs, lets its jobs end, and stops with the reason', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    worker.recycle('memory grew');
    expect(worker.state).toEqual({ name: 'draining', askedBy: 'itself' });
    link.lastTake.fail(unavailable);
    await clock.advance(20_000);
    expect(executor.last.stops).toEqual([]);
    executor.last.complete();
    const end = await worker.ended;
    expect(end).toMatchObject({ recycle: { reason: 'memory grew', isStuck: false } });
    expect(link.reported).toEqual(['a#1 completed']);
    expect(link.byes).toHaveLength(1);
  });

  it('keeps its reason if it was already stopping', async () => {
    const { link, worker } = await startScript();
    const drained = worker.drain();
    worker.recycle('memory grew');
    link.lastTake.fail(unavailable);
    await drained;
    expect(await worker.ended).not.toHaveProperty('recycle');
  });
});

describe('a worker with a stuck thread', () => {
  it('stops at once: stops its jobs, delivers reports, says bye, and asks to be killed', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.getStuck('in native code');
    link.lastTake.fail(unavailable);
    await clock.advance(0);
    expect(executor.last.stops).toEqual(['shutdown']);
    executor.last.finish({ outcome: { kind: 'released', reason: 'drain' }, output: undefined });
    const end = await worker.ended;
    expect(end).toMatchObject({ recycle: { reason: 'in native code', isStuck: true } });
    expect(link.reported).toEqual(['a#1 released']);
    expect(link.byes).toHaveLength(1);
  });

  it('asks to be killed even if it was already stopping', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    void worker.drain();
    link.lastTake.fail(unavailable);
    executor.getStuck('in native code');
    await clock.advance(0);
    expect(executor.last.stops).toEqual(['shutdown']);
    await clock.advance(3_000);
    expect(await worker.ended).toMatchObject({ recycle: { isStuck: true } });
  });
});

describe('a worker whose memory grows', () => {
  it('takes no jobs above 80 % of the limit until its memory use has fallen', async () => {
    const { clock, executor, link, memory } = await startLimited();
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(0);
    memory.rssBytes = 801;
    await clock.advance(250);
    link.lastTake.answer([]);
    await clock.advance(10_000);
    expect(link.takes).toHaveLength(2);
    expect(executor.executions.map(({ stops }) => stops)).toEqual([[], []]);
    memory.rssBytes = 800;
    await clock.advance(250);
    expect(link.takes).toHaveLength(3);
  });

  it('stops above 80 % for a new process as soon as no job runs', async () => {
    const { clock, executor, link, memory, worker } = await startLimited(1);
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    memory.rssBytes = 900;
    await clock.advance(250);
    executor.last.complete();
    await clock.advance(250);
    expect(link.takes).toHaveLength(1);
    expect(await worker.ended).toMatchObject({ recycle: { isStuck: false } });
    expect(link.reported).toEqual(['a#1 completed']);
  });

  it('continues above 80 % before its first job, because a new process would use as much', async () => {
    const { clock, memory, worker } = await startLimited();
    memory.rssBytes = 900;
    await clock.advance(1_000);
    expect(worker.state.name).toBe('ready');
  });

  it('stops the only running job above the limit, and continues if that was enough', async () => {
    const { clock, executor, link, memory, worker } = await startLimited();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    memory.rssBytes = 1_001;
    await clock.advance(250);
    expect(executor.last.stops[0]).toBe('memory');
    expect(executor.last.stopDetail).toContain('the limit is');
    executor.last.complete();
    memory.rssBytes = 200;
    await clock.advance(1_000);
    expect(worker.state.name).toBe('ready');
  });

  it('stops above the limit after the only job has ended if that was not enough', async () => {
    const { clock, executor, link, memory, worker } = await startLimited();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    memory.rssBytes = 1_001;
    await clock.advance(250);
    executor.last.complete();
    await clock.advance(250);
    link.lastTake.fail(unavailable);
    await clock.advance(0);
    expect(await worker.ended).toMatchObject({ recycle: { isStuck: false } });
  });

  it('does not blame the remaining job above the limit when its neighbour has just ended', async () => {
    const { clock, executor, link, memory, worker } = await startLimited();
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(250);
    executor.executions[0]?.complete();
    memory.rssBytes = 1_001;
    await clock.advance(250);
    expect(executor.last.stops[0]).toBe('suspect');
    link.lastTake.fail(unavailable);
    executor.last.finish({ outcome: { kind: 'released', reason: 'suspect' }, output: undefined });
    expect(await worker.ended).toMatchObject({ recycle: { isStuck: false } });
  });

  it('releases several running jobs above the limit as suspects, and stops', async () => {
    const { clock, executor, link, memory, worker } = await startLimited();
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(0);
    memory.rssBytes = 1_001;
    await clock.advance(250);
    const [a, b] = executor.executions;
    expect([a?.stops[0], b?.stops[0]]).toEqual(['suspect', 'suspect']);
    link.lastTake.fail(unavailable);
    a?.finish({ outcome: { kind: 'released', reason: 'suspect' }, output: undefined });
    // The other one does not end in its time.
    await clock.advance(3_000);
    expect(await worker.ended).toMatchObject({ recycle: { isStuck: false } });
    const outcomes = link.reportCalls.flatMap(({ reports }) => reports);
    const released = { kind: 'released', reason: 'suspect' };
    expect(outcomes).toMatchObject([{ outcome: released }, { outcome: released }]);
  });
});

describe('a worker whose process has lost its GPU context', () => {
  const words = 'CUDA error: device-side assert triggered';
  const lost = {
    outcome: {
      kind: 'failed',
      executionMs: 1,
      error: { code: 'gpu_context_lost', message: words },
      retry: 'default',
    },
    output: undefined,
    contextLoss: words,
  } as const;

  it('runs nothing more, returns the other jobs, and is replaced', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a'), lease('b'), { ...lease('c'), solo: true }]);
    await clock.advance(0);
    const [culprit, neighbour] = executor.executions;
    culprit?.finish(lost);
    await clock.advance(0);
    expect(neighbour?.stops).toEqual(['neighbour']);
    neighbour?.finish(lost);
    await clock.advance(0);
    expect(await worker.ended).toMatchObject({
      recycle: { reason: `the process has lost its GPU context: ${words}`, isStuck: false },
    });
    expect(executor.executions).toHaveLength(2);
    expect(link.reported.toSorted()).toEqual(['a#1 failed', 'b#1 released', 'c#1 released']);
  });

  it('keeps the end of a job whose input or output is at fault, and of one that completes', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.answer([lease('a'), lease('b'), lease('c')]);
    await clock.advance(0);
    const [culprit, refused, completed] = executor.executions;
    culprit?.finish(lost);
    await clock.advance(0);
    const error = { code: 'input_invalid', message: 'no' } as const;
    const outcome = { kind: 'failed', executionMs: 1, error, retry: 'never' } as const;
    refused?.finish({ outcome, output: undefined });
    completed?.complete();
    await clock.advance(0);
    expect(link.reported.toSorted()).toEqual(['a#1 failed', 'b#1 failed', 'c#1 completed']);
  });

  it('returns a job that an open take still brings', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(0);
    executor.executions[0]?.finish(lost);
    await clock.advance(0);
    link.lastTake.answer([lease('late')]);
    await clock.advance(0);
    expect(link.reported).toContain('late#1 released');
    expect(executor.executions).toHaveLength(2);
  });

  it('is not replaced if the words come from the input of the job', async () => {
    const { clock, executor, link, worker } = await startScript();
    const input = Buffer.from(JSON.stringify({ text: `why ${words}?` }));
    link.lastTake.answer([{ ...lease('a'), input }]);
    await clock.advance(0);
    executor.last.finish(lost);
    await clock.advance(0);
    expect(worker.state.name).toBe('ready');
    const [outcome] = link.reportCalls.flatMap(({ reports }) => reports);
    expect(outcome).toMatchObject({ outcome: { error: { code: 'handler_error' } } });
  });
});
