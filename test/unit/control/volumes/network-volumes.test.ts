// Network volumes of users: what may be created, changed and deleted, and what is left to remove.
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { BudgetFindings } from '../../../../src/control/billing/budget-judge.ts';
import { Budgets } from '../../../../src/control/billing/budgets.ts';
import { Catalog } from '../../../../src/control/endpoints/catalog.ts';
import { catalogFile, composeCatalog } from '../../../../src/control/endpoints/catalog-contents.ts';
import { splitCreation } from '../../../../src/control/endpoints/endpoint-records.ts';
import type { PodUse } from '../../../../src/control/pods/pod-state.ts';
import { openSpecResources } from '../../../../src/control/served-resources.ts';
import { noteRemoval, VolumeRemovals } from '../../../../src/control/volumes/engine-volumes.ts';
import { nameSource } from '../../../../src/control/volumes/network-volumes.ts';
import { EngineError } from '../../../../src/engine/engine.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { endpointCreation } from '../../../../src/wire/resources/endpoint.ts';
import { errorAt } from '../../../support/answers.ts';

const FILE = catalogFile.parse({
  dataCenters: [{ id: 'north' }, { id: 'south' }],
  users: {
    ada: { networkVolumes: [{ id: 'old', name: 'Old', dataCenterId: 'south' }] },
    eve: { networkVolumes: [{ id: 'of-weights', name: 'weights', dataCenterId: 'south' }] },
  },
});

async function open({ hasCopies = false } = {}) {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const clock = new ManualClock();
  const processors = { vcpus: 4, memoryBytes: 8 * 2 ** 30 };
  const pods: PodUse[] = [];
  const removed: string[] = [];
  const grown: [string, number][] = [];
  const state = {
    fault: undefined as EngineError | undefined,
    /** The volume that can be removed nevertheless. */
    removable: undefined as string | undefined,
    /** Volumes on machines that can be called. */
    found: new Set<string>(),
    lists: 0,
    /** In units of the bill. */
    spent: 0n,
  };
  const volumes = {
    async remove(source: string) {
      if (state.fault && source !== state.removable) throw state.fault;
      removed.push(source);
      state.found.delete(source);
    },
    async list() {
      state.lists++;
      return [...state.found];
    },
  };
  const removals = new VolumeRemovals({ store, clock, volumes, log: silentLog, hasCopies });
  const openAll = async () => {
    const catalog = new Catalog(
      composeCatalog({ file: FILE, devices: [], processors, readPassword: () => 'p' }),
    );
    const findings = new BudgetFindings();
    const opened = await openSpecResources({
      ...{ store, clock, catalog, engine: 'docker', listPods: () => pods },
      onRemoved: () => void removals.run(),
      onGrown: (source, sizeGb) => void grown.push([source, sizeGb]),
      findings,
    });
    const budgets = await Budgets.open({
      ...{ store, clock, log: silentLog, findings, findEndpoint: () => undefined },
      spending: {
        read: async (scopes) => scopes.map(() => ({ billed: state.spent, unseen: 0n })),
      },
    });
    return { catalog: opened.userCatalog, volumes: opened.networkVolumes, budgets };
  };
  const start = () => {
    removals.start();
    onTestFinished(() => removals.stop());
    return removals.run();
  };
  return {
    ...(await openAll()),
    store,
    clock,
    openAll,
    grown,
    pods,
    removals,
    removed,
    start,
    state,
  };
}

const creation = { name: 'models', size: 10, dataCenterId: null };

function podWith(volumeId: string, given: Partial<PodUse> = {}): PodUse {
  return {
    ...{ id: 'pod_1', userId: 'ada', endpointId: null, status: 'EXITED' },
    spec: { name: 'train', registry: null, mounts: { network: [{ volumeId, path: '/data' }] } },
    ...given,
  };
}

