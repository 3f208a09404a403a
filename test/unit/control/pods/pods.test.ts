// What users may have of pods, and how a pod is shown to them.
import { describe, expect, it, onTestFinished } from 'vitest';
import { DEFAULT_QUOTAS } from '../../../../src/control/limits/quotas.ts';
import type { PodCatalog } from '../../../../src/control/pods/pods.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import type { TemplateRecord } from '../../../../src/wire/resources/template.ts';
import {
  CPU,
  createCatalog,
  GPU,
  PodWorld,
  type PodWorldOptions,
} from '../../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../../support/no-names.ts';

const OWNER = 'owner';

async function openWorld(options?: PodWorldOptions): Promise<PodWorld> {
  const world = await PodWorld.open(options);
  onTestFinished(() => world.close());
  return world;
}

async function refusal(act: Promise<unknown>): Promise<string> {
  try {
    await act;
    return 'let through';
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return `${error.status} ${error.errors?.join() ?? error.message}`;
  }
}

const template: TemplateRecord = {
  ...{ id: 'tpl_1', name: 't', image: 'from-template', args: 'serve', env: { A: '1' }, disk: 7 },
  ...{ ports: ['80/http'], registry: 'private', handler: 'handler.ts', version: 4 },
  createdAt: '2026-01-01T00:00:00.000Z',
};
const templates = {
  ...NO_NAMES,
  find: (userId: string, id: string) =>
    userId === OWNER && id === template.id ? template : undefined,
};

describe('creation', () => {
  it('sets defaults for missing members', async () => {
    const world = await openWorld();
    expect(await world.pods.show(await world.create())).toEqual({
      ...{ id: expect.stringMatching(/^pod_[0-9a-f-]{36}$/), name: 'a', status: 'PROVISIONING' },
      ...{ actions: ['stop', 'terminate'], image: 'busy', args: '', disk: 20, ports: [], env: {} },
      ...{ registry: null, mounts: {}, cpu: CPU, cloud: 'SECURE', dataCenterId: 'local' },
      ...{ template: null, cost: 0.25, locked: false, globalNetworking: { enabled: false } },
      ...{ runtime: null, createdAt: '2026-01-01T00:00:00.000Z', startedAt: null },
      ...{ endpointId: null, node: null, reason: null },
    });
  });

  it('takes only missing members from the template', async () => {
    const world = await openWorld({ pods: { templates } });
    const plain = await world.create({ template: 'tpl_1' });
    expect(plain.spec).toMatchObject({
      ...{ image: 'from-template', args: 'serve', env: { A: '1' }, disk: 7 },
      ...{ ports: ['80/http'], registry: 'private', template: 'tpl_1', templateVersion: 4 },
      handler: null,
    });
    const own = { image: 'own', args: '', env: {}, disk: 9, ports: [], registry: null };
    const other = await world.create({ template: 'tpl_1', ...own });
    expect(other.spec).toMatchObject({ ...own, template: 'tpl_1' });
    expect(await refusal(world.create({ template: 'tpl_2' }))).toMatch(/^422 template: .*tpl_2/);
  });

  it('contains the endpoint and the handler of a worker', async () => {
    const world = await openWorld({ engine: 'process' });
    const { id } = await world.createWorker();
    await world.settle();
    expect(world.host.get(id).spec).toMatchObject({
      handler: 'handler.ts',
      labels: { 'millrace.endpoint': 'ep_1' },
    });
    expect(world.pods.ofEndpoint('ep_1')).toMatchObject([
      { id, endpointId: 'ep_1', spec: { templateVersion: 3 } },
    ]);
    expect(world.pods.ofEndpoint('ep_2')).toEqual([]);
  });

  it('cannot ask for more GPUs than exist', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1', 'g2']) });
    const tooMany = world.create({ gpu: { id: GPU, count: 3 } });
    expect(await refusal(tooMany)).toMatch(/^422 gpu\.count: .*\b2\b/);
  });

  it('counts pods of the user for the quota, and no workers', async () => {
    const world = await openWorld({ pods: { quotas: { ...DEFAULT_QUOTAS, pods: 2 } } });
    for (let count = 0; count < 3; count++) await world.createWorker();
    const [first] = [await world.create(), await world.create()];
    expect(await refusal(world.create())).toMatch(/^409 .*quota of 2 pods/);
    await world.pods.act(OWNER, first.id, 'terminate');
    expect(await refusal(world.create())).toBe('let through');
  });

  it('stores the IDs of a network volume and a registry that it names, also after an update', async () => {
    const world = await openWorld();
    const mount = { volumeId: 'models', path: '/data' };
    const { id, spec } = await world.create({ mounts: { network: [mount] }, registry: 'own' });
    const network = [{ volumeId: 'data', path: '/data' }];
    expect(spec).toMatchObject({ mounts: { network }, registry: 'private' });
    const unnamed = await world.create({ registry: null });
    expect(unnamed.spec).toMatchObject({ mounts: {}, registry: null });
    const moved = { network: [{ ...mount, path: '/else' }] };
    const updated = await world.pods.update(OWNER, id, { mounts: moved, registry: 'own' });
    expect(updated.spec).toMatchObject({
      mounts: { network: [{ volumeId: 'data', path: '/else' }] },
      registry: 'private',
    });
    const renamed = await world.pods.update(OWNER, id, { name: 'other' });
    expect(renamed.spec).toEqual({ ...updated.spec, name: 'other' });
  });

  it('checks the rules of mounts before any lookup', async () => {
    const check: PodCatalog['check'] = () => {
      throw new Error('looked up');
    };
    const world = await openWorld({ catalog: { ...createCatalog(), check } });
    const mounts = { persistent: { size: 10, path: '/data' } };
    expect(await refusal(world.create({ mounts }))).toMatch(/^400 mounts.persistent/);
  });

  it('needs a command line on processes, and has no network of its own', async () => {
    const world = await openWorld({ engine: 'process' });
    expect(await refusal(world.create())).toMatch(/^422 args: /);
    expect(await refusal(world.create({ args: 'x', globalNetworking: true }))).toMatch(
      /^422 globalNetworking: /,
    );
    expect(await refusal(world.create({ args: 'x' }))).toBe('let through');
  });

  it('is for the owner only on processes, unless the operator trusts all users', async () => {
    const world = await openWorld({ engine: 'process' });
    expect(await refusal(world.create({ args: 'x' }, 'bob'))).toMatch(/^403 .*--trust-users/);
    const trusting = await openWorld({ engine: 'process', pods: { processUsers: 'all' } });
    expect(await refusal(trusting.create({ args: 'x' }, 'bob'))).toBe('let through');
    const contained = await openWorld({ engine: 'docker' });
    expect(await refusal(contained.create({}, 'bob'))).toBe('let through');
  });
});

