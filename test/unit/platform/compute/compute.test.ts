// How the control plane begins and ends the management of pods: what it knows of budgets before, and that it leaves the
// pods alone at once.
import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { Catalog } from '../../../../src/control/endpoints/catalog.ts';
import { composeCatalog } from '../../../../src/control/endpoints/catalog-contents.ts';
import { Keys } from '../../../../src/control/keys/keys.ts';
import { SecretSealer } from '../../../../src/control/registries/sealed-secret.ts';
import { noteRemoval } from '../../../../src/control/volumes/engine-volumes.ts';
import type { NetworkVolumes } from '../../../../src/engine/engine.ts';
import { Compute } from '../../../../src/platform/compute/compute.ts';
import type { ComputeOptions } from '../../../../src/platform/compute/compute-parts.ts';
import type { WorkerHost } from '../../../../src/platform/compute/pod-control.ts';
import { templateCreation } from '../../../../src/wire/resources/template.ts';
import { MemoryEngine } from '../../../support/containers/memory-engine.ts';
import { createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';

const OWNER = 'owner';

async function openWorld(): Promise<PodWorld> {
  const world = await PodWorld.open({ catalog: createCatalog(['g1']) });
  onTestFinished(() => world.close());
  return world;
}

class EngineWithVolumes extends MemoryEngine {
  readonly networkVolumes: NetworkVolumes;
  readonly lists: number[] = [];

  constructor({ clock, host }: PodWorld, networkVolumes: NetworkVolumes) {
    super(host);
    this.networkVolumes = networkVolumes;
    const list = this.list.bind(this);
    this.list = () => {
      this.lists.push(clock.now());
      return list();
    };
  }
}

const NO_VOLUMES: NetworkVolumes = {
  remove: async () => {},
  grow: async () => {},
  list: async () => [],
};

const NO_KEY = { log: silentLog, sealer: new SecretSealer([]) };

async function openCompute(
  world: PodWorld,
  volumes = NO_VOLUMES,
  { log, sealer }: Pick<ComputeOptions, 'log' | 'sealer'> = NO_KEY,
) {
  const { clock, store } = world;
  const processors = { vcpus: 4, memoryBytes: 8 * 2 ** 30 };
  const given = { file: undefined, devices: [], processors, readPassword: () => '' };
  const engine = new EngineWithVolumes(world, volumes);
  const compute = await Compute.open({
    ...{ store, clock, log, engine: () => engine, processUsers: 'owner', sealer },
    catalog: new Catalog(composeCatalog(given)),
  });
  return { compute, engine };
}

const HOST: WorkerHost = {
  urlOf: () => 'http://127.0.0.1:1',
  endWorker: async () => {},
  tidy: async () => {},
  listWorkers: () => [],
  view: { load: async () => Promise.reject(new Error('no endpoint')), drain: () => {} },
  onWork: () => () => {},
  leaseMs: 15_000,
};

it('counts running pods before the first request for a pod', async () => {
  const world = await openWorld();
  await world.create({ gpu: { id: GPU, count: 1 } });
  // At 2 USD an hour, of which the last minutes are not on the bill.
  await world.settle(30 * 60_000 + 1_000);
  const before = await openCompute(world);
  const limits = { limit: 1, warnAt: 1, period: 'month', endpointId: null, webhook: null } as const;
  const budget = { name: 'all', setBy: 'user', ...limits } as const;
  const { id } = await before.compute.budgets.create(OWNER, budget);
  const { compute } = await openCompute(world);
  expect(compute.budgets.findObstacle(OWNER, null)).toContain('"all" may be used up');
  expect(await compute.budgets.get(OWNER, id)).toMatchObject({ state: 'ok' });
});

it('leaves the pods alone at once when it ends, although the removal of a volume hangs', async () => {
  const world = await openWorld();
  const { clock, store } = world;
  const isRemoving = Promise.withResolvers<void>();
  const isRemoved = Promise.withResolvers<void>();
  await store.write((tx) => noteRemoval(tx, { id: 'vol_1', userId: OWNER, source: 'vol_1' }));
  const { compute, engine } = await openCompute(world, {
    ...NO_VOLUMES,
    remove: async () => {
      isRemoving.resolve();
      await isRemoved.promise;
    },
  });
  await compute.begin(await Keys.open({ store, clock }), HOST);
  await isRemoving.promise;
  await world.settle(10_000);
  const lists = engine.lists.length;
  expect(lists).toBeGreaterThan(1);
  let hasEnded = false;
  const ending = compute.end().then(() => {
    hasEnded = true;
  });
  await world.settle(60_000);
  // It still waits for the removal, and nothing lists containers any more.
  expect([hasEnded, engine.lists.length]).toEqual([false, lists]);
  isRemoved.resolve();
  await ending;
});

it('seals the variables of pods and templates at its start, and names a key that is missing', async () => {
  const world = await openWorld();
  const { clock, store } = world;
  const env = { TOKEN: 's3cret' };
  await world.create({ env });
  const warned: unknown[] = [];
  const warn = (...given: unknown[]) => warned.push(given);
  const log = Object.assign(Object.create(silentLog), { warn });
  const start = async (byte?: number) => {
    const keys = byte === undefined ? [] : [Buffer.alloc(32, byte)];
    const parts = { log, sealer: new SecretSealer(keys) };
    const { compute } = await openCompute(world, NO_VOLUMES, parts);
    await compute.begin(await Keys.open({ store, clock }), HOST);
    await compute.end();
    return compute;
  };
  const template = templateCreation.parse({ name: 't', image: 'i', env });
  await (await start()).templates.create(OWNER, template);
  const readBodies = async () => {
    const read = (kind: string) => store.read((tx) => tx.resources({ kind, limit: 1 }));
    return JSON.stringify([await read('pod'), await read('template')]);
  };
  expect((await readBodies()).split('s3cret')).toHaveLength(3);
  await start(1);
  expect(await readBodies()).not.toContain('s3cret');
  expect(warned).toEqual([]);
  await start(2);
  expect(warned).toEqual([
    [{ keys: [expect.any(String)], pods: 1, templates: 1 }, 'secrets key of variables is missing'],
  ]);
});
