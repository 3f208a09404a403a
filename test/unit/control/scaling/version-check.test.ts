// Rollouts of versions: pods, queue and fleet together, in time that the test drives.
import { describe, expect, it, onTestFinished } from 'vitest';
import { reservePlace } from '../../../../src/control/scaling/version-check.ts';
import { beginRollout } from '../../../../src/control/versions/rollout.ts';
import { OWNER } from '../../../../src/store/store.ts';
import type { Rollout } from '../../../../src/wire/resources/endpoint.ts';
import type { ScalerInput } from '../../../../src/wire/resources/scaling.ts';
import { FleetWorld, type FleetWorldOptions } from '../../../support/containers/fleet-world.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

async function openWorld(options?: FleetWorldOptions): Promise<FleetWorld> {
  const world = await FleetWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

function deploy({ clock, platform }: FleetWorld, id: string, version: number, timeoutMs = 60_000) {
  return platform.endpoints.changeDeployment(id, (deployment) =>
    beginRollout(deployment, { version, timeoutMs, now: clock.now() }),
  );
}

function show({ platform }: FleetWorld, id: string) {
  const { rollout, source, version } = platform.endpoints.get(OWNER, id);
  return { rollout, source, version };
}

const stateOf = (world: FleetWorld, id: string): Rollout['state'] | undefined =>
  show(world, id).rollout?.state;

/** Versions of the endpoint's pods that are not being ended. */
function listVersions(world: FleetWorld, id: string): (number | undefined)[] {
  return world.listPods(id).map(({ spec }) => spec.version);
}

async function openDeployed(
  options?: FleetWorldOptions,
  changes: object = {},
): Promise<{ world: FleetWorld; id: string }> {
  const world = await openWorld(options);
  const id = await world.createEndpoint({ source: 'VERSION', ...changes });
  await deploy(world, id, 1);
  await world.until(() => stateOf(world, id) === 'DONE');
  return { world, id };
}

describe('an endpoint for versions', () => {
  it('starts no worker before a deployment, whatever waits', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ source: 'VERSION', workersMin: 1 });
    await world.submit(id);
    await world.run(10_000);
    expect(world.listPods(id)).toEqual([]);
    await deploy(world, id, 1);
    await world.until(async () => (await world.countJobs(id)).completed === 1);
    expect(show(world, id)).toMatchObject({ version: 1, source: 'VERSION' });
  });

  it('is checked by one worker, also without load, which leaves when it is idle', async () => {
    const { world, id } = await openDeployed();
    expect(world.most).toBe(1);
    await world.until(() => world.listPods(id).length === 0);
    expect(show(world, id)).toMatchObject({ version: 1, rollout: { state: 'DONE' } });
  });

  it('may have run the handler of its template before', async () => {
    const world = await openWorld();
    const id = await world.createEndpoint({ workersMin: 2 });
    await world.run(2_000);
    expect(listVersions(world, id)).toEqual([undefined, undefined]);
    await deploy(world, id, 1);
    await world.until(() => stateOf(world, id) === 'DONE');
    expect(show(world, id)).toMatchObject({ version: 1, source: 'VERSION' });
    await world.until(() => listVersions(world, id).length === 2, 60_000);
    expect(listVersions(world, id)).toEqual([1, 1]);
  });
});

