// The worker's life against a scripted queue: setup, hello, taking, draining, failing.
import { describe, expect, it } from 'vitest';
import { createLog } from '../../../src/base/log.ts';
import { LinkError } from '../../../src/wire/link/worker-link.ts';
import { HandlerNotLoadedError } from '../../../src/worker/execution/executor.ts';
import type { WorkerOptions } from '../../../src/worker/worker.ts';
import {
  lease,
  type Script,
  script,
  startScript,
  welcome,
} from '../../support/workers/worker-script.ts';

const unavailable = (retryAfterMs?: number) =>
  new LinkError('unavailable', 'not now', { retryAfterMs });

/** A worker of a platform that cannot take jobs back. */
async function startKeepingJobs(options: Pick<WorkerOptions, 'drainMs'>): Promise<Script> {
  const started = script(options);
  started.link.onHello = async () => ({ ...welcome, takesBack: false });
  await started.worker.start();
  await started.clock.advance(0);
  return started;
}

describe('a starting worker', () => {
  it('says hello with its identity and slots once the handler is set up', async () => {
    const { link, worker } = await startScript({ slots: 3 });
    expect(link.hellos).toEqual([
      {
        workerId: 'w1',
        incarnation: 3,
        protocol: 1,
        version: '0.0.0',
        slots: 3,
        devices: [],
        outbox: [],
      },
    ]);
    expect(worker.health()).toMatchObject({ ready: true, state: 'ready', slots: 3, running: 0 });
  });

  it.each([
    [
      'its handler’s input schema',
      { kind: 'schema', text: '{"type":"object"}' } as const,
      '{"type":"object"}',
    ],
    ['that its handler has no input schema', { kind: 'none', reason: 'none' } as const, ''],
  ])('tells with each hello %s', async (_, describedInput, inputSchema) => {
    const { clock, executor, link, worker } = script({ handlerVersion: 7 });
    executor.onStart = async () => ({ describedInput });
    await worker.start();
    await clock.advance(0);
    link.lastTake.fail(new LinkError('unknown_worker', 'who are you'));
    await clock.advance(0);
    const told = { inputSchema, handlerVersion: 7 };
    expect(link.hellos).toEqual([expect.objectContaining(told), expect.objectContaining(told)]);
  });

  it('fails without a hello when the setup throws, and gives the reason', async () => {
    const { executor, link, worker } = script();
    executor.onStart = () => Promise.reject(new HandlerNotLoadedError('no such model'));
    await expect(worker.start()).rejects.toThrow(HandlerNotLoadedError);
    expect(await worker.ended).toEqual({ name: 'failed', reason: 'no such model' });
    const reason = expect.stringContaining('no such model');
    expect(worker.health()).toMatchObject({ ready: false, reason });
    expect([link.hellos.length, link.takes.length]).toEqual([0, 0]);
  });

  it('says hello again after a backoff while the platform is unavailable', async () => {
    const { clock, link, worker } = script();
    link.onHello = () => Promise.reject(unavailable());
    const started = worker.start();
    await clock.advance(0);
    expect(worker.health()).toMatchObject({ ready: false, state: 'starting' });
    expect(link.hellos).toHaveLength(1);
    link.onHello = async () => welcome;
    await clock.advance(1_000);
    await started;
    expect(worker.state.name).toBe('ready');
  });

  it('is not ready while its key is refused, gives the reason, and retries slowly', async () => {
    const { clock, link, worker } = script();
    link.onHello = () => Promise.reject(new LinkError('unauthorized', 'unknown key'));
    const started = worker.start();
    await clock.advance(29_000);
    expect(link.hellos).toHaveLength(1);
    expect(worker.health().reason).toContain('unknown key');
    link.onHello = async () => welcome;
    await clock.advance(1_000);
    await started;
    expect(worker.health().ready).toBe(true);
  });

  it('repeats the reason each minute while its key is refused, and fails after the timeout', async () => {
    const logged: string[] = [];
    const destination = { write: (line: string) => void logged.push(line) };
    const log = createLog({ level: 'error', destination });
    const { clock, link, worker } = script({ authTimeoutMs: 150_000, log });
    link.onHello = () => Promise.reject(new LinkError('unauthorized', 'unknown key'));
    const failed = expect(worker.start()).rejects.toMatchObject({ code: 'unauthorized' });
    await clock.advance(149_000);
    const refusals = () => logged.filter((line) => line.includes('refuses the key: unknown key'));
    expect(refusals()).toHaveLength(3);
    expect(worker.state.name).toBe('starting');
    await clock.advance(1_000);
    await failed;
    expect(await worker.ended).toMatchObject({
      ...{ name: 'failed', isRefused: true },
      reason: 'the platform has refused the key for 150 s: unknown key',
    });
  });

  it('retries slowly while its endpoint does not exist, says so, and fails after the timeout', async () => {
    const logged: string[] = [];
    const destination = { write: (line: string) => void logged.push(line) };
    const log = createLog({ level: 'error', destination });
    const { clock, link, worker } = script({ authTimeoutMs: 60_000, log });
    const missing = { retryAfterMs: 10_000, endpointMissing: true };
    link.onHello = () => Promise.reject(new LinkError('unavailable', 'no ecko', missing));
    const failed = expect(worker.start()).rejects.toMatchObject({ code: 'unauthorized' });
    await clock.advance(59_000);
    expect(link.hellos.length).toBeLessThan(8);
    expect(worker.health().reason).toContain('no such endpoint');
    expect(logged).toHaveLength(1);
    expect(logged[0]).not.toContain('"stack"');
    await clock.advance(1_000);
    await failed;
    expect(await worker.ended).toMatchObject({
      ...{ name: 'failed', isRefused: true },
      reason: 'the platform has had no such endpoint for 60 s: no ecko',
    });
    expect(logged.at(-1)).not.toContain('"stack"');
  });

  it('counts the refusals of its key anew after an outage', async () => {
    const { clock, link, worker } = script({ authTimeoutMs: 60_000 });
    const refuse = () => Promise.reject(new LinkError('unauthorized', 'unknown key'));
    link.onHello = refuse;
    const started = worker.start();
    await clock.advance(50_000);
    link.onHello = () => Promise.reject(unavailable());
    await clock.advance(20_000);
    link.onHello = refuse;
    await clock.advance(50_000);
    link.onHello = async () => welcome;
    await clock.advance(30_000);
    await started;
    expect(worker.state.name).toBe('ready');
  });

  it('fails when a newer process uses its worker ID', async () => {
    const { link, worker } = script();
    link.onHello = () =>
      Promise.reject(new LinkError('stale_incarnation', 'incarnation 4 is here'));
    await expect(worker.start()).rejects.toMatchObject({ code: 'stale_incarnation' });
    expect((await worker.ended).name).toBe('failed');
  });

  it('can be stopped before its welcome', async () => {
    const { clock, executor, link, worker } = script();
    link.onHello = () => Promise.reject(unavailable());
    const started = worker.start();
    await clock.advance(0);
    const result = await worker.drain();
    await clock.advance(10_000);
    await started;
    expect(result).toEqual({ delivered: true, undelivered: [], abandoned: 0 });
    expect([worker.state.name, executor.stopped, link.hellos.length]).toEqual(['stopped', true, 1]);
  });
});

