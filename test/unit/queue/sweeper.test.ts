// How jobs change when only time passes.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { completed, ENDPOINT, Hand, Platform } from '../../support/queue-platform.ts';

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
});

afterEach(() => platform.close());

async function exists(id: string): Promise<boolean> {
  return (await platform.store.read((tx) => tx.job({ endpointId: ENDPOINT, id }))) !== undefined;
}

describe('time', () => {
  it('removes a waiting job and all its data when its time to live is over', async () => {
    const id = await platform.submit({ ttl: 10_000 });
    await platform.clock.advance(9_999);
    expect(await exists(id)).toBe(true);
    await platform.clock.advance(1);
    expect(await exists(id)).toBe(false);
    const key = { endpointId: ENDPOINT, id };
    expect(await platform.store.read((tx) => tx.input(key))).toBeUndefined();
    expect((await platform.health()).jobs).toMatchObject({ inQueue: 0, inProgress: 0 });
  });

  it('gives a delayed job its whole time to live once it is due', async () => {
    const id = await platform.submit({ delay: 60_000, ttl: 10_000 });
    await platform.clock.advance(60_000);
    expect(await worker.takeOne()).toMatchObject({ jobId: id });
    await platform.clock.advance(10_000);
    expect(await exists(id)).toBe(false);
  });

  it('removes a running job from the counts as well', async () => {
    const id = await platform.submit({ ttl: 10_000 });
    await worker.takeOne();
    await platform.clock.advance(10_000);
    expect(await exists(id)).toBe(false);
    expect(await platform.health()).toMatchObject({
      jobs: { inProgress: 0 },
      workers: { idle: 1, running: 0 },
    });
  });

  it('removes a worker without leases after twenty leases of silence', async () => {
    const countWorkers = async () => (await platform.store.read((tx) => tx.workers())).length;
    await platform.clock.advance(20 * 15_000);
    expect(await countWorkers()).toBe(1);
    await platform.clock.advance(31_000);
    expect(await countWorkers()).toBe(0);
    await expect(worker.take()).rejects.toMatchObject({ code: 'unknown_worker' });
    await worker.hello();
    expect(await worker.take()).toEqual([]);
  });

  it('removes a job after its retention, of run and of runsync', async () => {
    const { submissions } = platform.queue;
    const plain = { endpointId: ENDPOINT, input: Buffer.from('{}'), policy: {} };
    const submit = (mode: 'run' | 'runsync') =>
      submissions.submit({ ...plain, mode, idempotency: undefined });
    const [run, sync] = [(await submit('run')).id, (await submit('runsync')).id];
    for (const lease of await worker.take({ max: 2 })) await worker.finish(lease, completed);
    await platform.clock.advance(59_999);
    expect([await exists(run), await exists(sync)]).toEqual([true, true]);
    await platform.clock.advance(1);
    expect([await exists(run), await exists(sync)]).toEqual([true, false]);
    await platform.clock.advance(1_740_000);
    expect(await exists(run)).toBe(false);
    expect((await platform.health()).jobs.completed).toBe(2);
  });

  it('respects a time to live that was shortened or extended later', async () => {
    const [sooner, later] = [await platform.submit(), await platform.submit({ ttl: 10_000 })];
    await platform.queue.jobs.setTtl({ endpointId: ENDPOINT, id: sooner }, 20_000);
    await platform.queue.jobs.setTtl({ endpointId: ENDPOINT, id: later }, 40_000);
    await platform.clock.advance(20_000);
    expect([await exists(sooner), await exists(later)]).toEqual([false, true]);
    await platform.clock.advance(20_000);
    expect(await exists(later)).toBe(false);
  });

  it('removes more jobs than fit in one batch', async () => {
    await Promise.all(Array.from({ length: 450 }, () => platform.submit({ ttl: 10_000 })));
    await platform.clock.advance(10_000);
    expect((await platform.health()).jobs.inQueue).toBe(0);
  });

  it('counts after the restart, also if the platform was down', async () => {
    const id = await platform.submit({ ttl: 10_000 });
    const delayed = await platform.submit({ delay: 5_000 });
    await platform.restart(60_000);
    await platform.clock.advance(0);
    expect(await exists(id)).toBe(false);
    expect((await platform.job(delayed)).delayed).toBe(false);
  });

  it('ends no lease if the clock was set forward', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    await worker.renew([lease]);
    await platform.clock.advance(0);
    const { now } = platform.clock;
    platform.clock.now = () => now() + 3_600_000;
    await platform.clock.advance(15_000);
    expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', failures: 0 });
    expect((await worker.renew([lease])).ended).toEqual([]);
    await platform.clock.advance(15_000);
    expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', failures: 1 });
  });

  it('ends no lease while freed space is given back', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    await platform.submit({ ttl: 10_000 });
    await platform.clock.advance(9_999);
    await worker.renew([lease]);
    const { now } = platform.clock;
    let jumpMs = 0;
    platform.clock.now = () => now() + jumpMs;
    // The process stands still in the first step; the second pass is late.
    platform.store.reclaim = async () => {
      const isFirst = jumpMs === 0;
      jumpMs = 3_600_000;
      return isFirst;
    };
    await platform.clock.advance(1);
    expect(jumpMs).toBeGreaterThan(0);
    expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', failures: 0 });
    expect((await worker.renew([lease])).ended).toEqual([]);
  });

  it('gives freed space back while payloads are still being deleted', async () => {
    for (let id = 0; id < 10; id++) {
      const key = { endpointId: ENDPOINT, id: `${id}` };
      await platform.store.write((tx) => tx.beginPayload('input', key, new Uint8Array(1_000_000)));
    }
    const left: number[] = [];
    platform.store.reclaim = async () => {
      left.push((await platform.store.read((tx) => tx.unusedPayloads(10))).length);
      return false;
    };
    await platform.clock.advance(31_000);
    while (left.at(-1) !== 0) await platform.clock.advance(1);
    expect(left).toEqual([7, 4, 1, 0]);
  });

  it('takes effect while freed space is given back', async () => {
    await platform.submit({ ttl: 10_000 });
    const id = await platform.submit({ delay: 10_001 });
    let steps = 0;
    platform.store.reclaim = async () => ++steps < 100;
    await platform.clock.advance(10_001);
    while ((await platform.job(id)).delayed) await platform.clock.advance(0);
    expect(steps).toBeGreaterThan(0);
    expect(steps).toBeLessThan(100);
  });

  it('has no effect after the queue was closed', async () => {
    const id = await platform.submit({ ttl: 10_000 });
    await platform.queue.close();
    await platform.clock.advance(60_000);
    expect(await exists(id)).toBe(true);
  });
});