describe('another user', () => {
  it('cannot find, change, read or end a pod of this user', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    const { pods } = world;
    const unknown = new RegExp(`^404 .*${id}`);
    expect(await refusal(pods.find('bob', id))).toMatch(unknown);
    expect(await refusal(pods.update('bob', id, { name: 'mine' }))).toMatch(unknown);
    expect(await refusal(pods.act('bob', id, 'terminate'))).toMatch(unknown);
    expect(await refusal(pods.readLog('bob', id, 10))).toMatch(unknown);
    expect((await pods.list({ userId: 'bob', limit: 10 })).pods).toEqual([]);
  });
});

describe('an update', () => {
  it('does not change the container with name and lock', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    await world.settle();
    const updated = await world.pods.update(OWNER, id, { name: 'b', locked: true });
    expect(updated).toMatchObject({ status: 'RUNNING', generation: 1, spec: { name: 'b' } });
    expect((await world.pods.show(updated)).actions).toEqual([]);
  });

  it('changes nothing with the current values', async () => {
    const world = await openWorld();
    const { id } = await world.create({ env: { A: '1', B: '2' }, ports: ['80/tcp', '81/tcp'] });
    const same = { env: { B: '2', A: '1' }, ports: ['81/tcp', '80/tcp'], args: '', disk: 20 };
    expect(await world.pods.update(OWNER, id, same)).toMatchObject({ generation: 1 });
  });

  it.each([
    { image: 'other' },
    { args: 'other' },
    { disk: 21 },
    { ports: ['80/tcp'] },
    { env: { A: '1' } },
    { registry: 'private' },
    { mounts: { network: [{ volumeId: 'data', path: '/else' }] } },
  ])('creates another container with %o', async (update) => {
    const world = await openWorld();
    const mounts = { network: [{ volumeId: 'data', path: '/data' }] };
    const { id } = await world.create({ mounts });
    await world.settle();
    const updated = await world.pods.update(OWNER, id, update);
    expect(updated).toMatchObject({ status: 'STARTING', generation: 2 });
    await world.settle();
    expect(world.host.get(id)).toMatchObject({ seen: { generation: 2, state: 'running' } });
  });

  it.each(['process', 'docker'] as const)(
    'keeps the disk where disks are not limited if it only makes it larger: %s',
    async (engine) => {
      const world = await openWorld({ engine });
      world.host.limitsDisks = false;
      const { id } = await world.create({ args: 'run' });
      await world.settle();
      const updated = await world.pods.update(OWNER, id, { disk: 21 });
      expect(updated).toMatchObject({ generation: 1, spec: { disk: 21 } });
      expect(await world.pods.update(OWNER, id, { disk: 22, args: 'else' })).toMatchObject({
        generation: 2,
      });
    },
  );

  it('inspects the container if necessary if it only enlarges a disk', async () => {
    const world = await openWorld();
    world.host.limitsDisks = false;
    const { id } = await world.create();
    await world.settle();
    world.pods.live.noteSeen(id, undefined);
    world.host.trouble = new Error('away');
    expect(await refusal(world.pods.update(OWNER, id, { disk: 21 }))).toMatch(/^503 /);
    world.host.trouble = undefined;
    expect(await world.pods.update(OWNER, id, { disk: 21 })).toMatchObject({ generation: 1 });
  });

  it('keeps container and disk if it only makes the volume larger', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1']) });
    const { id } = await world.create({
      gpu: { id: GPU, count: 1 },
      mounts: { persistent: { path: '/data', size: 10 } },
    });
    await world.settle();
    const change = (path: string, size: number) =>
      world.pods.update(OWNER, id, { mounts: { persistent: { path, size } } });
    const grown = await change('/data', 20);
    expect(grown).toMatchObject({ status: 'RUNNING', generation: 1 });
    expect(grown.spec.mounts).toEqual({ persistent: { path: '/data', size: 20 } });
    expect(await change('/else', 30)).toMatchObject({ generation: 2 });
  });

  it.each([{ args: 'a "b' }, { args: "it's" }, { args: 'a \\' }])(
    'is refused with %o, as is a new pod',
    async (fields) => {
      const world = await openWorld();
      const { id } = await world.create();
      expect(await refusal(world.pods.update(OWNER, id, fields))).toMatch(/^422 args/);
      expect(await refusal(world.create(fields))).toMatch(/^422 args/);
    },
  );

  it('cannot make a disk smaller', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    expect(await refusal(world.pods.update(OWNER, id, { disk: 19 }))).toMatch(/^422 disk: /);
  });

  it('can change only name and lock of a locked pod, unless it unlocks the pod', async () => {
    const world = await openWorld();
    const { id } = await world.create({ locked: true });
    const { pods } = world;
    expect(await refusal(pods.update(OWNER, id, { args: 'x' }))).toMatch(/^409 .*locked/);
    expect(await refusal(pods.act(OWNER, id, 'terminate'))).toMatch(/^409 .*locked/);
    expect(await pods.update(OWNER, id, { name: 'c' })).toMatchObject({ generation: 1 });
    expect(await pods.update(OWNER, id, { args: 'x', locked: false })).toMatchObject({
      generation: 2,
    });
  });

  it('is checked like a creation', async () => {
    const world = await openWorld({ engine: 'process' });
    const { id } = await world.create({ args: 'x' });
    expect(await refusal(world.pods.update(OWNER, id, { args: ' ' }))).toMatch(/^422 args: /);
  });

  it('can change the name of a worker, but not its command', async () => {
    const world = await openWorld();
    const { id } = await world.createWorker({ locked: true });
    expect(await refusal(world.pods.update(OWNER, id, { args: 'x' }))).toMatch(/^409 .* ep_1/);
    expect(await refusal(world.pods.update(OWNER, id, { name: 'x' }))).toBe('let through');
    await world.pods.endWorker(id);
    await world.pods.endWorker(id);
    await world.settle();
    expect(world.pods.ofEndpoint('ep_1')).toEqual([]);
  });

  it('is a conflict for a TERMINATED pod, before and after its removal', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    await world.pods.act(OWNER, id, 'terminate');
    expect(await refusal(world.pods.update(OWNER, id, { name: 'b' }))).toMatch(/^409/);
    await world.settle();
    expect(await refusal(world.pods.update(OWNER, id, { name: 'b' }))).toMatch(/^409/);
    expect(await refusal(world.pods.act(OWNER, id, 'start'))).toMatch(/^409 .*TERMINATED/);
  });
});

