import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  Balancer,
  type BalancerOptions,
  type WorkerCall,
} from '../../../../src/control/balancing/balancer.ts';
import type { LiveEndpoint } from '../../../../src/control/endpoints/endpoint-records.ts';
import type { EndpointEvent } from '../../../../src/control/endpoints/endpoints.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';
import type { EndpointType } from '../../../../src/wire/resources/fields.ts';
import { USUAL_DEPLOYMENT } from '../../../support/store/stored-jobs.ts';
import { startWorker, TargetList } from '../../../support/workers/worker-stand.ts';

const WEB = 'ep_web';
const never = new AbortController().signal;

function describeEndpoint(id: string, type: EndpointType): LiveEndpoint {
  return {
    ...{ id, userId: 'owner', shard: 0, createdAt: 0 },
    settings: endpointSettings.parse({ maxQueued: 10 }),
    deployment: {
      ...USUAL_DEPLOYMENT,
      ...{ name: id, type, templateId: 'tpl_1' },
      scaler: { type: 'REQUEST_COUNT', perWorker: 4 },
    },
  };
}

/** A balancer over workers that are real, in a time that the test drives. */
function startBalancer(options: Pick<BalancerOptions, 'maxOpen' | 'waitMs'> = {}) {
  const clock = new ManualClock();
  const targets = new TargetList();
  const endpoints = new Map([
    [WEB, describeEndpoint(WEB, 'LOAD_BALANCER')],
    ['ep_queue', describeEndpoint('ep_queue', 'QUEUE')],
  ]);
  const listeners = new Set<(change: EndpointEvent) => void>();
  const balancer = new Balancer({
    ...{ targets, clock, ...options },
    endpoints: {
      find: (id) => endpoints.get(id),
      onChange(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    },
  });
  onTestFinished(() => balancer.close());
  const load = () => balancer.load(WEB);
  const listReady = async () => (await load()).workers.map(({ podId }) => podId);
  return {
    ...{ balancer, clock, targets, load, listReady },
    remove(id: string) {
      endpoints.delete(id);
      for (const listener of listeners) listener({ id, kind: 'deleted' });
    },
    enter: (signal = never) => balancer.enter({ endpointId: WEB, signal }),
    async addWorker(podId: string, ping: number | undefined = 200) {
      const worker = await startWorker({ endpointId: WEB, podId });
      worker.ping = ping;
      targets.put(worker.target);
      const ready = ping === 200;
      while (ready && !(await listReady()).includes(podId)) await nextTurn();
      return worker;
    },
    /** Moves time on, a ping at a time, until the workers that are ready are these. */
    async untilReady(...podIds: string[]) {
      while ((await listReady()).join() !== podIds.join()) {
        await clock.advance(250);
        for (let call = 0; call < 20; call++) await nextTurn();
      }
    },
  };
}

it('continues to ping a worker when a readiness listener throws', async () => {
  const { addWorker, balancer, untilReady } = startBalancer();
  balancer.onLoad(() => {
    throw new Error('no');
  });
  const worker = await addWorker('pod_1');
  worker.ping = 500;
  await untilReady();
});

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function podIds(calls: readonly WorkerCall[]): string[] {
  return calls.map(({ podId }) => podId);
}

describe('the balancer', () => {
  it('gives a request to the worker with the fewest requests', async () => {
    const { addWorker, enter } = startBalancer();
    await addWorker('a');
    await addWorker('b');
    const [first, second] = [await enter(), await enter()];
    expect(podIds([first, second]).sort()).toEqual(['a', 'b']);
    second.end();
    expect((await enter()).podId).toBe(second.podId);
  });

  it('takes turns among equally busy workers', async () => {
    const { addWorker, enter } = startBalancer();
    for (const podId of ['a', 'b', 'c']) await addWorker(podId);
    const seen: string[] = [];
    for (let i = 0; i < 6; i++) {
      const call = await enter();
      seen.push(call.podId);
      call.end();
    }
    expect(seen).toEqual(['a', 'b', 'c', 'a', 'b', 'c']);
  });

  it('gives no new request to a draining worker or one whose pod ends', async () => {
    const { addWorker, balancer, enter, targets } = startBalancer();
    await addWorker('a');
    await addWorker('b');
    const { target } = await addWorker('c');
    balancer.drain(WEB, 'a');
    targets.put({ ...target, isLeaving: true });
    expect(podIds([await enter(), await enter(), await enter()])).toEqual(['b', 'b', 'b']);
  });

  it("limits a worker's concurrent requests, and the next waits for one to end", async () => {
    const { addWorker, enter } = startBalancer({ maxOpen: 2 });
    await addWorker('a');
    const [first] = [await enter(), await enter()];
    const third = enter();
    await expect(Promise.race([third, Promise.resolve('waits')])).resolves.toBe('waits');
    first.end();
    expect((await third).podId).toBe('a');
  });

  it('ends a turn once, however often it is called', async () => {
    const { addWorker, enter, load } = startBalancer();
    await addWorker('a');
    const call = await enter();
    call.end();
    call.end();
    expect(await load()).toMatchObject({ running: 0, workers: [{ jobs: 0, taken: 1 }] });
  });

  it('does not serve queue endpoints or unknown endpoints', async () => {
    const { balancer } = startBalancer();
    for (const endpointId of ['ep_queue', 'ep_none']) {
      const entered = balancer.enter({ endpointId, signal: never });
      await expect(entered).rejects.toMatchObject({ code: 'not_found' });
    }
  });

  it('pings no worker of a queue endpoint', async () => {
    const { clock, targets } = startBalancer();
    const worker = await startWorker({ endpointId: 'ep_queue' });
    targets.put(worker.target);
    await clock.advance(5_000);
    expect(worker.pings).toBe(0);
  });
});

describe('a worker', () => {
  it('is starting while it answers 204, and gets requests after its first 200', async () => {
    const { addWorker, clock, listReady, untilReady } = startBalancer();
    const worker = await addWorker('a', 204);
    while (worker.pings < 3) {
      await clock.advance(250);
      await nextTurn();
    }
    expect(await listReady()).toEqual([]);
    worker.ping = 200;
    await untilReady('a');
  });

  it('is unready after two failed pings in a row and ready after one success', async () => {
    const { addWorker, clock, listReady, untilReady } = startBalancer();
    const worker = await addWorker('a');
    const nextPing = async () => {
      const { pings } = worker;
      await clock.advance(1_000);
      while (worker.pings === pings) await nextTurn();
    };
    worker.ping = 500;
    await nextPing();
    expect(await listReady()).toEqual(['a']);
    await nextPing();
    await untilReady();
    worker.ping = 200;
    await untilReady('a');
  });

  it('fails an unanswered ping after 2 s', async () => {
    const { addWorker, clock, untilReady } = startBalancer();
    const worker = await addWorker('a');
    worker.ping = undefined;
    await clock.advance(1_000);
    await untilReady();
    worker.ping = 200;
    await untilReady('a');
  });

  it('gets no request until it answers a ping if it refuses connections', async () => {
    const { addWorker, enter, listReady, untilReady } = startBalancer();
    await addWorker('a');
    const call = await enter();
    call.noteUnreachable();
    expect(await listReady()).toEqual([]);
    await untilReady('a');
  });

  it('counts as new after its address changes, and no longer after removal', async () => {
    const { addWorker, listReady, targets } = startBalancer();
    const worker = await addWorker('a');
    const moved = await startWorker({ endpointId: WEB, podId: 'a' });
    moved.ping = 204;
    targets.put(moved.target);
    expect(await listReady()).toEqual([]);
    targets.put(worker.target);
    while ((await listReady()).length === 0) await nextTurn();
    targets.remove('a');
    expect(await listReady()).toEqual([]);
  });

  it('continues to drain after its address changes', async () => {
    const { addWorker, balancer, load, targets } = startBalancer();
    await addWorker('a');
    balancer.drain(WEB, 'a');
    const moved = await startWorker({ endpointId: WEB, podId: 'a' });
    targets.put(moved.target);
    while ((await load()).workers.length === 0) await nextTurn();
    expect(await load()).toMatchObject({ workers: [{ podId: 'a', draining: true }] });
  });

  it('gets the waiting requests when its end is cancelled', async () => {
    const { addWorker, enter, targets } = startBalancer();
    const { target } = await addWorker('a');
    targets.put({ ...target, isLeaving: true });
    const entered = enter();
    targets.put(target);
    expect((await entered).podId).toBe('a');
  });
});

describe('while no worker is ready', () => {
  it('requests are served in the order of arrival', async () => {
    const { addWorker, enter } = startBalancer({ maxOpen: 1 });
    const served: number[] = [];
    const waiting = [1, 2, 3].map(async (n) => {
      const call = await enter();
      served.push(n);
      call.end();
    });
    await addWorker('a');
    await Promise.all(waiting);
    expect(served).toEqual([1, 2, 3]);
  });

  it('makes a request wait up to its limit', async () => {
    const { clock, enter, load } = startBalancer({ waitMs: 5_000 });
    const refused = expect(enter()).rejects.toMatchObject({
      ...{ code: 'unavailable', message: expect.stringContaining('5 s'), retryAfterMs: 1_000 },
    });
    await clock.advance(4_999);
    expect((await load()).running).toBe(1);
    await clock.advance(1);
    await refused;
    expect((await load()).running).toBe(0);
  });

  it('tells a request that waited in vain the error code of the last ping', async () => {
    const { addWorker, clock, enter, untilReady } = startBalancer({ waitMs: 5_000 });
    await (await addWorker('a')).die();
    await untilReady();
    const refused = expect(enter()).rejects.toMatchObject({
      message: expect.stringMatching(/: a .*\([A-Z_]+\)$/),
    });
    await clock.advance(5_000);
    await refused;
  });

  it('refuses a request when maxQueued requests wait', async () => {
    const { balancer, enter } = startBalancer();
    const waiting = Array.from({ length: 10 }, () => enter());
    await expect(enter()).rejects.toMatchObject({ code: 'queue_full' });
    balancer.stop();
    const ends = await Promise.allSettled(waiting);
    expect(new Set(ends.map(({ status }) => status))).toEqual(new Set(['rejected']));
  });

  it('ends the wait of a request whose client has disconnected', async () => {
    const { addWorker, enter, load } = startBalancer({ maxOpen: 1 });
    const client = new AbortController();
    const gone = expect(enter(client.signal)).rejects.toMatchObject({ code: 'unavailable' });
    const next = enter();
    expect((await load()).running).toBe(2);
    client.abort();
    await gone;
    expect((await load()).running).toBe(1);
    await addWorker('a');
    expect((await next).podId).toBe('a');
  });

  it('requests to a deleted endpoint are refused', async () => {
    const { enter, remove } = startBalancer();
    const refused = expect(enter()).rejects.toMatchObject({ code: 'not_found' });
    remove(WEB);
    await refused;
  });

  it('keeps the workers of other endpoints when an endpoint is deleted', async () => {
    const { addWorker, listReady, remove } = startBalancer();
    await addWorker('a');
    remove('ep_queue');
    expect(await listReady()).toEqual(['a']);
    remove(WEB);
    expect(await listReady()).toEqual([]);
  });
});

describe('the balancer reports its load', () => {
  it('when a request waits, when a worker is ready, and when the last has ended', async () => {
    const { addWorker, balancer, enter } = startBalancer();
    let told = 0;
    balancer.onLoad(() => {
      told++;
    });
    const entered = enter();
    expect(told).toBe(1);
    await addWorker('a');
    const call = await entered;
    const before = told;
    expect(before).toBeGreaterThan(1);
    call.end();
    expect(told).toBe(before + 1);
  });

  it('when requests increase, but not each time', async () => {
    const { addWorker, balancer, enter } = startBalancer();
    await addWorker('a');
    const held = await enter();
    let told = 0;
    balancer.onLoad(() => {
      told++;
    });
    const calls = [await enter(), await enter()];
    expect(told).toBe(2);
    for (const call of calls) call.end();
    for (let i = 0; i < 5; i++) (await enter()).end();
    expect(told).toBe(2);
    held.end();
    expect(told).toBe(3);
  });

  it('when a draining worker has no request left', async () => {
    const { addWorker, balancer, enter, load } = startBalancer();
    await addWorker('a');
    await addWorker('b');
    const [first] = [await enter(), await enter()];
    balancer.drain(WEB, first.podId);
    const loads: Promise<unknown>[] = [];
    balancer.onLoad(() => {
      loads.push(load());
    });
    first.end();
    expect(await loads[0]).toMatchObject({
      running: 1,
      workers: [
        { podId: 'a', jobs: 0, draining: true },
        { podId: 'b', jobs: 1, draining: false },
      ],
    });
  });
});
