// report: the answer to each report, and its effect on the job.
import { describe, expect, it } from 'vitest';
import { sampleReports } from '../../../src/conformance/platform/scripted-worker.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  logOf,
  outcomeOf,
  progressOf,
} from '../../support/queue-platform.ts';
import type { LinkStage } from './link.ts';

export function describeReports(stage: LinkStage): void {
  describe.each(Object.entries(sampleReports))('a report of %s', (_, make) => {
    it('is a duplicate also after a restart of the platform', async () => {
      await stage.platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.reportOne(make(lease, 1));
      await stage.restart();
      expect(await hand.reportOne(make(lease, 1))).toEqual({ answer: 'duplicate' });
    });

    it('is gone if its job is gone', async () => {
      const { platform } = stage;
      await platform.submit({ ttl: 10_000 });
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.clock.advance(10_000);
      expect(await hand.reportOne(make(lease, 1))).toEqual({ answer: 'gone' });
    });

    it('makes the attempt count as started', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.reportOne(make(lease, 1));
      const { lease: stored, status } = await platform.job(id);
      expect(status === 'COMPLETED' || stored?.started).toBe(true);
    });

    it('restores a lost lease if no other worker has the job', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.renew([lease]);
      await platform.clock.advance(15_000);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 1 });
      expect(await hand.reportOne(make(lease, 1))).toEqual({ answer: 'applied' });
      const job = await platform.job(id);
      expect(job).toMatchObject({ failures: 0, history: [], attempt: 1 });
      expect(job.status).toMatch(/IN_PROGRESS|COMPLETED/);
      expect((await platform.health()).jobs.retried).toBe(0);
    });
  });

  describe('reports', () => {
    it('may be a thousand in one call', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      const reports = Array.from({ length: 1_000 }, (_, i) => logOf(lease, i + 1, `${i}\n`));
      const replies = await hand.report(reports);
      expect(replies).toEqual(Array.from({ length: 1_000 }, () => ({ answer: 'applied' })));
      const { lines } = await platform.queue.jobs.log({ endpointId: ENDPOINT, id }, 0);
      const expected = Array.from({ length: 1_000 }, (_, i) => `${i}\n`).join('');
      expect(Buffer.from(lines).toString()).toBe(expected);
    });

    it('may be empty', async () => {
      expect(await (await stage.worker()).report([])).toEqual([]);
    });

    it('are refused if their body does not match the header, and nothing of the call is stored', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      const broken = { ...chunksOf(lease, 2, 0, ['a']), body: Buffer.from('{}') };
      const call = hand.report([progressOf(lease, 1, 0.1), broken]);
      await expect(call).rejects.toMatchObject({ name: 'LinkError', code: 'invalid' });
      expect((await platform.job(id)).lastSeq).toBe(0);
    });

    it('are refused if chunks are missing, and nothing of them is stored', async () => {
      const id = await stage.platform.submit();
      const hand = await stage.worker();
      const call = hand.reportOne(chunksOf(await hand.takeOne(), 1, 5, ['a']));
      await expect(call).rejects.toMatchObject({ name: 'LinkError', code: 'invalid' });
      expect(await stage.platform.job(id)).toMatchObject({ lastSeq: 0, chunkCount: 0 });
    });

    it('are refused if their progress is not JSON, because the record contains it', async () => {
      const id = await stage.platform.submit();
      const hand = await stage.worker();
      const report = { ...progressOf(await hand.takeOne(), 1, 0), body: Buffer.from('{"half"') };
      const call = hand.reportOne(report);
      await expect(call).rejects.toMatchObject({ name: 'LinkError', code: 'invalid' });
      expect(await stage.platform.record(id)).toMatchObject({ status: 'IN_PROGRESS' });
    });
  });

  describe('chunks', () => {
    it('are stored unchanged, in order', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.report([chunksOf(lease, 1, 0, ['ä', { b: [1] }]), chunksOf(lease, 2, 2, [null])]);
      const batches = await platform.store.read((tx) =>
        tx.chunks({ endpointId: ENDPOINT, id, attempt: 1, from: 0, maxBytes: 1_000 }),
      );
      expect(batches.map(({ first }) => first)).toEqual([0, 2]);
      expect(batches.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual([
        '{"output":"ä","metrics":{}},{"output":{"b":[1]},"metrics":{}}',
        '{"output":null,"metrics":{}}',
      ]);
    });

    it('are dropped when the next attempt starts', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.reportOne(chunksOf(lease, 1, 0, ['a']));
      await hand.finish(lease, failed, { seq: 2 });
      expect((await platform.job(id)).chunkCount).toBe(1);
      await platform.clock.advance(1_000);
      await hand.takeOne();
      expect(await platform.job(id)).toMatchObject({ attempt: 2, chunkCount: 0, chunkBytes: 0 });
      const batches = await platform.store.read((tx) =>
        tx.chunks({ endpointId: ENDPOINT, id, attempt: 1, from: 0, maxBytes: 1_000 }),
      );
      expect(batches).toEqual([]);
    });

    it('fail the job and stop the worker if they exceed the total limit', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      const renew = await platform.park('renew', () => hand.renew([lease], { waitMs: 5_000 }));
      await hand.reportOne(chunksOf(lease, 1, 0, ['x'.repeat(1_000)]));
      expect(await platform.record(id)).toMatchObject({
        status: 'FAILED',
        error: { code: 'output_too_large' },
      });
      expect((await renew.answer).ended).toMatchObject([{ jobId: id }]);
      expect(await hand.reportOne(chunksOf(lease, 2, 1, ['y']))).toEqual({ answer: 'superseded' });
    });
  });

  describe('an outcome', () => {
    it('frees the slot after a cancel and does not change the status', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
      expect((await platform.health()).workers).toEqual({ idle: 0, running: 1 });
      expect(await hand.reportOne(progressOf(lease, 1, 0.5))).toEqual({ answer: 'superseded' });
      expect(await hand.finish(lease, completed, { body: '1' })).toEqual({ answer: 'applied' });
      expect(await platform.record(id)).toMatchObject({ status: 'CANCELLED', executionTime: 5 });
      expect(await platform.record(id)).not.toHaveProperty('output');
      expect((await platform.health()).workers).toEqual({ idle: 1, running: 0 });
      expect((await platform.health()).jobs.completed).toBe(0);
    });

    it('fails the job without a retry if its output is above 20 MB, which is not stored', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      const body = `"${'x'.repeat(20 * 1_048_576 - 1)}"`;
      expect(await hand.finish(lease, completed, { body })).toEqual({ answer: 'applied' });
      const record = await platform.record(id);
      expect(record).toMatchObject({
        status: 'FAILED',
        error: {
          code: 'output_too_large',
          message: expect.stringMatching(/\b20971521\b.*\b20971520\b/),
          attempts: [{ attempt: 1 }],
        },
      });
      expect(record).not.toHaveProperty('output');
      const stored = await platform.store.read((tx) =>
        tx.outputBytes({ endpointId: ENDPOINT, id }),
      );
      expect(stored).toBe(0);
      expect((await platform.health()).workers).toEqual({ idle: 1, running: 0 });
    });

    it('completes a job that ended within its timeout, however late', async () => {
      const { platform } = stage;
      const id = await platform.submit({ executionTimeout: 1_000, ttl: 604_800_000 });
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.renew([lease]);
      await platform.clock.advance(9_000);
      await stage.restart(3_600_000);
      const outcome = { ...completed, executionMs: 999 };
      expect(await hand.finish(lease, outcome, { body: '1' })).toEqual({ answer: 'applied' });
      expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', executionTime: 999 });
    });

    it('is set by the queue 10 s after the timeout if it is missing', async () => {
      const { platform } = stage;
      const id = await platform.submit({ executionTimeout: 1_000 });
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.clock.advance(8_000);
      const renew = await platform.park('renew', () => hand.renew([], { waitMs: 5_000 }));
      await platform.clock.advance(2_999);
      expect((await platform.job(id)).status).toBe('IN_PROGRESS');
      await platform.clock.advance(1);
      expect(await platform.record(id)).toMatchObject({
        status: 'TIMED_OUT',
        executionTime: 11_000,
        error: { code: 'execution_timeout' },
      });
      expect((await renew.answer).ended).toMatchObject([{ jobId: id }]);
      await hand.finish(lease, { ...completed, executionMs: 10_900 }, { body: '1' });
      expect(await platform.record(id)).toMatchObject({
        status: 'TIMED_OUT',
        executionTime: 10_900,
      });
    });

    it('is awaited for five minutes while the worker renews, and counts if it arrives', async () => {
      const { platform } = stage;
      const late = await platform.submit({ executionTimeout: 1_000 });
      const never = await platform.submit({ executionTimeout: 1_000 });
      const hand = await stage.worker();
      const [first, second] = await hand.take({ max: 2 });
      if (!first || !second) throw new Error('two leases were expected');
      for (let heard = 5_000; heard <= 300_000; heard += 5_000) {
        await platform.clock.advance(5_000);
        await hand.renew([first, second], { waitMs: 0 });
      }
      await hand.finish(first, { ...completed, executionMs: 900 }, { body: '1' });
      expect(await platform.record(late)).toMatchObject({ status: 'COMPLETED' });
      await platform.clock.advance(1_000);
      expect((await platform.job(never)).status).toBe('TIMED_OUT');
    });

    it('completes a job however late, as long as renewals announce it', async () => {
      const { platform } = stage;
      const id = await platform.submit({ executionTimeout: 1_000 });
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      for (let waitedMs = 0; waitedMs < 600_000; waitedMs += 10_000) {
        await hand.renew([lease], { delivering: [lease] });
        await platform.clock.advance(10_000);
      }
      expect((await platform.job(id)).status).toBe('IN_PROGRESS');
      await hand.finish(lease, completed);
      expect((await platform.job(id)).status).toBe('COMPLETED');
    });

    it('contains the failure with all earlier attempts', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      for (let attempt = 1; attempt <= 3; attempt++) {
        await hand.finish(await hand.takeOne(), failed);
        await platform.clock.advance(2_000);
      }
      const { error, status } = await platform.record(id);
      expect(status).toBe('FAILED');
      expect(error).toMatchObject({ code: 'handler_error', message: 'the reported error' });
      expect(error?.attempts.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
      expect((await platform.health()).jobs).toMatchObject({ failed: 1, retried: 2 });
    });

    it('does not count if it is a release', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      await hand.finish(await hand.takeOne(), { kind: 'released', reason: 'drain' });
      expect(await platform.job(id)).toMatchObject({
        status: 'IN_QUEUE',
        failures: 0,
        releases: 1,
      });
      expect((await platform.health()).jobs.retried).toBe(0);
    });

    it('does not count if it releases a suspect, which runs alone next', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      await hand.finish(await hand.takeOne(), { kind: 'released', reason: 'suspect' });
      expect(await platform.job(id)).toMatchObject({ failures: 0, releases: 0, solo: true });
      expect(await hand.takeOne()).toMatchObject({ jobId: id, attempt: 2, solo: true });
    });

    const gpu = {
      seconds: 1.5,
      vramPeakBytes: 80_000_000_000,
      vramMeanBytes: 79_000_000_001,
      vramScope: 'process',
      utilizationMean: 0.75,
      energyJoules: 450.125,
      shared: true,
    } as const;

    it.each([
      ['all figures', gpu],
      ['the figures that exist', { seconds: 0, shared: false }],
    ])('brings what the attempt used: %s', async (_, used) => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const report = outcomeOf(await hand.takeOne(), 1, completed, '1');
      await hand.reportOne({ ...report, usage: { gpu: used } });
      expect((await platform.record(id)).usage).toEqual({ gpu: used });
    });

    it('brings how long the attempt waited for its model process', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const report = outcomeOf(await hand.takeOne(), 1, completed, '1');
      await hand.reportOne({ ...report, waitedMs: 2_500 });
      const notes = (await platform.job(id))?.notes;
      expect(notes).toMatchObject([{ event: 'model_wait', attempt: 1, waitedMs: 2_500 }]);
    });

    it('keeps the usage of a failed attempt in the history, and not in the next attempt', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const end = { ...failed, retry: 'after', retryAfterMs: 0 } as const;
      const first = await hand.takeOne();
      await hand.reportOne({ ...outcomeOf(first, 1, end, ''), usage: { gpu } });
      expect(await platform.record(id)).toMatchObject({ status: 'IN_QUEUE', usage: { gpu } });
      const next = await hand.takeOne({ held: [] });
      await hand.reportOne(progressOf(next, 1, 0.5));
      const running = await platform.record(id);
      expect(running).toMatchObject({ status: 'IN_PROGRESS', progress: 0.5 });
      expect(running).not.toHaveProperty('usage');
      await hand.finish(next, { ...failed, retry: 'never' }, { seq: 2 });
      const record = await platform.record(id);
      expect(record).not.toHaveProperty('usage');
      const [one, two] = record.error?.attempts ?? [];
      expect(one).toMatchObject({ attempt: 1, usage: { gpu } });
      expect(two).not.toHaveProperty('usage');
    });

    it('brings what the attempt used also after a cancel', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
      const stopped = { kind: 'cancelled', executionMs: 5, stopped: 'signal' } as const;
      await hand.reportOne({ ...outcomeOf(lease, 1, stopped, ''), usage: { gpu } });
      expect(await platform.record(id)).toMatchObject({ status: 'CANCELLED', usage: { gpu } });
    });

    it.each(['gpu_out_of_memory', 'model_process_crashed'] as const)(
      'fails the attempt with its code %s',
      async (code) => {
        const { platform } = stage;
        const id = await platform.submit();
        const hand = await stage.worker();
        const end = { ...failed, error: { code, message: 'm' }, retry: 'never' } as const;
        await hand.finish(await hand.takeOne(), end);
        expect((await platform.record(id)).error).toMatchObject({ code, attempts: [{ code }] });
      },
    );

    it('contains the place where the attempt was stuck', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const stack = '    at spin (file:///handler.ts:3:5)';
      const stuck = { state: 'running', stack, chunks: 2, lastChunkMs: 40 } as const;
      const error = { code: 'execution_timeout', message: 'too long', stuck } as const;
      const timedOut = { kind: 'timed_out', executionMs: 9, error, stopped: 'thread' } as const;
      await hand.finish(await hand.takeOne(), timedOut);
      expect((await platform.record(id)).error).toMatchObject({ stuck });
    });
  });
}