describe('a network volume', () => {
  it('is in the default data center unless one is named, and can be mounted', async () => {
    const { catalog, openAll, volumes } = await open();
    const made = await volumes.create('ada', creation);
    expect(made).toMatchObject({
      name: 'models',
      size: 10,
      dataCenterId: 'north',
      declared: false,
    });
    const source = nameSource('ada', made.id);
    for (const some of [catalog, (await openAll()).catalog]) {
      expect(some.volume('ada', made.id)).toMatchObject({ source, sizeGb: 10 });
      expect(some.volume('bob', made.id)).toBeUndefined();
      expect(some.resolveVolume('ada', 'models')).toBe(made.id);
      expect(some.resolveVolume('bob', 'models')).toBe('models');
    }
    const south = await volumes.create('ada', { ...creation, dataCenterId: 'south' });
    expect(south.dataCenterId).toBe('south');
    const nowhere = volumes.create('ada', { ...creation, dataCenterId: 'west' });
    await expect(nowhere).rejects.toMatchObject({ errors: [errorAt('dataCenterId')] });
  });

  it('grows, and never shrinks', async () => {
    const { grown, volumes } = await open();
    const { id } = await volumes.create('ada', creation);
    expect(await volumes.update('ada', id, { size: 20 })).toMatchObject({ size: 20 });
    await volumes.update('ada', id, { name: 'weights', size: 20 });
    expect(grown).toEqual([[nameSource('ada', id), 20]]);
    const shrunk = volumes.update('ada', id, { size: 19 });
    await expect(shrunk).rejects.toMatchObject({ code: 'invalid', errors: [errorAt('size')] });
    expect(await volumes.update('ada', id, { name: 'n' })).toMatchObject({ size: 20, name: 'n' });
  });

  it('can be neither created nor grown while a budget for all that the user has is used up', async () => {
    const { budgets, state, volumes } = await open();
    const { id } = await volumes.create('ada', creation);
    const limit = { name: 'month', limit: 1, warnAt: 0.8, webhook: null, endpointId: null };
    const budget = await budgets.create('ada', { ...limit, period: 'month', setBy: 'user' });
    state.spent = 2n * 3_600_000_000_000n;
    await budgets.observe((error) => {
      throw error;
    });
    const refused = { code: 'over_budget', message: expect.stringContaining('"month" is used up') };
    await expect(volumes.create('ada', creation)).rejects.toMatchObject(refused);
    await expect(volumes.update('ada', id, { size: 20 })).rejects.toMatchObject(refused);
    expect(await volumes.update('ada', id, { name: 'weights', size: 10 })).toMatchObject({
      size: 10,
    });
    await volumes.create('bob', creation);
    await volumes.remove('ada', id);
    await budgets.update('ada', budget.id, { limit: 10 });
    await volumes.create('ada', creation);
  });

  it('cannot be deleted while a pod has it, and the refusal names the pod', async () => {
    const { catalog, pods, volumes } = await open();
    const { id } = await volumes.create('ada', creation);
    pods.push(podWith(id, { endpointId: 'ep_1' }));
    const refusal = (message: RegExp) => ({
      ...{ code: 'conflict', message: expect.stringMatching(message) },
    });
    const ofWorker = refusal(/pod_1 .*EXITED.*ep_1.*; change or delete its endpoint first$/);
    await expect(volumes.remove('ada', id)).rejects.toMatchObject(ofWorker);
    pods.push(podWith(id));
    const ofBoth = refusal(/; terminate the pods, and change or delete the endpoints of/);
    await expect(volumes.remove('ada', id)).rejects.toMatchObject(ofBoth);
    pods.shift();
    const ofPod = refusal(/; terminate it first$/);
    await expect(volumes.remove('ada', id)).rejects.toMatchObject(ofPod);
    expect(catalog.volume('ada', id)).toBeDefined();
    pods.splice(0, 1, podWith(id, { userId: 'bob' }));
    const removing = volumes.remove('ada', id);
    // A pod that is created from now on must not get it.
    expect(catalog.volume('ada', id)).toBeUndefined();
    await removing;
    expect(volumes.find('ada', id)).toBeUndefined();
  });

  it('cannot be deleted while endpoints mount it, and the refusal names each', async () => {
    const { store, volumes } = await open();
    const { id } = await volumes.create('ada', creation);
    const given = endpointCreation.parse({ name: 'e', templateId: 't', networkVolumeId: id });
    const endpoint = { userId: 'ada', createdAt: 0, shard: 0, ...splitCreation(given) };
    for (const each of ['ep_1', 'ep_2']) {
      await store.write((tx) => tx.putEndpoint({ ...endpoint, id: each }));
    }
    const users = 'endpoint e (ep_1), endpoint e (ep_2) mount';
    const named = { code: 'conflict', message: expect.stringContaining(users) };
    await expect(volumes.remove('ada', id)).rejects.toMatchObject(named);
    expect(volumes.get('ada', id)).toMatchObject({ id });
    for (const each of ['ep_1', 'ep_2']) {
      await store.write((tx) => tx.putEndpoint({ ...endpoint, id: each, deleted: true }));
    }
    await volumes.remove('ada', id);
    expect(volumes.find('ada', id)).toBeUndefined();
  });

  it('is listed and mounted from the catalog file, but only the operator can change it', async () => {
    const { catalog, volumes } = await open();
    const { id } = await volumes.create('ada', creation);
    const page = (before?: number) => volumes.list({ userId: 'ada', before, limit: 1 });
    const first = await page();
    expect(first.records).toMatchObject([{ id, declared: false }]);
    const declared = { id: 'old', name: 'Old', size: null, dataCenterId: 'south', declared: true };
    expect(await page(first.next)).toMatchObject({ records: [declared], next: undefined });
    expect(volumes.get('ada', 'old')).toMatchObject(declared);
    expect(() => volumes.get('bob', 'old')).toThrowError(/not found/);
    expect(catalog.volume('ada', 'old')?.source).toBe(nameSource('ada', 'old'));
    const refused = { code: 'conflict', message: expect.stringContaining('catalog file') };
    await expect(volumes.remove('ada', 'old')).rejects.toMatchObject(refused);
    await expect(volumes.update('ada', 'old', { name: 'x' })).rejects.toMatchObject(refused);
  });
});

