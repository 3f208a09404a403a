// Renewals against a scripted queue: one long poll for all leases, and what comes back on it.
import { describe, expect, it } from 'vitest';
import { createLog } from '../../../src/base/log.ts';
import { LinkError, type RenewReply } from '../../../src/wire/link/worker-link.ts';
import type { WorkerOptions } from '../../../src/worker/worker.ts';
import { lease, type Script, startScript } from '../../support/workers/worker-script.ts';

const nothing: RenewReply = { ended: [], drain: false };
const named = (jobId: string, stopping = false) => ({ jobId, token: `token-${jobId}`, stopping });

/** Takes one job and lets a first renewal name it. */
async function startWithJob(options: Pick<WorkerOptions, 'log'> = {}): Promise<Script> {
  const started = await startScript(options);
  started.link.lastTake.answer([lease('a')]);
  await started.clock.advance(5_000);
  started.link.renewals[0]?.answer(nothing);
  await started.clock.advance(0);
  return started;
}

describe('the lease keeper', () => {
  it('keeps a renewal open without any lease, so that an idle worker counts as alive', async () => {
    const { link } = await startScript();
    expect(link.renewals.map(({ request }) => request)).toEqual([
      { workerId: 'w1', incarnation: 3, waitMs: 5_000, leases: [] },
    ]);
  });

  it('renews again as soon as it is answered, with all leases', async () => {
    const { link } = await startWithJob();
    expect(link.lastRenewal.request).toMatchObject({ waitMs: 5_000, leases: [named('a')] });
    expect(link.lastRenewal.signal.aborted).toBe(false);
  });

  it('names a job that has started before the open renewal ends', async () => {
    const { clock, link } = await startScript({ nameWithinMs: 300 });
    link.lastTake.answer([lease('a')]);
    await clock.advance(299);
    expect(link.renewals).toHaveLength(1);
    await clock.advance(1);
    expect(link.lastRenewal.request).toMatchObject({ waitMs: 0, leases: [named('a')] });
    expect(link.renewals[0]?.signal.aborted).toBe(false);
  });

  it('does not name a job that has ended by then', async () => {
    const { clock, executor, link } = await startScript();
    link.lastTake.answer([lease('a')]);
    await clock.advance(0);
    executor.last.complete();
    await clock.advance(1_000);
    expect(link.renewals).toHaveLength(1);
  });

  it.each(['cancelled', 'lost'] as const)(
    'stops an attempt that is %s, and confirms it',
    async (verdict) => {
      const { clock, executor, link } = await startWithJob();
      link.lastRenewal.answer({ ended: [{ jobId: 'a', token: 'token-a', verdict }], drain: false });
      await clock.advance(0);
      expect(executor.last.stops).toEqual([verdict]);
      expect(link.lastRenewal.request.leases).toEqual([named('a', true)]);
    },
  );

  it('renews a lease whose outcome is not acknowledged yet and marks it', async () => {
    const { clock, executor, link } = await startWithJob();
    link.onReport = () => new Promise(() => {});
    executor.last.complete();
    await clock.advance(0);
    link.lastRenewal.answer(nothing);
    await clock.advance(10_000);
    expect(link.lastRenewal.request.leases).toEqual([{ ...named('a'), delivering: true }]);
  });

  it('forgets a lease whose outcome is acknowledged', async () => {
    const { clock, executor, link } = await startWithJob();
    executor.last.complete();
    await clock.advance(0);
    link.lastRenewal.answer(nothing);
    await clock.advance(5_000);
    expect(link.lastRenewal.request.leases).toEqual([]);
  });

  it('retries within the lease time after a failure, whatever wait the platform asks for', async () => {
    const { clock, link } = await startWithJob();
    const before = link.renewals.length;
    link.lastRenewal.fail(new LinkError('unavailable', 'later', { retryAfterMs: 3_600_000 }));
    await clock.advance(5_000);
    expect(link.renewals).toHaveLength(before + 1);
  });

  it('aborts a renewal that hangs and sends another', async () => {
    const { clock, link } = await startWithJob();
    const hanging = link.lastRenewal;
    await clock.advance(9_999);
    expect(hanging.signal.aborted).toBe(false);
    await clock.advance(1_001);
    expect(hanging.signal.aborted).toBe(true);
    expect(link.lastRenewal).not.toBe(hanging);
  });

  it('leaves jobs running when renewals fail for longer than the lease, but is not ready', async () => {
    const { clock, executor, link, worker } = await startWithJob();
    for (let tries = 0; tries < 10; tries++) {
      link.lastRenewal.fail(new LinkError('unavailable', 'gone'));
      await clock.advance(4_000);
    }
    expect(executor.last.stops).toEqual([]);
    expect(worker.health()).toMatchObject({
      ready: false,
      reason: 'lease renewals failed for too long',
    });
    link.lastRenewal.answer(nothing);
    await clock.advance(0);
    expect(worker.health().reason).not.toBe('lease renewals failed for too long');
  });

  it('logs once that renewals fail for longer than the lease, and that they work again', async () => {
    const lines: { level: number; msg: string }[] = [];
    const log = createLog({ destination: { write: (line) => lines.push(JSON.parse(line)) } });
    const { clock, link } = await startWithJob({ log });
    for (let tries = 0; tries < 10; tries++) {
      link.lastRenewal.fail(new LinkError('unavailable', 'gone'));
      await clock.advance(4_000);
    }
    link.lastRenewal.answer(nothing);
    await clock.advance(0);
    const renewals = lines.filter(({ msg }) => msg.startsWith('lease renewal'));
    expect(renewals.map(({ level }) => level)).toEqual([50, 30]);
  });

  it('slows down if the platform answers at once with nothing new', async () => {
    const { clock, link } = await startWithJob();
    const before = link.renewals.length;
    for (let answers = 0; answers < 20; answers++) {
      link.lastRenewal.answer(nothing);
      await clock.advance(0);
    }
    expect(link.renewals.length - before).toBeLessThan(6);
  });
});
