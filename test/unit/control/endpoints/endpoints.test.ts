import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { Endpoints } from '../../../../src/control/endpoints/endpoints.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { endpointCreation } from '../../../../src/wire/resources/endpoint.ts';
import { templateCreation } from '../../../../src/wire/resources/template.ts';
import { errorAt } from '../../../support/answers.ts';
import { NO_NAMES } from '../../../support/no-names.ts';

const NEW = { before: undefined, limit: 100 };

/** Of the settings that nobody has given. */
const DEFAULTS = {
  ...{ workersMin: 0, idleTimeout: 5, scaler: { type: 'QUEUE_DELAY', seconds: 4 } },
  ...{ executionTimeout: 600_000, maxAttempts: 3, maxQueued: 100_000, webhook: null },
  ...{ groupConcurrency: null, groupRateLimit: null, groupWeights: null, limits: [] },
  rateLimit: null,
  workersSchedule: [],
  workersMinChanges: [],
  ...{ retry: null, retryOutOfMemoryOn: 'ANY_GPU_TYPE', failedRetention: 604_800_000 },
  history: null,
  ...{ gpuWeight: 1, minResidenceMs: 1_000, parkSeconds: 3_600, spareWorkers: 0, yields: false },
  ...{ preemptible: false, preemptAbovePriority: null },
  ...{ maxSuspensions: 20, maxSuspendedSeconds: 600 },
  ...{ networkVolumeId: null, networkVolumePath: '/runpod-volume' },
};

interface World {
  engine?: 'process' | 'docker' | 'none';
}

/** With a template of each user, `tpl_ada` and `tpl_bob`, and the GPU types big and small. */
async function openEndpoints({ engine = 'process' }: World = {}) {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const clock = new ManualClock();
  const catalog = { hasGpuType: (id: string) => ['big', 'small'].includes(id) };
  const admit = (userId: string) => {
    if (userId === 'eve') throw new ProblemError('forbidden', 'nothing is run for eve');
  };
  const volumes = {
    names: { resolve: (_userId: string, id: string) => (id === 'models' ? 'vol_1' : id) },
    findFault: (userId: string, id: string) =>
      userId === 'ada' && ['vol_1', 'vol_2'].includes(id) ? undefined : 'not found',
  };
  const templates = NO_NAMES;
  const deploying =
    engine === 'none' ? {} : { deploying: { engine, catalog, admit, templates, volumes } };
  const reopen = () => Endpoints.open({ store, clock, ...deploying });
  const addTemplate = (userId: string, id: string, given: object = {}) => {
    const fields = templateCreation.parse({ name: id, image: 'i', handler: '/h.ts', ...given });
    const record = { id, ...fields, createdAt: new Date(0).toISOString(), version: 1 };
    const body = JSON.stringify(record);
    return store.write((tx) =>
      tx.putResource({ kind: 'template', id, userId, parent: '', position: 1, body }),
    );
  };
  await addTemplate('ada', 'tpl_ada');
  await addTemplate('bob', 'tpl_bob');
  return { addTemplate, clock, reopen, store, endpoints: await reopen() };
}

const creation = (given: object = {}) =>
  endpointCreation.parse({ name: 'image', templateId: 'tpl_ada', ...given });

describe('endpoints that another process changes', () => {
  it('are known, changed or gone after a reload, and listeners learn of each', async () => {
    const { clock, endpoints, reopen } = await openEndpoints();
    await endpoints.ensureEndpoint('same');
    await endpoints.ensureEndpoint('changed');
    await endpoints.ensureEndpoint('gone');
    const other = await reopen();
    const noted: object[] = [];
    other.onChange((change) => noted.push(change));
    await endpoints.ensureEndpoint('changed', { maxAttempts: 9 });
    await clock.advance(1_000);
    await endpoints.ensureEndpoint('added');
    await endpoints.remove('owner', 'gone');
    await other.reload();
    expect(other.find('changed')).toEqual(endpoints.find('changed'));
    expect([other.has('added'), other.has('gone'), other.has('same')]).toEqual([true, false, true]);
    expect(noted).toEqual([
      { id: 'gone', kind: 'deleted' },
      { id: 'changed', kind: 'put' },
      { id: 'added', kind: 'put' },
    ]);
  });
});