describe('a name', () => {
  const resolve = ({ volumes }: Awaited<ReturnType<typeof open>>, name: string) =>
    volumes.resolve('eve', name);

  it('finds a declared volume, and not if two volumes have it', async () => {
    const world = await open();
    expect(resolve(world, 'weights')).toBe('of-weights');
    expect(world.volumes.resolve('bob', 'weights')).toBe('weights');
    const { id } = await world.volumes.create('eve', { ...creation, name: 'weights' });
    expect(() => resolve(world, 'weights')).toThrowError(new RegExp(`${id}, of-weights`));
  });

  it('cannot be the ID of a declared volume, which stands for that volume', async () => {
    const world = await open();
    const refused = { code: 'conflict', message: expect.stringContaining('ID old') };
    const shadow = { ...creation, name: 'old' };
    await expect(world.volumes.create('ada', shadow)).rejects.toMatchObject(refused);
    const { id } = await world.volumes.create('ada', creation);
    const renamed = world.volumes.update('ada', id, { name: 'old' });
    await expect(renamed).rejects.toMatchObject(refused);
    expect(world.volumes.get('ada', id).name).toBe('models');
    await world.volumes.create('bob', shadow);
    // A record that was there before the operator declared the ID.
    const row = await world.store.read((tx) => tx.resource({ kind: 'networkVolume', id }));
    if (!row) throw new Error('nothing is stored');
    const body = row.body.replace('"models"', '"old"');
    await world.store.write((tx) => tx.putResource({ ...row, body }));
    expect((await world.openAll()).volumes.resolve('ada', 'old')).toBe('old');
  });
});

