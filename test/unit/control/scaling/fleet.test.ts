// Workers come and go with the work: pods, queue and fleet together, in time that the test drives.
import { describe, expect, it, onTestFinished } from 'vitest';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { OWNER } from '../../../../src/store/store.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

/** Does something each time when an endpoint's work has been looked at, and nothing was decided yet. */
function afterLoads({ platform }: FleetWorld, act: () => Promise<void> | void): void {
  const { workerLoads } = platform.queue;
  const load = workerLoads.load.bind(workerLoads);
  workerLoads.load = async (endpointId) => {
    const seen = await load(endpointId);
    await act();
    return seen;
  };
}

describe('an endpoint that is scaled to zero', () => {
  it('has no pods, and starts none without a job', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    await world.run(30_000);
    expect(world.listPods(id)).toEqual([]);
  });

  it('starts a worker at once with the first job', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    await world.run(2_345);
    await world.submit(id);
    for (let turn = 0; turn < 5; turn++) await world.clock.advance(0);
    expect(world.listRunning()).toHaveLength(1);
  });

  it('starts a worker at once for a job that arrives during a pass', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    await world.run(1_000);
    let looks = 0;
    afterLoads(world, async () => {
      if (looks++ === 0) await world.submit(id);
    });
    world.platform.fleet.wake(id);
    for (let turn = 0; turn < 5; turn++) await world.clock.advance(0);
    expect(world.listRunning()).toHaveLength(1);
  });

  it('starts one with a job whose delay is over', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    const job = { endpointId: id, mode: 'run', input: Buffer.from('{}') } as const;
    const policy = { delay: 60_000 };
    await world.platform.queue.submissions.submit({ ...job, policy, idempotency: undefined });
    await world.run(59_900);
    expect(world.listPods(id)).toEqual([]);
    await world.run(200);
    expect(world.listPods(id)).toHaveLength(1);
  });

  it('has the workers of a window while it is open, and says why', async () => {
    const world = await openWorld();
    const minute = 60_000;
    const from = (Math.ceil(world.clock.now() / minute) + 2) * minute;
    const begin = new Date(from);
    const cron = `${begin.getUTCMinutes()} ${begin.getUTCHours()} * * *`;
    const window = { cron, timeZone: 'UTC', workersMin: 2, forMs: 5 * minute };
    const id = await world.createEndpoint({ workersMax: 3, workersSchedule: [window] });
    await world.run(from - world.clock.now() - 100);
    expect(world.listPods(id)).toEqual([]);
    await world.run(minute);
    expect(world.listPods(id)).toHaveLength(2);
    const until = new Date(from + 5 * minute).toISOString();
    const decisions = await world.explain(id);
    expect(decisions.at(-1)?.reason).toContain(
      `workersMin is 2 by workersSchedule until ${until}: starting 2`,
    );
    await world.run(6 * minute);
    expect(world.listPods(id)).toEqual([]);
  });

  it('scales up to its maximum for 200 jobs and back to zero, and runs each job once', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMax: 4 });
    await world.submit(id, 200);
    await world.until(async () => (await world.countJobs(id)).completed === 200);
    expect(world.most).toBe(4);
    await world.until(() => world.listPods(id).length === 0, 10_000);
    expect(await world.countJobs(id)).toMatchObject({ completed: 200, retried: 0, failed: 0 });
    expect(world.listRunning()).toEqual([]);
  });

  it('starts all needed workers at once by count', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({
      workersMax: 9,
      scaler: { type: 'REQUEST_COUNT', perWorker: 4 },
    });
    await world.submit(id, 9);
    await world.run(50);
    expect(world.listRunning()).toHaveLength(3);
  });
});