describe('an endpoint that is declared', () => {
  it('exists with default settings, also after a restart', async () => {
    const { clock, endpoints, reopen } = await openEndpoints();
    expect(endpoints.has('demo')).toBe(false);
    expect(await endpoints.ensureEndpoint('demo')).toMatchObject({
      ...{ id: 'demo', createdAt: clock.now() },
      settings: { executionTimeoutMs: 600_000, maxAttempts: 3, maxQueued: 100_000 },
    });
    expect(endpoints.has('demo')).toBe(true);
    expect((await reopen()).has('demo')).toBe(true);
  });

  it('keeps its settings when it is declared again without any, and always its creation time', async () => {
    const { clock, endpoints } = await openEndpoints();
    const { createdAt } = await endpoints.ensureEndpoint('demo', { maxAttempts: 7 });
    await clock.advance(1_000);
    const again = await endpoints.ensureEndpoint('demo');
    expect(again).toMatchObject({ createdAt, settings: { maxAttempts: 7 } });
    const changed = await endpoints.ensureEndpoint('demo', { maxAttempts: 2 });
    expect(changed).toMatchObject({ createdAt, settings: { maxAttempts: 2 } });
    expect(await endpoints.readAll()).toHaveLength(1);
  });

  it.each(['pods', 'catalog', '', '-a', 'a b', 'a/b', 'x'.repeat(65)])(
    'is refused with the name %j',
    async (id) => {
      const { endpoints } = await openEndpoints();
      await expect(endpoints.ensureEndpoint(id)).rejects.toMatchObject({ code: 'invalid' });
      expect(endpoints.has(id)).toBe(false);
    },
  );

  it('is refused with settings out of range, by path', async () => {
    const { endpoints } = await openEndpoints();
    await expect(endpoints.ensureEndpoint('demo', { maxAttempts: 0 })).rejects.toMatchObject({
      errors: [errorAt('maxAttempts')],
    });
  });

  it('is shown with its ID as name, without template and workers', async () => {
    const { clock, endpoints } = await openEndpoints();
    await endpoints.ensureEndpoint('demo');
    expect(endpoints.get('owner', 'demo')).toEqual({
      ...{
        id: 'demo',
        name: 'demo',
        type: 'QUEUE',
        source: 'TEMPLATE',
        version: null,
        rollout: null,
        templateId: null,
        gpuTypeIds: [],
      },
      ...DEFAULTS,
      workersMax: 0,
      createdAt: new Date(clock.now()).toISOString(),
    });
  });

  it('accepts another name and other job settings, also without an engine', async () => {
    const { endpoints, reopen } = await openEndpoints({ engine: 'none' });
    await endpoints.ensureEndpoint('demo', { maxQueued: 7 });
    const update = { name: 'shown', executionTimeout: 9_000, maxAttempts: 1 };
    await endpoints.update('owner', 'demo', update);
    for (const some of [endpoints, await reopen()]) {
      expect(some.get('owner', 'demo')).toMatchObject({ ...update, id: 'demo', maxQueued: 7 });
    }
  });

  it('gets and loses a limit for each group of jobs', async () => {
    const { endpoints } = await openEndpoints();
    await endpoints.ensureEndpoint('demo');
    for (const groupConcurrency of [4, null]) {
      const changed = await endpoints.update('owner', 'demo', { groupConcurrency });
      expect(changed).toMatchObject({ groupConcurrency, maxAttempts: 3 });
      expect(endpoints.get('owner', 'demo')).toEqual(changed);
      await endpoints.update('owner', 'demo', { maxAttempts: 3 });
      expect(endpoints.get('owner', 'demo')).toMatchObject({ groupConcurrency });
    }
  });

  it('has no workers to configure', async () => {
    const { endpoints } = await openEndpoints();
    await endpoints.ensureEndpoint('demo');
    const changed = endpoints.update('owner', 'demo', { workersMax: 2, maxAttempts: 1 });
    await expect(changed).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringMatching(/demo.* workersMax /),
    });
    expect(endpoints.get('owner', 'demo').maxAttempts).toBe(3);
  });
});