describe('the content of a deleted volume', () => {
  it('is removed from the engine', async () => {
    const { removals, removed, start, volumes } = await open();
    await start();
    const { id } = await volumes.create('ada', creation);
    await volumes.remove('ada', id);
    await removals.run();
    expect(removed).toEqual([nameSource('ada', id)]);
    await removals.run();
    expect(removed).toHaveLength(1);
  });

  it('is removed later if the engine does not answer, and after a restart', async () => {
    const { clock, removed, start, state, volumes } = await open();
    const ids = [await volumes.create('ada', creation), await volumes.create('ada', creation)];
    for (const { id } of ids) await volumes.remove('ada', id);
    expect(removed).toEqual([]);
    state.fault = new EngineError('unavailable', 'no answer');
    await start();
    expect(removed).toEqual([]);
    state.fault = undefined;
    await clock.advance(60_000);
    await expect.poll(() => removed.length).toBe(2);
    expect(removed.toSorted()).toEqual(ids.map(({ id }) => nameSource('ada', id)).toSorted());
  });

  it('is removed although many others cannot be', async () => {
    const { removals, removed, start, state, store } = await open();
    const ids = Array.from({ length: 250 }, (_, n) => `nv_${n}`);
    await store.write((tx) => {
      for (const id of ids) noteRemoval(tx, { id, userId: 'ada', source: `of ${id}` });
    });
    state.fault = new EngineError('unavailable', 'in use');
    await start();
    for (const id of ['nv_0', 'nv_125', 'nv_249']) {
      state.removable = `of ${id}`;
      // A pass tries 100.
      for (let pass = 0; pass < 3; pass++) await removals.run();
      expect(removed.at(-1)).toBe(`of ${id}`);
    }
  });

  it('is removed from a machine that was away, when it is back, also after a restart', async () => {
    const { removals, removed, start, state, volumes } = await open({ hasCopies: true });
    await start();
    const [deleted, kept] = [
      await volumes.create('ada', creation),
      await volumes.create('ada', creation),
    ].map(({ id }) => ({ id, source: nameSource('ada', id) }));
    if (!deleted || !kept) throw new Error('there are no volumes');
    await volumes.remove('ada', deleted.id);
    await removals.run();
    expect(removed).toEqual([deleted.source]);
    await removals.stop();
    state.found = new Set([deleted.source, kept.source, 'network-of-the-operator']);
    await start();
    expect(removed).toEqual([deleted.source, deleted.source]);
    await removals.run();
    expect(removed).toHaveLength(2);
  });

  it('costs no look at the machines each, however many are deleted', async () => {
    const { removals, removed, start, state, store, volumes } = await open({ hasCopies: true });
    await start();
    for (let count = 0; count < 5; count++) {
      await volumes.remove('ada', (await volumes.create('ada', creation)).id);
    }
    // All of them wait for the same pass.
    await Promise.all(Array.from({ length: 100 }, () => removals.run()));
    expect({ removed: removed.length, lists: state.lists }).toEqual({ removed: 5, lists: 0 });
    await store.write((tx) => {
      for (let number = 0; number < 100; number++) {
        noteRemoval(tx, { id: `nv_${number}`, userId: 'ada', source: `of ${number}` });
      }
    });
    await removals.run();
    // What is remembered has a bound, which a look keeps.
    expect({ removed: removed.length, lists: state.lists }).toEqual({ removed: 105, lists: 1 });
    await removals.noteMachines();
    expect(state.lists).toBe(2);
  });

  it('is forgotten after 90 days', async () => {
    const { clock, removals, removed, start, state, volumes } = await open({ hasCopies: true });
    await start();
    const { id } = await volumes.create('ada', creation);
    await volumes.remove('ada', id);
    await removals.run();
    await clock.advance(91 * 86_400_000);
    await removals.noteMachines();
    state.found.add(nameSource('ada', id));
    await removals.noteMachines();
    expect(removed).toHaveLength(1);
  });
});
