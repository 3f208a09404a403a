// Expired leases, dead workers, jobs that kill their process, and platform restarts.
import { describe, expect, it } from 'vitest';
import { completed, ENDPOINT, type Hand, progressOf } from '../../support/queue-platform.ts';
import type { LinkStage } from './link.ts';

export function describeLosses(stage: LinkStage): void {
  describe('an expired lease', () => {
    it('can be renewed with its token as long as no other worker has the job', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.renew([lease]);
      await platform.clock.advance(15_000);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 1 });
      expect((await platform.health()).jobs.retried).toBe(1);
      expect(await hand.renew([lease])).toEqual({ ended: [], drain: false });
      const job = await platform.job(id);
      expect(job).toMatchObject({ status: 'IN_PROGRESS', attempt: 1, failures: 0, history: [] });
      expect((await platform.health()).jobs.retried).toBe(0);
      expect(await hand.take()).toEqual([]);
    });

    it('does not count when the worker never named it', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      await (await stage.worker()).takeOne();
      await platform.clock.advance(15_000);
      expect(await platform.job(id)).toMatchObject({
        status: 'IN_QUEUE',
        failures: 0,
        releases: 1,
      });
      expect((await platform.health()).jobs.retried).toBe(0);
    });

    it('counts when the worker had named it', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      await hand.renew([await hand.takeOne()]);
      await platform.clock.advance(15_000);
      const { failures, history } = await platform.job(id);
      expect(failures).toBe(1);
      expect(history).toMatchObject([{ attempt: 1, code: 'lease_expired', workerId: 'w1' }]);
    });

    it('gives the job to a waiting take', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      await (await stage.worker({ id: 'slow' })).takeOne();
      const other = await stage.worker({ id: 'other' });
      const take = await platform.park('take', () => other.take({ waitMs: 20_000 }));
      await platform.clock.advance(15_000);
      expect(await take.answer).toMatchObject([{ jobId: id, attempt: 2 }]);
    });

    it('gives the job to another waiting worker, not to its holder', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const slow = await stage.worker({ id: 'slow' });
      await slow.takeOne();
      const first = await platform.park('take', () => slow.take({ waitMs: 20_000 }));
      const other = await stage.worker({ id: 'other' });
      const second = await platform.park('take', () => other.take({ waitMs: 20_000 }));
      await platform.clock.advance(15_000);
      expect(await second.answer).toMatchObject([{ jobId: id, attempt: 2 }]);
      await platform.clock.advance(5_000);
      expect(await first.answer).toEqual([]);
    });

    it('stays with its holder during further takes', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.clock.advance(15_000);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE' });
      expect(await hand.take({ max: 2 })).toEqual([]);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
      expect(await hand.finish(lease, completed, { body: '1' })).toEqual({ answer: 'applied' });
    });

    it('is not released a second time if the next take does not name it', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      await hand.takeOne();
      await platform.clock.advance(15_000);
      expect(await hand.takeOne({ held: [] })).toMatchObject({ jobId: id, attempt: 2 });
      expect(await platform.job(id)).toMatchObject({ releases: 1, failures: 0 });
    });
  });

  describe('a process that ends unexpectedly', () => {
    async function crashWith(count: number): Promise<{ ids: string[]; hand: Hand }> {
      const ids: string[] = [];
      for (let i = 0; i < count; i++) ids.push(await stage.platform.submit());
      const hand = await stage.worker({ id: 'doomed' });
      await hand.renew(await hand.take({ max: count }));
      await hand.bye('crashed');
      return { ids, hand };
    }

    it('counts as the failure of its only job, whose next attempt starts at once, alone', async () => {
      const { platform } = stage;
      const { ids } = await crashWith(1);
      const [id = ''] = ids;
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 1, solo: true });
      expect((await platform.job(id)).history).toMatchObject([{ code: 'worker_crashed' }]);
      expect(await (await stage.worker()).takeOne()).toMatchObject({ jobId: id, solo: true });
    });

    it('makes several jobs suspects, and counts for none', async () => {
      const { platform } = stage;
      const { ids } = await crashWith(2);
      for (const id of ids) {
        expect(await platform.job(id)).toMatchObject({
          status: 'IN_QUEUE',
          failures: 0,
          releases: 0,
          solo: true,
        });
      }
    });

    it('makes a suspect also beside a cancelled job that was still running', async () => {
      const { platform } = stage;
      const [id, cancelled] = [await platform.submit(), await platform.submit()];
      const hand = await stage.worker();
      await hand.renew(await hand.take({ max: 2 }));
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: cancelled });
      await hand.bye('crashed');
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 0, solo: true });
      expect(await platform.job(cancelled)).toMatchObject({ status: 'CANCELLED', lease: null });
    });

    it('fails the job that it runs alone, after the last attempt', async () => {
      const { platform } = stage;
      const { ids } = await crashWith(2);
      const [id = ''] = ids;
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: ids[1] ?? '' });
      for (let incarnation = 2; incarnation <= 4; incarnation++) {
        const hand = await stage.worker({ id: 'doomed', incarnation });
        await hand.renew([await hand.takeOne()]);
        await hand.bye('crashed');
        await platform.clock.advance(4_000);
      }
      const { attempt, error, status } = await platform.record(id);
      expect({ attempt, status }).toEqual({ attempt: 4, status: 'FAILED' });
      expect(error?.code).toBe('worker_crashed');
      expect(error?.attempts.map(({ attempt }) => attempt)).toEqual([2, 3, 4]);
    });

    it('loses its jobs at once if it says hello again without them', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker({ incarnation: 1 });
      await hand.renew([await hand.takeOne()]);
      const next = await stage.worker({ incarnation: 2 });
      expect(await next.takeOne()).toMatchObject({ jobId: id, attempt: 2, solo: true });
    });
  });

  describe('a suspect', () => {
    /** Queues a suspect while a worker is busy with another job. */
    async function meetSuspect(): Promise<{ suspect: string; busy: Hand; running: string }> {
      const { platform } = stage;
      const busy = await stage.worker({ id: 'busy' });
      const running = await platform.submit();
      await busy.takeOne();
      const suspect = await platform.submit();
      const doomed = await stage.worker({ id: 'doomed' });
      await doomed.renew([await doomed.takeOne()]);
      await doomed.bye('crashed');
      return { suspect, busy, running };
    }

    it('is taken by a worker without jobs and runs there alone', async () => {
      const { platform } = stage;
      const { suspect } = await meetSuspect();
      const next = await platform.submit();
      const free = await stage.worker({ id: 'free' });
      const leases = await free.take({ max: 4 });
      expect(leases).toMatchObject([{ jobId: suspect, solo: true }]);
      expect(await free.take({ max: 3 })).toEqual([]);
      const [solo] = leases;
      if (!solo) throw new Error('nothing taken');
      const take = await platform.park('take', () => free.take({ max: 3, waitMs: 20_000 }));
      await free.finish(solo, completed);
      expect(await take.answer).toMatchObject([{ jobId: next }]);
    });

    it('is not leased together with jobs ahead of it', async () => {
      const { platform } = stage;
      const { suspect } = await meetSuspect();
      const urgent = await platform.submit({ priority: 1 });
      const free = await stage.worker({ id: 'free' });
      const leases = await free.take({ max: 4 });
      expect(leases).toMatchObject([{ jobId: urgent }]);
      expect((await platform.job(suspect)).status).toBe('IN_QUEUE');
    });

    it('makes a busy worker drain its jobs and waits for that', async () => {
      const { platform } = stage;
      const { busy, running, suspect } = await meetSuspect();
      await platform.submit();
      const take = await platform.park('take', () => busy.take({ max: 3, waitMs: 20_000 }));
      expect(take.hasEnded).toBe(false);
      const { lease } = await platform.job(running);
      const named = { jobId: running, attempt: 1, token: lease?.token ?? '' };
      await busy.report([
        { ...named, kind: 'outcome', seq: 1, outcome: completed, body: Buffer.from('1') },
      ]);
      expect(await take.answer).toMatchObject([{ jobId: suspect, solo: true }]);
    });

    it('is left to the draining worker while others continue', async () => {
      const { platform } = stage;
      const { busy, suspect } = await meetSuspect();
      const own = await platform.submit({ priority: 9 });
      const other = await stage.worker({ id: 'other' });
      expect((await other.takeOne()).jobId).toBe(own);
      const emptying = await platform.park('take', () => busy.take({ max: 3, waitMs: 20_000 }));
      const next = await platform.submit();
      // The other worker is busy too and skips the suspect.
      expect((await other.takeOne()).jobId).toBe(next);
      expect((await platform.job(suspect)).status).toBe('IN_QUEUE');
      expect(emptying.hasEnded).toBe(false);
      await platform.clock.advance(20_000);
      await emptying.answer;
    });

    it('is not left to a worker that stops', async () => {
      const { platform } = stage;
      const { busy, suspect } = await meetSuspect();
      expect(await busy.take({ max: 3 })).toEqual([]);
      platform.queue.drainWorker(ENDPOINT, busy.id);
      const other = await stage.worker({ id: 'other' });
      await platform.submit({ priority: 9 });
      const own = await other.takeOne();
      const next = await platform.submit();
      expect(await other.take()).toEqual([]);
      await other.finish(own, completed);
      expect(await other.takeOne()).toMatchObject({ jobId: suspect, solo: true });
      expect((await platform.job(next)).status).toBe('IN_QUEUE');
    });

    it('does not keep more urgent jobs from that worker', async () => {
      const { platform } = stage;
      const { busy } = await meetSuspect();
      const take = await platform.park('take', () => busy.take({ max: 3, waitMs: 20_000 }));
      const urgent = await platform.submit({ priority: 1 });
      expect(await take.answer).toMatchObject([{ jobId: urgent }]);
    });

    it('lets that worker take again when another worker has taken the job', async () => {
      const { platform } = stage;
      const { busy, suspect } = await meetSuspect();
      const next = await platform.submit();
      const take = await platform.park('take', () => busy.take({ max: 3, waitMs: 20_000 }));
      const free = await stage.worker({ id: 'free' });
      expect((await free.takeOne()).jobId).toBe(suspect);
      expect(await take.answer).toMatchObject([{ jobId: next }]);
    });

    it('does not use up the wake-up of another job', async () => {
      const { platform } = stage;
      const { suspect } = await meetSuspect();
      const alone = await stage.worker({ id: 'alone' });
      expect((await alone.takeOne()).jobId).toBe(suspect);
      const blocked = await platform.park('take', () => alone.take({ waitMs: 20_000 }));
      const free = await stage.worker({ id: 'free' });
      const take = await platform.park('take', () => free.take({ waitMs: 20_000 }));
      const id = await platform.submit();
      expect(await take.answer).toMatchObject([{ jobId: id }]);
      expect(blocked.hasEnded).toBe(false);
      await platform.clock.advance(20_000);
      await blocked.answer;
    });
  });

  describe('a platform that restarts', () => {
    it('knows its workers and adds leaseMs to every lease', async () => {
      const { platform } = stage;
      const id = await platform.submit({ executionTimeout: 7_200_000 });
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await hand.renew([lease]);
      await stage.restart(3_600_000);
      await platform.clock.advance(14_999);
      expect((await platform.job(id)).status).toBe('IN_PROGRESS');
      expect(await hand.reportOne(progressOf(lease, 1, 0.5))).toEqual({ answer: 'applied' });
      await platform.clock.advance(15_000);
      expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 1 });
    });

    it('refuses an older incarnation and reports cancelled jobs, as before', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const old = await stage.worker({ incarnation: 1 });
      const hand = await stage.worker({ incarnation: 2 });
      const lease = await hand.takeOne();
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
      await stage.restart();
      await expect(old.take()).rejects.toMatchObject({ code: 'stale_incarnation' });
      const reply = await hand.renew([lease]);
      expect(reply.ended).toEqual([{ jobId: id, token: lease.token, verdict: 'cancelled' }]);
    });
  });
}