describe('an endpoint that is created', () => {
  it('exists with the defaults, also after a restart', async () => {
    const { clock, endpoints, reopen } = await openEndpoints();
    const given = { gpuTypeIds: ['big', 'small'], workersMax: 2, maxQueued: 5 };
    const made = await endpoints.create('ada', creation(given));
    expect(made).toEqual({
      ...DEFAULTS,
      ...{ source: 'TEMPLATE', version: null, rollout: null },
      ...{ id: made.id, name: 'image', type: 'QUEUE', templateId: 'tpl_ada', ...given },
      createdAt: new Date(clock.now()).toISOString(),
    });
    expect(made.id).toMatch(/^ep_[0-9a-f-]{36}$/);
    for (const some of [endpoints, await reopen()]) {
      expect(some.get('ada', made.id)).toEqual(made);
      expect(some.ownerOf(made.id)).toBe('ada');
      expect(some.all()).toMatchObject([{ id: made.id, userId: 'ada' }]);
    }
  });

  it('stores where jobs that ran out of GPU memory run next only if it is not the default', async () => {
    const { endpoints } = await openEndpoints();
    const retryOutOfMemoryOn = 'NEXT_GPU_TYPE';
    const { id } = await endpoints.create('ada', creation({ retryOutOfMemoryOn }));
    expect(endpoints.get('ada', id)).toMatchObject({ retryOutOfMemoryOn });
    expect(endpoints.find(id)?.deployment).toMatchObject({ retryOutOfMemoryOn });
    await endpoints.update('ada', id, { workersMax: 2 });
    expect(endpoints.get('ada', id)).toMatchObject({ retryOutOfMemoryOn });
    await endpoints.update('ada', id, { retryOutOfMemoryOn: 'ANY_GPU_TYPE' });
    expect(endpoints.get('ada', id)).toMatchObject({ retryOutOfMemoryOn: 'ANY_GPU_TYPE' });
  });

  it('has the network volume of its workers, by ID or name, until null removes it', async () => {
    const { endpoints } = await openEndpoints();
    const { id } = await endpoints.create('ada', creation({ networkVolumeId: 'models' }));
    const show = () => endpoints.get('ada', id);
    expect(show()).toMatchObject({ networkVolumeId: 'vol_1', networkVolumePath: '/runpod-volume' });
    await endpoints.update('ada', id, { workersMax: 1, networkVolumePath: '/models' });
    expect(show()).toMatchObject({ networkVolumeId: 'vol_1', networkVolumePath: '/models' });
    await endpoints.update('ada', id, { networkVolumeId: 'vol_2' });
    expect(show()).toMatchObject({ networkVolumeId: 'vol_2', networkVolumePath: '/models' });
    const refused = { code: 'invalid', errors: [errorAt('networkVolumeId')] };
    for (const networkVolumeId of ['vol_3', 'nothing']) {
      const change = endpoints.update('ada', id, { networkVolumeId });
      await expect(change).rejects.toMatchObject(refused);
    }
    await endpoints.update('ada', id, { networkVolumeId: null });
    expect(show()).toMatchObject({ networkVolumeId: null });
    const ofBob = creation({ templateId: 'tpl_bob', networkVolumeId: 'vol_1' });
    await expect(endpoints.create('bob', ofBob)).rejects.toMatchObject(refused);
  });

  it('is scaled by requests if it balances load', async () => {
    const { addTemplate, endpoints } = await openEndpoints();
    await addTemplate('ada', 'tpl_web', { ports: ['80/http'] });
    const made = await endpoints.create(
      'ada',
      creation({ type: 'LOAD_BALANCER', templateId: 'tpl_web' }),
    );
    expect(made.scaler).toEqual({ type: 'REQUEST_COUNT', perWorker: 4 });
  });

  it('is unknown to every other user for all verbs', async () => {
    const { endpoints } = await openEndpoints();
    const { id } = await endpoints.create('ada', creation());
    const unknown = { code: 'not_found', message: expect.stringContaining(id) };
    expect(() => endpoints.get('bob', id)).toThrowError(expect.objectContaining(unknown));
    await expect(endpoints.update('bob', id, { name: 'x' })).rejects.toMatchObject(unknown);
    await expect(endpoints.remove('bob', id)).rejects.toMatchObject(unknown);
    expect(endpoints.list({ userId: 'bob', ...NEW }).records).toEqual([]);
    expect(endpoints.get('ada', id).name).toBe('image');
  });

  it('is listed newest first, in pages, also with equal creation times', async () => {
    const { clock, endpoints, reopen } = await openEndpoints();
    const ids: string[] = [];
    for (let count = 0; count < 5; count++) {
      if (count === 3) await clock.advance(10);
      ids.unshift((await endpoints.create('ada', creation())).id);
    }
    await endpoints.create('bob', creation({ templateId: 'tpl_bob' }));
    const listAll = (some: Endpoints) => {
      const seen: string[] = [];
      let before: number | undefined;
      do {
        const page = some.list({ userId: 'ada', before, limit: 2 });
        seen.push(...page.records.map(({ id }) => id));
        before = page.next;
      } while (before !== undefined);
      return seen;
    };
    expect(listAll(endpoints)).toEqual(ids);
    expect(listAll(await reopen()).toSorted()).toEqual(ids.toSorted());
  });

  it('keeps unchanged members, also after a restart', async () => {
    const { endpoints, reopen } = await openEndpoints();
    const made = await endpoints.create('ada', creation({ gpuTypeIds: ['big'], maxQueued: 5 }));
    const update = { workersMin: 1, executionTimeout: 7_000, gpuTypeIds: ['small'] };
    const changed = await endpoints.update('ada', made.id, update);
    expect(changed).toEqual({ ...made, ...update });
    expect((await reopen()).get('ada', made.id)).toEqual(changed);
  });

  it('reports each change once it is on disk', async () => {
    const { endpoints, store } = await openEndpoints();
    const told: [string, Promise<unknown>][] = [];
    endpoints.onChange(({ id, kind }) => {
      told.push([kind, store.read((tx) => tx.endpoint(id))]);
    });
    const { id } = await endpoints.create('ada', creation());
    await endpoints.update('ada', id, { name: 'two' });
    await endpoints.remove('ada', id);
    const seen = await Promise.all(told.map(async ([kind, stored]) => [kind, await stored]));
    expect(seen).toMatchObject([
      ['put', { deployment: { name: 'image' } }],
      ['put', { deployment: { name: 'two' }, deleted: false }],
      ['deleted', { deleted: true }],
    ]);
  });
});