describe('an endpoint', () => {
  it('keeps its minimum of workers and replaces ended ones', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 2 });
    await world.run(1_000);
    expect(world.listRunning()).toHaveLength(2);
    const [first = ''] = world.listRunning();
    world.host.end(first, 1);
    await world.run(3_000);
    expect(world.listRunning()).toHaveLength(2);
    expect(world.listRunning()).not.toContain(first);
    expect(world.listPods(id)).toHaveLength(2);
  });

  it('replaces a worker at once whose machine is going to end it, and lets it finish its job', async () => {
    const world = await openWorld({ jobMs: 20_000 });
    const id = await world.createEndpoint({ workersMin: 1, workersMax: 1 });
    await world.submit(id);
    await world.run(2_000);
    const [first = ''] = world.listRunning();
    world.host.change(first, { leaving: 'the cluster drains its node' });
    await world.run(1_000);
    expect(world.listRunning()).toHaveLength(2);
    expect(world.platform.pods.ofEndpoint(id).find((pod) => pod.id === first)).toMatchObject({
      ...{ status: 'RUNNING', reason: 'the cluster drains its node' },
    });
    await world.submit(id);
    await world.run(5_000);
    // The new worker takes the second job, although the first worker is not gone.
    expect(await world.countJobs(id)).toMatchObject({ inProgress: 2 });
    await world.until(() => !world.host.containers.has(first), 60_000);
    await world.until(async () => (await world.countJobs(id)).completed === 2, 60_000);
    expect(await world.countJobs(id)).toMatchObject({ retried: 0, failed: 0 });
    expect(world.listRunning()).toHaveLength(1);
    const crashed = (await world.explain(id)).filter(({ cause }) => cause === 'crashed');
    expect(crashed).toEqual([]);
  });

  it.each(['gone', 'ended'] as const)(
    'does not start a worker again that is %s with its machine',
    async (how) => {
      const world = await openWorld({ jobMs: 20_000 });
      const id = await world.createEndpoint({ workersMin: 2, workersMax: 2 });
      await world.run(2_000);
      await world.submit(id, 2);
      await world.run(1_000);
      const [first = '', second = ''] = world.listRunning();
      world.host.change(first, { leaving: 'its node is lost' });
      await world.run(300);
      if (how === 'gone') world.host.remove(first, 'keep');
      else world.host.end(first, 137);
      await world.run(5_000);
      expect(world.listRunning()).toContain(second);
      expect(world.listRunning()).not.toContain(first);
      expect(world.listPods(id)).toHaveLength(2);
      expect(world.host.containers.has(first)).toBe(false);
      const crashed = (await world.explain(id)).filter(({ cause }) => cause === 'crashed');
      expect(crashed).toEqual([]);
    },
  );

  it('drains surplus workers when its maximum falls', async () => {
    const world = await openWorld({ jobMs: 30_000 });
    const id = await world.createEndpoint({
      workersMax: 3,
      scaler: { type: 'REQUEST_COUNT', perWorker: 1 },
    });
    await world.submit(id, 3);
    await world.run(5_000);
    await world.platform.endpoints.update(OWNER, id, { workersMax: 1 });
    await world.run(5_000);
    expect(world.listRunning()).toHaveLength(3);
    await world.until(() => world.listRunning().length === 1, 40_000);
    await world.run(2_000);
    expect(await world.countJobs(id)).toMatchObject({ completed: 3, retried: 0 });
  });

  it('loses its workers when it is deleted', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 2 });
    await world.run(1_000);
    await world.platform.endpoints.remove(OWNER, id);
    await world.run(1_000);
    expect(world.listRunning()).toEqual([]);
    expect(world.platform.pods.ofEndpoint(id)).toEqual([]);
  });

  it('is not reconciled for every job', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(1_000);
    let looks = 0;
    afterLoads(world, () => {
      looks++;
    });
    for (let n = 0; n < 40; n++) {
      await world.submit(id);
      await world.run(50);
    }
    expect(looks).toBeGreaterThan(5);
    expect(looks).toBeLessThanOrEqual(25);
  });

  it('is not scaled while it may have no workers, whatever waits', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMax: 0 });
    await world.submit(id);
    await world.run(1_000);
    let looks = 0;
    afterLoads(world, () => {
      looks++;
    });
    await world.run(30_000);
    expect(looks).toBe(0);
    for (let n = 0; n < 40; n++) await world.submit(id);
    await world.run(1_000);
    expect(looks).toBeLessThanOrEqual(3);
    await world.platform.endpoints.update(OWNER, id, { workersMax: 1 });
    await world.run(100);
    expect(world.listRunning()).toHaveLength(1);
  });

  it('has no workers if it was only declared', async () => {
    const world = await openWorld();
    await world.platform.endpoints.ensureEndpoint('declared');
    await world.submit('declared');
    await world.run(5_000);
    expect(world.platform.pods.all()).toEqual([]);
  });
});