describe('a worker that takes', () => {
  it('requests as many jobs as it has free slots, and names the leases it holds', async () => {
    const { clock, link } = await startScript({ slots: 4 });
    expect(link.lastTake.request).toMatchObject({ max: 4, waitMs: 20_000, held: [] });
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(0);
    expect(link.takes).toHaveLength(2);
    expect(link.lastTake.request).toMatchObject({ max: 2, held: ['token-a', 'token-b'] });
    expect(link.takes[1]?.request.takeId).not.toBe(link.takes[0]?.request.takeId);
    expect(link.takes.map(({ request }) => request.seq)).toEqual([1, 2]);
  });

  it('asks for no jobs while all slots are taken, and asks again when one is free', async () => {
    const { clock, executor, link } = await startScript({ slots: 1 });
    link.lastTake.answer([lease('a')]);
    await clock.advance(60_000);
    expect(link.takes).toHaveLength(1);
    executor.last.complete();
    await clock.advance(0);
    expect(link.lastTake.request).toMatchObject({ max: 1, held: [] });
    expect(link.takes).toHaveLength(2);
  });

  it('holds a lease until its outcome is acknowledged, although the slot is free earlier', async () => {
    const { clock, executor, link } = await startScript({ slots: 1 });
    link.onReport = () => new Promise(() => {});
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.last.complete();
    await clock.advance(0);
    expect(link.lastTake.request).toMatchObject({ max: 1, held: ['token-a'] });
  });

  it('repeats a failed take unchanged, so that the platform repeats a lost answer', async () => {
    const { clock, link } = await startScript();
    link.lastTake.fail(unavailable());
    await clock.advance(1_000);
    expect(link.takes).toHaveLength(2);
    expect(link.takes[1]?.request).toEqual(link.takes[0]?.request);
  });

  it('waits at least as long as the platform asks for', async () => {
    const { clock, link } = await startScript();
    link.lastTake.fail(unavailable(7_000));
    await clock.advance(6_999);
    expect(link.takes).toHaveLength(1);
    await clock.advance(2_000);
    expect(link.takes).toHaveLength(2);
  });

  it('is not ready while a take is overdue, and gives large inputs time to arrive', async () => {
    const { clock, link, worker } = await startScript();
    await clock.advance(31_000);
    expect(worker.health()).toMatchObject({ ready: false });
    expect(link.takes[0]?.signal.aborted).toBe(false);
    await clock.advance(290_000);
    expect(link.takes[0]?.signal.aborted).toBe(true);
    expect(link.takes).toHaveLength(2);
    link.lastTake.answer([]);
    await clock.advance(0);
    expect(worker.health().reason).not.toBe('the platform does not answer takes');
  });

  it('says hello again when the platform does not know it, and continues', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.fail(new LinkError('unknown_worker', 'who are you'));
    await clock.advance(0);
    expect(link.hellos).toHaveLength(2);
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    expect(executor.executions).toHaveLength(1);
  });

  it('stops taking when its key is refused, and continues when the key is accepted again', async () => {
    const { clock, link, worker } = await startScript();
    link.lastTake.fail(new LinkError('unauthorized', 'key revoked'));
    await clock.advance(29_000);
    expect(link.takes).toHaveLength(1);
    expect(worker.health().reason).toContain('key revoked');
    await clock.advance(1_000);
    expect(link.takes).toHaveLength(2);
  });

  it('slows down if the platform answers at once with no jobs', async () => {
    const { clock, link } = await startScript();
    for (let answers = 0; answers < 20; answers++) {
      link.lastTake.answer([]);
      await clock.advance(0);
    }
    expect(link.takes.length).toBeLessThan(6);
    await clock.advance(1_000);
    expect(link.takes.length).toBeGreaterThan(4);
  });

  it('waits for jobs no longer than an incomplete batch does, as often as it may', async () => {
    const { clock, executor, link, worker } = script();
    executor.freeForMs = 12.4;
    await worker.start();
    await clock.advance(0);
    for (let take = 1; take <= 10; take++) {
      expect(link.takes).toHaveLength(take);
      expect(link.lastTake.request.waitMs).toBe(13);
      link.lastTake.answer([]);
      await clock.advance(0);
    }
    executor.freeForMs = undefined;
    link.lastTake.answer([]);
    await clock.advance(0);
    expect(link.lastTake.request.waitMs).toBe(20_000);
  });

  it('slows down during a long wait of an incomplete batch too', async () => {
    const { clock, executor, link, worker } = script();
    executor.freeForMs = 5_000;
    await worker.start();
    await clock.advance(0);
    for (let answers = 0; answers < 10 && link.takes.length === answers + 1; answers++) {
      link.lastTake.answer([]);
      await clock.advance(0);
    }
    expect(link.takes.length).toBeLessThan(6);
  });

  it('requests the number of jobs that it has seen to be free, though a batch starts meanwhile', async () => {
    const { clock, executor, link, worker } = script();
    let reads = 0;
    Object.defineProperty(executor, 'free', { get: () => (reads++ === 0 ? 3 : 0) });
    await worker.start();
    await clock.advance(0);
    expect(link.takes.map(({ request }) => request.max)).toEqual([3]);
  });

  it('starts a lease once even if it receives it twice', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    expect(executor.executions).toHaveLength(1);
  });

  it('takes no jobs while undelivered reports fill its memory', async () => {
    const { clock, executor, link } = await startScript({ slots: 1, maxOutboxBytes: 100 });
    const answer = Promise.withResolvers<{ answer: 'applied' }[]>();
    link.onReport = () => answer.promise;
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.last.complete(JSON.stringify('x'.repeat(200)));
    await clock.advance(1_000);
    expect(link.takes).toHaveLength(1);
    answer.resolve([{ answer: 'applied' }]);
    await clock.advance(0);
    expect(link.takes).toHaveLength(2);
  });

  it('takes jobs again once a running job’s chunks have left its memory', async () => {
    const { clock, executor, link } = await startScript({ slots: 2, maxOutboxBytes: 100 });
    const answer = Promise.withResolvers<{ answer: 'applied' }[]>();
    link.onReport = () => answer.promise;
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.last.sink.chunks({ sizes: [200], bytes: Buffer.alloc(200) });
    link.lastTake.answer([]);
    await clock.advance(1_000);
    expect(link.takes).toHaveLength(2);
    answer.resolve([{ answer: 'applied' }]);
    await clock.advance(0);
    expect(link.takes).toHaveLength(3);
  });
});