describe('an invalid deployment', () => {
  const faulty: [string, object, string][] = [
    ['an unknown template', { templateId: 'x' }, 'templateId'],
    ['a foreign template', { templateId: 'tpl_bob' }, 'templateId'],
    ['an unknown GPU type', { gpuTypeIds: ['big', 'x'] }, 'gpuTypeIds[1]'],
    [
      'a template without an http port behind a load balancer',
      { type: 'LOAD_BALANCER' },
      'templateId',
    ],
    ['a template that says nothing to run', { templateId: 'tpl_image' }, 'templateId'],
  ];

  it.each(faulty)('is refused by path: %s', async (_, given, path) => {
    const { addTemplate, endpoints } = await openEndpoints();
    await addTemplate('ada', 'tpl_image', { handler: null });
    await expect(endpoints.create('ada', creation(given))).rejects.toMatchObject({
      ...{ code: 'invalid', errors: [errorAt(path)] },
    });
    expect(endpoints.all()).toEqual([]);
  });

  it.each(faulty.filter(([, given]) => !('type' in given)))(
    'is refused in a change too, and nothing of that is kept: %s',
    async (_, given, path) => {
      const { addTemplate, endpoints } = await openEndpoints();
      await addTemplate('ada', 'tpl_image', { handler: null });
      const made = await endpoints.create('ada', creation());
      const changed = endpoints.update('ada', made.id, { name: 'two', ...given });
      await expect(changed).rejects.toMatchObject({ errors: [errorAt(path)] });
      expect(endpoints.get('ada', made.id)).toEqual(made);
    },
  );

  it('is refused for a maximum below the minimum, in a change of either', async () => {
    const { endpoints } = await openEndpoints();
    const { id } = await endpoints.create('ada', creation({ workersMin: 2, workersMax: 3 }));
    const errors = [errorAt('workersMin')];
    for (const update of [{ workersMin: 4 }, { workersMax: 1 }]) {
      await expect(endpoints.update('ada', id, update)).rejects.toMatchObject({ errors });
    }
    await endpoints.update('ada', id, { workersMin: 4, workersMax: 4 });
  });

  it('is refused for a load balancer that is scaled by a queue', async () => {
    const { addTemplate, endpoints } = await openEndpoints();
    await addTemplate('ada', 'tpl_web', { ports: ['80/http'] });
    const given = { type: 'LOAD_BALANCER', templateId: 'tpl_web' };
    const { id } = await endpoints.create('ada', creation(given));
    const scaler = { type: 'QUEUE_DELAY', seconds: 1 } as const;
    await expect(endpoints.update('ada', id, { scaler })).rejects.toMatchObject({
      errors: [errorAt('scaler.type')],
    });
  });

  it('needs no handler besides its image for an engine that starts images', async () => {
    const { addTemplate, endpoints } = await openEndpoints({ engine: 'docker' });
    await addTemplate('ada', 'tpl_image', { handler: null });
    await endpoints.create('ada', creation({ templateId: 'tpl_image' }));
  });

  it('is refused without an engine, and for users that the engine does not serve', async () => {
    const { endpoints } = await openEndpoints({ engine: 'none' });
    const refused = endpoints.create('ada', creation());
    await expect(refused).rejects.toMatchObject({ code: 'conflict' });
    const { endpoints: others } = await openEndpoints();
    await expect(others.create('eve', creation())).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('does not prevent changes of its other members', async () => {
    const { endpoints, store } = await openEndpoints();
    const { id } = await endpoints.create('ada', creation());
    await store.write((tx) => tx.removeResource({ kind: 'template', id: 'tpl_ada' }));
    expect(await endpoints.update('ada', id, { workersMax: 9 })).toMatchObject({ workersMax: 9 });
  });
});

describe('an endpoint that was deleted', () => {
  it('is gone at once and after a restart, although its row may still exist', async () => {
    const { endpoints, reopen, store } = await openEndpoints();
    const { id } = await endpoints.create('ada', creation());
    await endpoints.remove('ada', id);
    expect(await store.read((tx) => tx.endpoint(id))).toMatchObject({ deleted: true });
    for (const some of [endpoints, await reopen()]) {
      expect(some.has(id)).toBe(false);
      expect(some.ownerOf(id)).toBeUndefined();
      expect(await some.readAll()).toEqual([]);
      expect(() => some.get('ada', id)).toThrow(expect.objectContaining({ code: 'not_found' }));
      await expect(some.remove('ada', id)).rejects.toMatchObject({ code: 'not_found' });
    }
  });

  it('keeps its ID reserved until all of it is removed', async () => {
    const { endpoints, store } = await openEndpoints();
    await endpoints.ensureEndpoint('demo', { maxAttempts: 7 });
    await endpoints.remove('owner', 'demo');
    await expect(endpoints.ensureEndpoint('demo')).rejects.toMatchObject({ code: 'conflict' });
    await store.write((tx) => tx.removeEndpoint('demo'));
    expect(await endpoints.ensureEndpoint('demo')).toMatchObject({ settings: { maxAttempts: 3 } });
  });

  it('is deleted once by two simultaneous calls', async () => {
    const { endpoints } = await openEndpoints();
    const { id } = await endpoints.create('ada', creation());
    const results = await Promise.allSettled([1, 2].map(() => endpoints.remove('ada', id)));
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  });
});