describe('a worker', () => {
  it("gets the platform's URL and a key of its own that ends with it", async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    await world.submit(id);
    await world.run(500);
    const [podId = ''] = world.listRunning();
    const { env } = world.host.get(podId).spec;
    expect(env).toMatchObject({
      MILLRACE_URL: 'http://platform.test',
      ...{ MILLRACE_ENDPOINT: id, MILLRACE_WORKER_ID: podId },
      MILLRACE_STATE_DIR: `/workers/${id}`,
    });
    const key = env['MILLRACE_KEY'] ?? '';
    const holder = world.platform.keys.authenticate(key);
    expect(holder).toMatchObject({ userId: OWNER, scopes: new Set([`worker:${id}`]) });
    expect(JSON.stringify(world.platform.pods.all())).not.toContain(key);
    await world.until(() => world.listPods(id).length === 0, 20_000);
    await world.run(1_000);
    expect(world.platform.keys.authenticate(key)).toBeUndefined();
  });

  it('has a new key once its container is recreated, and the old key is invalid', async () => {
    const world = await openWorld();
    await world.createEndpoint({ workersMin: 1 });
    await world.run(500);
    const [podId = ''] = world.listRunning();
    const keyOf = () => world.host.get(podId).spec.env['MILLRACE_KEY'] ?? '';
    const before = keyOf();
    await world.platform.pods.act(OWNER, podId, 'restart');
    await world.run(500);
    expect(world.platform.keys.authenticate(before)).toBeUndefined();
    expect(world.platform.keys.authenticate(keyOf())).toBeDefined();
  });

  it('stays as long as it gets jobs from time to time', async () => {
    const world = await openWorld({ jobMs: 20 });
    const id = await world.createEndpoint({ idleTimeout: 5 });
    await world.submit(id);
    await world.run(2_000);
    const [podId] = world.listRunning();
    for (let n = 0; n < 10; n++) {
      await world.submit(id);
      await world.run(4_600);
    }
    expect(world.listRunning()).toEqual([podId]);
    await world.run(2_000);
    expect(world.listRunning()).toEqual([]);
  });

  it('is replaced if it becomes silent', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(2_000);
    const [podId = ''] = world.listRunning();
    world.worker(podId).kill();
    await world.run(40_000);
    expect(world.listRunning()).toEqual([podId]);
    await world.run(10_000);
    expect(world.listRunning()).toHaveLength(1);
    expect(world.listRunning()).not.toContain(podId);
    expect(world.listPods(id)).toHaveLength(1);
  });

  it('loses its job to another one before its lease expires if its pod is killed', async () => {
    const world = await openWorld({ jobMs: 2_000 });
    const id = await world.createEndpoint({ workersMin: 1, workersMax: 1 });
    await world.run(1_000);
    const [podId = ''] = world.listRunning();
    await world.submit(id);
    await world.run(500);
    world.host.end(podId, 137);
    await world.run(5_000);
    expect(await world.countJobs(id)).toMatchObject({ completed: 1, retried: 1 });
  });

  it.each(['ends', 'is removed'])(
    'leaves its job at the start if its pod %s while the platform is down',
    async (what) => {
      const world = await openWorld({ jobMs: 2_000 });
      const id = await world.createEndpoint({ workersMin: 1, workersMax: 1 });
      await world.run(1_000);
      const [podId = ''] = world.listRunning();
      await world.submit(id);
      await world.run(500);
      await world.leave();
      world.host.end(podId, 137);
      if (what === 'is removed') {
        // The platform was cut off right after it had removed the pod.
        world.host.containers.delete(podId);
        await world.store.write((tx) => tx.removeResource({ kind: 'pod', id: podId }));
      }
      await world.start();
      await world.run(6_000);
      expect(await world.countJobs(id)).toMatchObject({ completed: 1, retried: 1 });
    },
  );

  it('gets no time to finish if its endpoint is deleted', async () => {
    const world = await openWorld({ jobMs: 100_000_000 });
    const id = await world.createEndpoint({ workersMin: 1 });
    await world.run(1_000);
    const [podId = ''] = world.listRunning();
    await world.platform.endpoints.remove(OWNER, id);
    await world.run(1_000);
    expect(world.listRunning()).toEqual([]);
    expect(world.host.graces.get(podId)).toBe(2_000);
  });

  it('gets a quarter of an hour if it never becomes ready', async () => {
    const world = await openWorld();
    world.habits.isMute = true;
    await world.createEndpoint({ workersMin: 1 });
    await world.run(1_000);
    const [podId = ''] = world.listRunning();
    await world.run(14 * 60_000);
    expect(world.listRunning()).toEqual([podId]);
    await world.run(2 * 60_000);
    expect(world.listRunning()).not.toContain(podId);
  });

  it('is ended after a drain when none of its jobs can still run', async () => {
    const world = await openWorld({ jobMs: 100_000_000 });
    const id = await world.createEndpoint({ workersMin: 1, executionTimeout: 20_000 });
    await world.submit(id);
    await world.run(5_000);
    const [podId = ''] = world.listRunning();
    await world.platform.endpoints.update(OWNER, id, { workersMin: 0, workersMax: 0 });
    await world.run(75_000);
    expect(world.listRunning()).toEqual([podId]);
    await world.run(15_000);
    expect(world.listRunning()).toEqual([]);
  });
});