describe('a list', () => {
  it('is newest first, in pages, with terminated pods', async () => {
    const world = await openWorld();
    const ids: string[] = [];
    for (let made = 0; made < 5; made++) ids.unshift((await world.create()).id);
    await world.create({}, 'bob');
    await world.pods.act(OWNER, ids[1] ?? '', 'terminate');
    await world.settle();
    const found: string[] = [];
    let before: number | undefined;
    do {
      const { next, pods } = await world.pods.list({ userId: OWNER, before, limit: 2 });
      expect(pods.length).toBeLessThanOrEqual(2);
      found.push(...pods.map(({ id }) => id));
      before = next;
    } while (before !== undefined);
    expect(found).toEqual(ids);
  });

  it('keeps its order after a restart with a clock that was set back', async () => {
    const world = await openWorld();
    const first = await world.create();
    await world.clock.advance(-3_600_000);
    await world.restart();
    const second = await world.create();
    const { pods } = await world.pods.list({ userId: OWNER, limit: 10 });
    expect(pods.map(({ id }) => id)).toEqual([second.id, first.id]);
  });
});

describe('the record', () => {
  it('shows usage, ports and cost of a running pod', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1', 'g2']) });
    const gpu = { id: GPU, count: 2 };
    const { id } = await world.create({ gpu, ports: ['8000/http'], globalNetworking: true });
    await world.settle(42_900);
    expect(await world.pods.show(await world.pods.find(OWNER, id))).toMatchObject({
      ...{ status: 'RUNNING', gpu, cost: 4, startedAt: '2026-01-01T00:00:00.000Z' },
      globalNetworking: {
        ...{
          enabled: true,
          ip: '10.0.0.7',
          internalDns: `${id.replace('_', '-')}.millrace.internal`,
        },
      },
      runtime: {
        uptime: 42,
        gpus: [
          { util: 97, memoryUtil: 20 },
          { util: 97, memoryUtil: 20 },
        ],
        cpu: { util: 12 },
        memory: { util: 50 },
        ports: [{ private: 8_000, public: 38_000, type: 'http', ip: '127.0.0.1' }],
      },
    });
  });

  it('shows cost 0 while a pod waits for a GPU, and its price once it has one', async () => {
    const world = await openWorld({ catalog: createCatalog(['g1']) });
    const gpu = { id: GPU, count: 1 };
    const first = await world.create({ gpu });
    await world.settle();
    const { id } = await world.create({ gpu });
    await world.settle();
    const show = async () => world.pods.show(await world.pods.find(OWNER, id));
    expect(await show()).toMatchObject({
      ...{ status: 'PROVISIONING', cost: 0, reason: expect.stringContaining(GPU) },
    });
    await world.pods.act(OWNER, first.id, 'terminate');
    await world.settle(5_000);
    expect(await show()).toMatchObject({ status: 'RUNNING', cost: 2 });
  });

  it('shows cost 0 and no usage of a stopped pod', async () => {
    const world = await openWorld();
    const { id } = await world.create();
    await world.settle();
    await world.pods.act(OWNER, id, 'stop');
    await world.settle();
    expect(await world.pods.show(await world.pods.find(OWNER, id))).toMatchObject({
      ...{ status: 'EXITED', cost: 0, runtime: null, actions: ['start', 'terminate'] },
      startedAt: '2026-01-01T00:00:00.000Z',
    });
  });

  it('omits figures that the engine does not return in time', async () => {
    const world = await openWorld();
    const { id } = await world.create({ ports: ['80/tcp'] });
    await world.settle();
    world.engine.stats = () => new Promise(() => {});
    const shown = world.pods.find(OWNER, id).then((pod) => world.pods.show(pod));
    await world.settle(1_000);
    expect((await shown).runtime).toEqual({
      uptime: expect.any(Number),
      ports: [expect.objectContaining({ private: 80 })],
    });
  });
});