describe('a deployment', () => {
  it('replaces all workers under load, new ones ready first, and loses no job', async () => {
    const { world, id } = await openDeployed({ jobMs: 2_000 }, { workersMin: 2, workersMax: 2 });
    await world.submit(id, 20);
    await world.run(3_000);
    await deploy(world, id, 2);
    let fewest = 9;
    await world.until(() => {
      fewest = Math.min(fewest, world.listRunning().length);
      return stateOf(world, id) === 'DONE';
    });
    expect(fewest).toBe(2);
    await world.until(async () => (await world.countJobs(id)).completed === 20);
    expect(await world.countJobs(id)).toMatchObject({ retried: 0, failed: 0 });
    expect(listVersions(world, id)).toEqual([2, 2]);
  });

  it('leaves the earlier version and its workers alone if its worker exits', async () => {
    const { world, id } = await openDeployed({}, { workersMin: 1 });
    const before = world.listRunning();
    world.habits.isMute = true;
    await deploy(world, id, 2);
    await world.until(() => listVersions(world, id).includes(2));
    await world.run(500);
    const check = world.listPods(id).find(({ spec }) => spec.version === 2);
    world.host.end(check?.id ?? '', 1);
    await world.until(() => stateOf(world, id) === 'FAILED');
    await world.run(30_000);
    expect(show(world, id)).toMatchObject({ version: 1, rollout: { version: 2, from: 1 } });
    expect(show(world, id).rollout?.reason).toContain('code 1');
    expect(world.listRunning()).toEqual(before);
  });

  it('fails if its worker does not connect in time, and the worker is ended', async () => {
    const { world, id } = await openDeployed({}, { workersMin: 1 });
    const before = world.listRunning();
    world.habits.isMute = true;
    await deploy(world, id, 2, 20_000);
    await world.run(15_000);
    expect(stateOf(world, id)).toBe('CHECKING');
    expect(world.listRunning()).toHaveLength(2);
    await world.until(() => stateOf(world, id) === 'FAILED', 20_000);
    expect(show(world, id).rollout?.reason).toContain('did not connect within 20 s');
    await world.run(5_000);
    expect(world.listRunning()).toEqual(before);
  });

  it('is replaced by a further one before its worker has connected', async () => {
    const { world, id } = await openDeployed({}, { workersMin: 1 });
    world.habits.isMute = true;
    await deploy(world, id, 2);
    await world.run(2_000);
    world.habits.isMute = false;
    await deploy(world, id, 3);
    await world.until(() => stateOf(world, id) === 'DONE');
    await world.until(() => listVersions(world, id).length === 1);
    expect(listVersions(world, id)).toEqual([3]);
    expect(show(world, id)).toMatchObject({ version: 3, rollout: { from: 1 } });
  });

  it('goes back to the running version at once', async () => {
    const { world, id } = await openDeployed({}, { workersMin: 1 });
    world.habits.isMute = true;
    await deploy(world, id, 2);
    await world.run(2_000);
    await deploy(world, id, 1);
    await world.until(() => stateOf(world, id) === 'DONE');
    await world.until(() => listVersions(world, id).length === 1);
    expect(listVersions(world, id)).toEqual([1]);
  });

  it('goes on after a restart of the platform', async () => {
    const { world, id } = await openDeployed({ bootMs: 5_000 }, { workersMin: 1 });
    await deploy(world, id, 2);
    await world.run(1_000);
    await world.leave();
    await world.run(1_000);
    await world.start();
    await world.until(() => stateOf(world, id) === 'DONE');
    expect(world.most).toBe(2);
    await world.until(() => listVersions(world, id).length === 1);
    expect(listVersions(world, id)).toEqual([2]);
  });

  it('fails if its further workers crash, and the earlier version comes back', async () => {
    const { world, id } = await openDeployed({}, { workersMin: 3, workersMax: 3 });
    await deploy(world, id, 2);
    await world.until(() => stateOf(world, id) === 'ROLLING');
    world.habits.isMute = true;
    const crashed = new Set<string>();
    await world.until(async () => {
      const started = world.listPods(id).filter(({ spec }) => spec.version === 2);
      for (const pod of started) {
        if (!crashed.has(pod.id) && pod.startedAt !== null) world.host.end(pod.id, 1);
        if (pod.startedAt !== null) crashed.add(pod.id);
      }
      return stateOf(world, id) === 'FAILED';
    }, 120_000);
    world.habits.isMute = false;
    expect(show(world, id)).toMatchObject({ version: 1, rollout: { version: 2, from: 1 } });
    expect(show(world, id).rollout?.reason).toMatch(/its workers crashed 3 times.*code 1/);
    await world.until(() => listVersions(world, id).length === 3, 120_000);
    expect(listVersions(world, id)).toEqual([1, 1, 1]);
    await world.submit(id, 3);
    await world.until(async () => (await world.countJobs(id)).completed === 3);
  });

  it('makes room for its worker if every GPU is in use', async () => {
    const gpus = makeGpus('Big', 1);
    const { world, id } = await openDeployed({ gpus }, { workersMin: 1, gpuTypeIds: ['Big'] });
    expect(listVersions(world, id)).toEqual([1]);
    await deploy(world, id, 2);
    await world.until(() => stateOf(world, id) === 'DONE');
    expect(world.most).toBe(1);
    expect(listVersions(world, id)).toEqual([2]);
  });

  it('gives the GPU back to the earlier version if its worker never becomes ready', async () => {
    const gpus = makeGpus('Big', 1);
    const { world, id } = await openDeployed({ gpus }, { workersMin: 1, gpuTypeIds: ['Big'] });
    world.habits.isMute = true;
    await deploy(world, id, 2, 20_000);
    await world.until(() => stateOf(world, id) === 'FAILED');
    world.habits.isMute = false;
    await world.until(
      () => listVersions(world, id)[0] === 1 && listVersions(world, id).length === 1,
    );
    expect(show(world, id)).toMatchObject({ version: 1 });
  });
});

const INPUT: ScalerInput = {
  ...{ now: 0, type: 'QUEUE', workersMin: 0, workersMax: 2, idleTimeoutMs: 5_000 },
  scaler: { type: 'QUEUE_DELAY', seconds: 4 },
  load: { waiting: 1, running: 0, oldestQueuedAt: 0, peak: 1 },
  ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
  crashes: { streak: 0, notBefore: 0, reason: null },
};

describe('the place that is kept for a check worker', () => {
  it('takes one free GPU, of the first type that has one', () => {
    const gpus = [
      { id: 'small', free: 0 },
      { id: 'middle', free: 2 },
      { id: 'large', free: 1 },
    ];
    const reserved = reservePlace({ ...INPUT, places: 3, gpus });
    expect(reserved.places).toBe(2);
    expect(reserved.gpus?.map(({ free }) => free)).toEqual([0, 1, 1]);
  });

  it('leaves nothing below zero', () => {
    const headroom = { places: 0, shortage: 'no memory' };
    const reserved = reservePlace({ ...INPUT, places: 0, gpus: [{ id: 'a', free: 0 }], headroom });
    expect(reserved).toMatchObject({ places: 0, gpus: [{ free: 0 }], headroom: { places: 0 } });
  });

  it('changes nothing where places are not counted', () => {
    expect(reservePlace(INPUT)).toEqual(INPUT);
  });
});
