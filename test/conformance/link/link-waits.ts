// take and renew as long polls: what they wait for, what ends them, and which call an event wakes.
import { describe, expect, it } from 'vitest';
import { completed, ENDPOINT } from '../../support/queue-platform.ts';
import type { LinkStage } from './link.ts';

export function describeWaits(stage: LinkStage): void {
  describe('take', () => {
    it('waits at most as long as the platform allows', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const take = await platform.park('take', () => hand.take({ waitMs: 60_000 }));
      await platform.clock.advance(20_000);
      expect(await take.answer).toEqual([]);
    });

    it('gives at most about 4 MB of inputs at a time', async () => {
      const large = Buffer.from(JSON.stringify({ text: 'x'.repeat(3_000_000) }));
      for (let i = 0; i < 4; i++) await stage.platform.submit({}, large);
      const hand = await stage.worker();
      expect(await hand.take({ max: 4 })).toHaveLength(2);
      expect(await hand.take({ max: 4 })).toHaveLength(2);
    });

    it('counts S3 configurations among them', async () => {
      const s3Config = JSON.stringify({ objectPath: 'x'.repeat(8_000) });
      for (let i = 0; i < 530; i++) await stage.platform.submitWithS3Config(s3Config);
      const hand = await stage.worker();
      const first = await hand.take({ max: 530 });
      expect(first.length).toBeLessThan(530);
      expect(first.length + (await hand.take({ max: 530 })).length).toBe(530);
    });

    it('shares jobs between waiting workers, one each', async () => {
      const { platform } = stage;
      const hands = [await stage.worker({ id: 'w1' }), await stage.worker({ id: 'w2' })];
      const takes = [];
      for (const hand of hands) {
        takes.push(await platform.park('take', () => hand.take({ waitMs: 20_000 })));
      }
      const ids = [await platform.submit(), await platform.submit()];
      const leases = await Promise.all(takes.map(({ answer }) => answer));
      expect(leases.flat().map(({ jobId }) => jobId)).toEqual(ids);
    });

    it('gives the same leases again for the same takeId after a restart of the platform', async () => {
      await stage.platform.submit();
      const hand = await stage.worker();
      const first = await hand.take({ takeId: 't' });
      await stage.restart();
      expect(await hand.take({ takeId: 't', held: [] })).toEqual(first);
    });

    it('does not repeat ended leases', async () => {
      const { platform } = stage;
      await platform.submit();
      const hand = await stage.worker();
      await hand.finish(await hand.takeOne({ takeId: 't' }), completed);
      expect(await hand.take({ takeId: 't' })).toEqual([]);
    });

    it('ends the open one, which gets no jobs', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const first = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
      const second = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
      expect(await first.answer).toEqual([]);
      const id = await platform.submit();
      expect(await second.answer).toMatchObject([{ jobId: id }]);
    });

    it('has no effect if it arrives after a newer one', async () => {
      const { platform } = stage;
      const [a, b] = [await platform.submit(), await platform.submit()];
      const hand = await stage.worker();
      await hand.takeOne({ seq: 1 });
      await hand.takeOne({ seq: 2 });
      const open = await platform.park('take', () => hand.take({ seq: 3, waitMs: 20_000 }));
      // Sent before the worker received the second lease.
      expect(await hand.take({ seq: 2, takeId: 'delayed', held: [] })).toEqual([]);
      for (const id of [a, b]) {
        expect(await platform.job(id)).toMatchObject({ attempt: 1, releases: 0 });
      }
      const id = await platform.submit();
      expect(await open.answer).toMatchObject([{ jobId: id }]);
    });

    it('restarts its numbering with the next hello', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      await hand.take({ seq: 5 });
      await hand.hello();
      const id = await platform.submit();
      expect(await hand.takeOne({ seq: 1 })).toMatchObject({ jobId: id });
    });

    it('releases, uncounted, given jobs that the worker does not hold', async () => {
      const { platform } = stage;
      const [a, b] = [await platform.submit(), await platform.submit()];
      const hand = await stage.worker();
      const [kept] = await hand.take({ max: 2 });
      await hand.take({ max: 1, held: [kept?.token ?? ''], takeId: 'next' });
      expect(await platform.job(a)).toMatchObject({ attempt: 1, releases: 0 });
      expect(await platform.job(b)).toMatchObject({ attempt: 2, releases: 1, failures: 0 });
    });

    it('is cancelled at the platform too', async () => {
      const hand = await stage.worker();
      const abort = new AbortController();
      const { signal } = abort;
      const take = await stage.platform.park('take', () => hand.take({ waitMs: 20_000, signal }));
      take.answer.catch(() => {});
      abort.abort();
      await take.served;
      expect(take.hasEnded).toBe(true);
    });

    it('leaves its jobs to others if it was cancelled', async () => {
      const { platform } = stage;
      const gone = await stage.worker({ id: 'gone' });
      const abort = new AbortController();
      const { signal } = abort;
      const given = await platform.park('take', () => gone.take({ waitMs: 20_000, signal }));
      given.answer.catch(() => {});
      const other = await stage.worker({ id: 'other' });
      const take = await platform.park('take', () => other.take({ waitMs: 20_000 }));
      abort.abort();
      const id = await platform.submit();
      // A carrier may detect the abort late; a job leased until then returns to the queue after leaseMs.
      await platform.clock.advance(15_000);
      expect(await take.answer).toMatchObject([{ jobId: id }]);
    });

    it('passes its wake-up on if it is cancelled at that moment', async () => {
      const { platform } = stage;
      const gone = await stage.worker({ id: 'gone' });
      const abort = new AbortController();
      const { signal } = abort;
      const given = await platform.park('take', () => gone.take({ waitMs: 20_000, signal }));
      given.answer.catch(() => {});
      const other = await stage.worker({ id: 'other' });
      const take = await platform.park('take', () => other.take({ waitMs: 20_000 }));
      const id = await platform.submit();
      abort.abort();
      // If the wake-up came first, the job stays leased for leaseMs.
      await platform.clock.advance(15_000);
      expect(await take.answer).toMatchObject([{ jobId: id }]);
    });
  });

  describe('renew', () => {
    it('is answered after its wait if nothing has changed', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const renew = await platform.park('renew', () => hand.renew([], { waitMs: 60_000 }));
      await platform.clock.advance(4_999);
      expect(renew.hasEnded).toBe(false);
      await platform.clock.advance(1);
      expect(await renew.answer).toEqual({ ended: [], drain: false });
    });

    it('is answered at once for a job that was taken after it was sent', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const renew = await platform.park('renew', () => hand.renew([], { waitMs: 5_000 }));
      const id = await platform.submit();
      const { token } = await hand.takeOne();
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
      const ended = [{ jobId: id, token, verdict: 'cancelled' }];
      expect(await renew.answer).toEqual({ ended, drain: false });
    });

    it('does not repeat jobs that the worker is already stopping', async () => {
      const { platform } = stage;
      const id = await platform.submit();
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
      const renew = await platform.park('renew', () =>
        hand.renew([lease], { waitMs: 5_000, stopping: [lease] }),
      );
      expect(renew.hasEnded).toBe(false);
      await platform.clock.advance(5_000);
      expect(await renew.answer).toEqual({ ended: [], drain: false });
    });

    it('reports only new ones of several', async () => {
      const { platform } = stage;
      const [old, fresh] = [await platform.submit(), await platform.submit()];
      const hand = await stage.worker();
      const leases = await hand.take({ max: 2 });
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: old });
      const stopping = leases.slice(0, 1);
      const renew = await platform.park('renew', () =>
        hand.renew(leases, { waitMs: 5_000, stopping }),
      );
      await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: fresh });
      expect((await renew.answer).ended).toMatchObject([{ jobId: fresh, verdict: 'cancelled' }]);
    });

    it('is answered at once when the job is removed', async () => {
      const { platform } = stage;
      const id = await platform.submit({ ttl: 10_000 });
      const hand = await stage.worker();
      const lease = await hand.takeOne();
      await platform.clock.advance(8_000);
      const renew = await platform.park('renew', () => hand.renew([lease], { waitMs: 5_000 }));
      await platform.clock.advance(2_000);
      const ended = [{ jobId: id, token: lease.token, verdict: 'lost' }];
      expect(await renew.answer).toEqual({ ended, drain: false });
    });

    it('is answered at once when the worker must drain, but only once', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const renew = await platform.park('renew', () => hand.renew([], { waitMs: 5_000 }));
      platform.queue.drainWorker(ENDPOINT, hand.id);
      expect(await renew.answer).toEqual({ ended: [], drain: true });
      const next = await platform.park('renew', () => hand.renew([], { waitMs: 5_000 }));
      expect(next.hasEnded).toBe(false);
      await platform.clock.advance(5_000);
      expect(await next.answer).toEqual({ ended: [], drain: true });
    });

    it('is cancelled at the platform too', async () => {
      const hand = await stage.worker();
      const abort = new AbortController();
      const { signal } = abort;
      const wait = { waitMs: 5_000, signal };
      const renew = await stage.platform.park('renew', () => hand.renew([], wait));
      renew.answer.catch(() => {});
      abort.abort();
      await renew.served;
      expect(renew.hasEnded).toBe(true);
    });

    it('does not delay other calls while it waits, nor does a second one', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      const wait = { waitMs: 5_000 };
      const renewals = [
        await platform.park('renew', () => hand.renew([], wait)),
        await platform.park('renew', () => hand.renew([], wait)),
      ];
      const take = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
      await platform.submit();
      const [lease] = await take.answer;
      if (!lease) throw new Error('nothing taken');
      expect(await hand.finish(lease, completed, { body: '1' })).toEqual({ answer: 'applied' });
      await hand.hello();
      expect(renewals.map(({ hasEnded }) => hasEnded)).toEqual([false, false]);
      await platform.clock.advance(5_000);
      await Promise.all(renewals.map(({ answer }) => answer));
    });

    it('reports a drain also if it was not open at that time', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      platform.queue.drainWorker(ENDPOINT, hand.id);
      await hand.hello();
      expect(await hand.renew([], { waitMs: 5_000 })).toEqual({ ended: [], drain: true });
    });

    it('keeps a worker without jobs alive', async () => {
      const { platform } = stage;
      const hand = await stage.worker();
      await platform.clock.advance(14_000);
      await hand.renew([]);
      await platform.clock.advance(14_000);
      expect((await platform.health()).workers).toEqual({ idle: 1, running: 0 });
      await platform.clock.advance(1_001);
      expect((await platform.health()).workers).toEqual({ idle: 0, running: 0 });
    });
  });

  describe('a worker that must drain', () => {
    it('gets no job and consumes no wake-up of others', async () => {
      const { platform } = stage;
      const leaving = await stage.worker({ id: 'leaving' });
      const blocked = await platform.park('take', () => leaving.take({ waitMs: 20_000 }));
      const other = await stage.worker({ id: 'other' });
      const take = await platform.park('take', () => other.take({ waitMs: 20_000 }));
      platform.queue.drainWorker(ENDPOINT, 'leaving');
      await platform.clock.advance(0);
      const id = await platform.submit();
      expect(await take.answer).toMatchObject([{ jobId: id }]);
      expect(blocked.hasEnded).toBe(false);
      await platform.clock.advance(20_000);
      expect(await blocked.answer).toEqual([]);
    });
  });
}