describe('workers that crash', () => {
  it('are restarted with growing pauses of at most a minute', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate({ args: 'exit 7' });
    const id = await world.createEndpoint({ templateId, workersMax: 5 });
    await world.submit(id, 20);
    await world.run(10 * 60_000);
    const starts = (await world.explain(id)).filter(({ start }) => start > 0).reverse();
    const times = starts.map(({ at }) => Date.parse(at) / 1_000);
    const pauses = times.slice(1).map((at, n) => Math.round(at - (times[n] ?? 0)));
    expect(pauses.slice(0, 7)).toEqual([1, 2, 4, 8, 16, 32, 60]);
    expect(Math.max(...pauses)).toBeLessThanOrEqual(61);
    expect(starts.every(({ start }) => start === 1)).toBe(true);
    const [last] = await world.explain(id);
    expect(last?.cause).toBe('crashed');
    expect(last?.reason).toContain('it exited with code 7: printed by pod_');
  });

  it('are restarted at once if their spec has changed', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate({ args: 'exit 7' });
    const id = await world.createEndpoint({ templateId });
    await world.submit(id);
    await world.run(5 * 60_000);
    await world.platform.templates.update(OWNER, templateId, { args: '' });
    await world.run(3_000);
    expect(await world.countJobs(id)).toMatchObject({ completed: 1 });
  });

  it('are also paused if they exit without an error before they were ready', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate({ args: 'exit 0' });
    const id = await world.createEndpoint({ templateId });
    await world.submit(id);
    await world.run(60_000);
    const starts = (await world.explain(id)).filter(({ start }) => start > 0);
    expect(starts.length).toBeLessThanOrEqual(7);
  });

  it('are paused too if their pods cannot be created', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint();
    world.platform.pods.create = () => Promise.reject(new Error('no more of these'));
    await world.submit(id);
    await world.run(60_000);
    const starts = (await world.explain(id)).filter(({ start }) => start > 0);
    expect(starts.length).toBeGreaterThan(1);
    expect(starts.length).toBeLessThanOrEqual(7);
    expect((await world.explain(id))[0]?.reason).toContain('no more of these');
  });

  it('are paused too if their containers cannot be created', async () => {
    const world = await openWorld();
    const templateId = await world.createTemplate({ image: 'missing' });
    const id = await world.createEndpoint({ templateId });
    await world.submit(id);
    await world.run(60_000);
    const [last, ...others] = await world.explain(id);
    expect(last?.reason).toContain('there is no image "missing"');
    expect(others.filter(({ start }) => start > 0).length).toBeLessThanOrEqual(7);
    expect(world.listPods(id)).toEqual([]);
  });
});

it('has the GPU time in which its workers ran jobs on its bill, over a restart of the platform', async () => {
  const world = await openWorld({ gpus: makeGpus('Big', 2), jobMs: 3_000 });
  const id = await world.createEndpoint({ gpuTypeIds: ['Big'], workersMax: 2 });
  const readBusy = async () => {
    const { clock, platform, store } = world;
    const nameOf = () => undefined;
    const billing = new Billing({ store, clock, pods: platform.pods, nameOf });
    const range = { userId: OWNER, from: 0, to: clock.now() + 86_400_000 };
    const [row] = await billing.rows({ ...range, step: 'day', kind: 'endpoint', id });
    return row;
  };
  await world.submit(id, 10);
  await world.until(async () => (await world.countJobs(id)).completed === 10);
  await world.until(() => world.listPods(id).length === 0, 10_000);
  expect(await readBusy()).toMatchObject({ busyGpuMs: 30_000 });
  await world.leave();
  await world.start();
  await world.submit(id, 4);
  await world.until(async () => (await world.countJobs(id)).completed === 14);
  await world.until(() => world.listPods(id).length === 0, 10_000);
  const row = await readBusy();
  expect(row).toMatchObject({ busyGpuMs: 42_000 });
  expect(row?.gpuMs).toBeGreaterThan(42_000);
});