describe('a job that must run alone', () => {
  it('starts when no other job runs, and the worker takes no jobs until it has ended', async () => {
    const { clock, executor, link } = await startScript({ slots: 4 });
    link.lastTake.answer([lease('other'), lease('alone', { solo: true })]);
    await clock.advance(0);
    expect(executor.executions.map(({ lease: { jobId } }) => jobId)).toEqual(['other']);
    executor.last.complete();
    await clock.advance(0);
    expect(executor.last.lease.jobId).toBe('alone');
    expect(link.takes).toHaveLength(1);
    executor.last.complete();
    await clock.advance(0);
    expect(link.takes).toHaveLength(2);
  });

  it('returns to the queue if it could not start within half of its time', async () => {
    const { clock, link } = await startScript();
    link.lastTake.answer([
      lease('other'),
      lease('alone', { solo: true, executionTimeoutMs: 10_000 }),
    ]);
    await clock.advance(5_000);
    expect(link.reported).toEqual(['alone#1 released']);
  });

  it('is reported as cancelled without having run if it is cancelled while it waits', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.answer([lease('other'), lease('alone', { solo: true })]);
    await clock.advance(0);
    const ended = { jobId: 'alone', token: 'token-alone', verdict: 'cancelled' as const };
    link.lastRenewal.answer({ ended: [ended], drain: false });
    await clock.advance(0);
    const outcome = { kind: 'cancelled', executionMs: 0, stopped: 'signal' };
    expect(link.reportCalls.flatMap(({ reports }) => reports)).toMatchObject([
      { jobId: 'alone', kind: 'outcome', outcome },
    ]);
    expect(executor.executions.map(({ lease: { jobId } }) => jobId)).toEqual(['other']);
  });
});

