// The network faults that RunPod's protocol can survive. It has no tokens and no sequence numbers, so the
// platform cannot detect a repeated chunk, and a worker cannot repeat a take.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LinkError } from '../../src/wire/link/worker-link.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  Hand,
  outcomeOf,
  Platform,
} from '../support/queue-platform.ts';
import { type FaultyCarrier, openFaultyRunPod, repeat } from './link/faulty-carrier.ts';

describe("RunPod's protocol, in a bad network", () => {
  let platform: Platform;
  let carrier: FaultyCarrier;

  beforeEach(async () => {
    platform = new Platform();
    await platform.start();
    carrier = await openFaultyRunPod(platform);
  });
  afterEach(async () => {
    await carrier.close();
    await platform.close();
  });

  async function startWorker(): Promise<Hand> {
    const link = carrier.openLink();
    const hand = new Hand(() => link);
    await hand.hello();
    return hand;
  }

  it('repeats an outcome whose answer was lost, and counts it once', async () => {
    const id = await platform.submit();
    const hand = await startWorker();
    const report = outcomeOf(await hand.takeOne(), 1, completed, '"once"');
    const answered = platform.answered('report');
    carrier.mute();
    const lost = hand.reportOne(report);
    lost.catch(() => {});
    await answered;
    carrier.cut();
    await expect(lost).rejects.toMatchObject({ name: 'LinkError', code: 'unavailable' });
    await repeat(() => hand.reportOne(report));
    expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', output: 'once' });
    expect((await platform.health()).jobs).toMatchObject({ completed: 1, inQueue: 0 });
  });

  it('keeps a job and what was streamed of it over a restart of the platform', async () => {
    const id = await platform.submit();
    const hand = await startWorker();
    const lease = await hand.takeOne();
    await hand.reportOne(chunksOf(lease, 1, 0, ['a', 'b']));
    await carrier.restart();
    const end = outcomeOf(lease, 2, { ...completed, output: 'chunks' });
    await repeat(() => hand.reportOne(end));
    const record = await platform.record(id);
    expect(record).toMatchObject({ status: 'COMPLETED', attempt: 1, output: ['a', 'b'] });
  });

  it('ignores the result of an attempt that was given up', async () => {
    const id = await platform.submit();
    const slow = await startWorker();
    const old = await slow.takeOne();
    await platform.clock.advance(600_000);
    expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE' });
    const other = await startWorker();
    const fresh = await repeat(() => other.takeOne());
    expect(fresh.jobId).not.toBe(old.jobId);
    await repeat(() => slow.reportOne(outcomeOf(old, 1, completed, '"old"')));
    await repeat(() => other.reportOne(outcomeOf(fresh, 1, completed, '"new"')));
    expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', output: 'new' });
  });

  it('reports a cancel after the connections were cut', async () => {
    const id = await platform.submit();
    const hand = await startWorker();
    const lease = await hand.takeOne();
    carrier.cut();
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
    const told = await repeat(async () => {
      const { ended } = await hand.renew([lease], { waitMs: 2_000 });
      if (ended.length === 0) throw new LinkError('unavailable', 'nothing was told yet');
      return ended;
    });
    expect(told).toMatchObject([{ jobId: lease.jobId, verdict: 'cancelled' }]);
  });
});