describe('an attempt', () => {
  it('is stopped as timed out after the shorter of the limits of job and handler', async () => {
    const { clock, executor, link, worker } = script();
    executor.onStart = async () => ({ timeoutMs: 2_000 });
    await worker.start();
    await clock.advance(0);
    link.lastTake.answer([lease('a', { executionTimeoutMs: 1_000 }), lease('b')]);
    await clock.advance(999);
    const [a, b] = executor.executions;
    expect([a?.timeoutMs, b?.timeoutMs]).toEqual([1_000, 2_000]);
    expect(a?.stops).toEqual([]);
    await clock.advance(1);
    expect([a?.stops, b?.stops]).toEqual([['timeout'], []]);
    await clock.advance(1_000);
    expect(b?.stops).toEqual(['timeout']);
  });

  it('is not stopped after its end', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.answer([lease('a', { executionTimeoutMs: 1_000 })]);
    await clock.advance(0);
    executor.last.complete();
    await clock.advance(5_000);
    expect(executor.last.stops).toEqual([]);
    expect(link.reported).toEqual(['a#1 completed']);
  });
});

describe('a draining worker', () => {
  it('takes no jobs, lets running jobs end, delivers their reports and says bye', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    const drained = worker.drain();
    link.lastTake.fail(unavailable());
    await clock.advance(20_000);
    expect(worker.state).toEqual({ name: 'draining', askedBy: 'caller' });
    expect(executor.last.stops).toEqual([]);
    executor.last.complete();
    await clock.advance(0);
    expect(await drained).toEqual({ delivered: true, undelivered: [], abandoned: 0 });
    expect(link.reported).toEqual(['a#1 completed']);
    expect(link.byes).toEqual([{ workerId: 'w1', incarnation: 3, reason: 'drained', outbox: [] }]);
    expect([link.takes.length, executor.stopped]).toEqual([2, true]);
    expect((await worker.ended).name).toBe('stopped');
  });

  it('releases leases that arrive after it has started to drain', async () => {
    const { clock, executor, link, worker } = await startScript();
    const drained = worker.drain();
    await clock.advance(0);
    expect(link.lastTake.signal.aborted).toBe(true);
    expect(link.byes).toEqual([]);
    link.lastTake.answer([lease('late')]);
    await clock.advance(0);
    expect(await drained).toMatchObject({ delivered: true });
    expect(link.reported).toEqual(['late#1 released']);
    expect(executor.executions).toEqual([]);
  });

  it('runs a late job for the rest of drainMs if the platform cannot take it back', async () => {
    const { clock, executor, link, worker } = await startKeepingJobs({ drainMs: 8_000 });
    void worker.drain();
    await clock.advance(5_000);
    link.lastTake.answer([lease('late')]);
    await clock.advance(2_999);
    expect(executor.last.stops).toEqual([]);
    await clock.advance(1);
    expect(executor.last.stops).toEqual(['shutdown']);
  });

  it('runs a late job to its end after a drain by the platform that cannot take it back', async () => {
    const { clock, executor, link, worker } = await startKeepingJobs({ drainMs: 8_000 });
    link.lastRenewal.answer({ ended: [], drain: true });
    await clock.advance(5_000);
    link.lastTake.answer([lease('late')]);
    await clock.advance(500_000);
    expect(executor.last.stops).toEqual([]);
    executor.last.complete();
    expect(await worker.ended).toMatchObject({ name: 'stopped', result: { abandoned: 0 } });
    expect(link.reported).toEqual(['late#1 completed']);
  });

  it('keeps renewing the leases of running jobs', async () => {
    const { clock, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    const drained = worker.drain();
    link.lastTake.fail(unavailable());
    link.lastRenewal.answer({ ended: [], drain: false });
    await clock.advance(5_000);
    expect(link.lastRenewal.request.leases).toEqual([
      { jobId: 'a', token: 'token-a', stopping: false },
    ]);
    void drained;
  });

  it('aborts running jobs after drainMs and releases them after forceMs', async () => {
    const { clock, executor, link, worker } = await startScript({ drainMs: 8_000, forceMs: 2_000 });
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(0);
    const drained = worker.drain();
    link.lastTake.fail(unavailable());
    await clock.advance(7_999);
    expect(executor.executions.map(({ stops }) => stops)).toEqual([[], []]);
    await clock.advance(1);
    expect(executor.executions.map(({ stops }) => stops)).toEqual([['shutdown'], ['shutdown']]);
    executor.executions[0]?.finish({
      outcome: { kind: 'released', reason: 'drain' },
      output: undefined,
    });
    await clock.advance(2_000);
    expect(await drained).toEqual({ delivered: true, undelivered: [], abandoned: 1 });
    expect(link.reported).toEqual(['a#1 released', 'b#1 released']);
  });

  it('lets running jobs continue beyond drainMs after a drain by the platform', async () => {
    const { clock, executor, link, worker } = await startScript({ drainMs: 8_000 });
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    link.lastRenewal.answer({ ended: [], drain: true });
    await clock.advance(500_000);
    expect(worker.state).toEqual({ name: 'draining', askedBy: 'platform' });
    expect(executor.last.stops).toEqual([]);
    executor.last.complete();
    link.lastTake.fail(unavailable());
    await clock.advance(0);
    expect(await worker.ended).toMatchObject({ name: 'stopped', result: { abandoned: 0 } });
    expect(link.reported).toEqual(['a#1 completed']);
  });

  it('gives running jobs drainMs after a later signal', async () => {
    const { clock, executor, link, worker } = await startScript({ drainMs: 8_000 });
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    link.lastRenewal.answer({ ended: [], drain: true });
    await clock.advance(60_000);
    void worker.drain();
    await clock.advance(7_999);
    expect(executor.last.stops).toEqual([]);
    await clock.advance(1);
    expect(executor.last.stops).toEqual(['shutdown']);
  });

  it('waits for running jobs no more after stop', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    const drained = worker.drain();
    link.lastTake.fail(unavailable());
    await clock.advance(1_000);
    const stopped = worker.stop();
    await clock.advance(0);
    expect(executor.last.stops).toEqual(['shutdown']);
    executor.last.complete();
    await clock.advance(0);
    expect(await stopped).toBe(await drained);
  });

  it('stops even if the platform is gone, and names the undelivered outcomes', async () => {
    const { clock, executor, link, worker } = await startScript({
      drainMs: 10_000,
      flushMs: 4_000,
    });
    link.onReport = () => Promise.reject(unavailable());
    link.onBye = () => Promise.reject(unavailable());
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.last.complete();
    const drained = worker.drain();
    link.lastTake.fail(unavailable());
    // The drain, the flush, and a second for the bye.
    await clock.advance(15_000);
    expect(worker.state.name).toBe('stopped');
    expect(await drained).toEqual({
      delivered: false,
      undelivered: [{ jobId: 'a', attempt: 1, token: 'token-a' }],
      abandoned: 0,
    });
  });

  it('delivers outcomes of the drain to a platform that returns during it', async () => {
    const { clock, executor, link, worker } = await startScript({
      drainMs: 30_000,
      flushMs: 4_000,
    });
    const deliver = link.onReport;
    link.onReport = () => Promise.reject(unavailable());
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.last.complete();
    const drained = worker.drain();
    link.lastTake.fail(unavailable());
    await clock.advance(15_000);
    link.onReport = deliver;
    await clock.advance(10_000);
    expect(await drained).toEqual({ delivered: true, undelivered: [], abandoned: 0 });
  });

  it('stops when the platform asks for it', async () => {
    const { clock, link, worker } = await startScript();
    link.lastRenewal.answer({ ended: [], drain: true });
    await clock.advance(0);
    expect(worker.state).toEqual({ name: 'draining', askedBy: 'platform' });
    link.lastTake.fail(unavailable());
    await clock.advance(0);
    expect((await worker.ended).name).toBe('stopped');
    expect(link.byes).toHaveLength(1);
  });
});

describe('a worker whose ID a newer process has taken over', () => {
  it('stops its jobs as lost and fails without a bye', async () => {
    const { clock, executor, link, worker } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    link.lastRenewal.fail(new LinkError('stale_incarnation', 'incarnation 4 is here'));
    expect(await worker.ended).toEqual({ name: 'failed', reason: 'incarnation 4 is here' });
    expect(executor.last.stops).toEqual(['lost']);
    expect([executor.stopped, link.byes.length]).toEqual([true, 0]);
  });
});

describe('the health of a worker', () => {
  it('is not ready while the executor cannot run jobs', async () => {
    const { executor, worker } = await startScript();
    executor.trouble = 'threads die at setup';
    expect(worker.health()).toMatchObject({ ready: false, reason: 'threads die at setup' });
  });

  it('stays ready while all slots are busy, however long', async () => {
    const { clock, link, worker } = await startScript({ slots: 1 });
    link.lastTake.answer([lease('a')]);
    for (let renewals = 0; renewals < 20; renewals++) {
      await clock.advance(5_000);
      link.lastRenewal.answer({ ended: [], drain: false });
    }
    await clock.advance(0);
    expect(worker.health()).toMatchObject({ ready: true, running: 1 });
  });
});
