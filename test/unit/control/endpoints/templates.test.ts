import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { Endpoints } from '../../../../src/control/endpoints/endpoints.ts';
import { openTemplates } from '../../../../src/control/endpoints/templates.ts';
import type { EngineTraits } from '../../../../src/control/pods/pod-spec.ts';
import { DOCKER_CAPABILITIES } from '../../../../src/engine/docker/docker-engine.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { kubernetesLimits } from '../../../../src/wire/engine/kubernetes.ts';
import { endpointCreation } from '../../../../src/wire/resources/endpoint.ts';
import { templateCreation } from '../../../../src/wire/resources/template.ts';
import { errorAt } from '../../../support/answers.ts';

const judgeRegistry = (userId: string, id: string | null) =>
  id === null || `${userId}/${id}` === 'ada/own' ? [] : [`registry: there is no "${id}"`];

async function open() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const clock = new ManualClock();
  const engine = 'process';
  const resolveRegistry = (_userId: string, idOrName: string) => idOrName;
  const catalog = { judgeRegistry, resolveRegistry, hasGpuType: () => true };
  const reopen = (traits?: EngineTraits, findHandlerFault?: (path: string) => string) =>
    openTemplates({ store, clock, engine, catalog, traits, findHandlerFault });
  const templates = await reopen();
  const deploying = { engine, catalog, templates, admit: () => {} } as const;
  const endpoints = await Endpoints.open({ store, clock, deploying });
  return { clock, endpoints, reopen, templates };
}

const creation = (given: object = {}) =>
  templateCreation.parse({ name: 'one', image: 'img', handler: '/srv/h.ts', ...given });

const deployed = (templateId: string, given: object = {}) =>
  endpointCreation.parse({ name: 'e', templateId, ...given });

describe('a template', () => {
  it('exists once it is created, also after a restart', async () => {
    const { clock, reopen, templates } = await open();
    const made = await templates.create('ada', creation({ env: { A: '1' } }));
    expect(made).toEqual({
      ...{ id: made.id, name: 'one', image: 'img', args: '', env: { A: '1' }, disk: 20 },
      ...{ ports: [], registry: null, handler: '/srv/h.ts', version: 1 },
      createdAt: new Date(clock.now()).toISOString(),
    });
    expect(made.id).toMatch(/^tpl_[0-9a-f-]{36}$/);
    for (const some of [templates, await reopen()]) expect(some.find('ada', made.id)).toEqual(made);
  });

  it('tells the operator alone whether the machine has its handler', async () => {
    const { reopen } = await open();
    const templates = await reopen(undefined, (path) => `handler: no file ${path}`);
    const fault = { code: 'invalid', errors: [errorAt('handler')] };
    await expect(templates.create('owner', creation())).rejects.toMatchObject(fault);
    await templates.create('ada', creation());
  });

  it('has args whose quotes are closed', async () => {
    const { templates } = await open();
    const fault = { code: 'invalid', errors: [errorAt('args')] };
    const args = 'a "b';
    await expect(templates.create('ada', creation({ args }))).rejects.toMatchObject(fault);
    const { id } = await templates.create('ada', creation());
    await expect(templates.update('ada', id, { args })).rejects.toMatchObject(fault);
  });

  it('is unknown to every other user for all verbs', async () => {
    const { templates } = await open();
    const { id } = await templates.create('ada', creation());
    const unknown = { code: 'not_found', message: expect.stringContaining(id) };
    expect(templates.find('bob', id)).toBeUndefined();
    expect(() => templates.get('bob', id)).toThrowError(expect.objectContaining(unknown));
    await expect(templates.update('bob', id, { name: 'x' })).rejects.toMatchObject(unknown);
    await expect(templates.remove('bob', id)).rejects.toMatchObject(unknown);
    expect(templates.list({ userId: 'bob', before: undefined, limit: 9 }).records).toEqual([]);
    expect(templates.get('ada', id).name).toBe('one');
  });

  it('is listed newest first, in pages, also with equal creation times and after a restart', async () => {
    const { reopen, templates } = await open();
    const names = ['a', 'b', 'c', 'd', 'e'];
    for (const name of names) await templates.create('ada', creation({ name }));
    await templates.create('bob', creation());
    for (const some of [templates, await reopen()]) {
      const seen: string[] = [];
      let before: number | undefined;
      do {
        const page = some.list({ userId: 'ada', before, limit: 2 });
        seen.push(...page.records.map(({ name }) => name));
        before = page.next;
      } while (before !== undefined);
      expect(seen).toEqual(names.toReversed());
    }
  });

  it('gets a new version with each change, except a new name or no change', async () => {
    const { reopen, templates } = await open();
    const { createdAt, id } = await templates.create('ada', creation());
    const versionAfter = async (update: object) =>
      (await templates.update('ada', id, update)).version;
    expect(await versionAfter({ name: 'two' })).toBe(1);
    expect(await versionAfter({ env: {}, image: 'img' })).toBe(1);
    expect(await versionAfter({ env: { A: '1' } })).toBe(2);
    expect(await versionAfter({ name: 'three', args: 'run' })).toBe(3);
    const expected = { name: 'three', args: 'run', env: { A: '1' }, image: 'img', version: 3 };
    for (const some of [templates, await reopen()]) {
      expect(some.get('ada', id)).toMatchObject({ ...expected, createdAt });
    }
  });

  it('counts both of two simultaneous changes', async () => {
    const { templates } = await open();
    const { id } = await templates.create('ada', creation());
    const changes = ['1', '2'].map((args) => templates.update('ada', id, { args }));
    await Promise.all(changes);
    expect(templates.get('ada', id)).toMatchObject({ args: '2', version: 3 });
  });

  it('is refused with a registry of another user', async () => {
    const { templates } = await open();
    const refused = { code: 'invalid', errors: [errorAt('registry')] };
    const foreign = templates.create('bob', creation({ registry: 'own' }));
    await expect(foreign).rejects.toMatchObject(refused);
    const { id } = await templates.create('bob', creation());
    await expect(templates.update('bob', id, { registry: 'own' })).rejects.toMatchObject(refused);
    await templates.create('ada', creation({ registry: 'own' }));
  });

  it('asks of Kubernetes only what the operator allows', async () => {
    const { reopen, templates: without } = await open();
    const refused = (text: string) => ({ code: 'invalid', errors: [expect.stringMatching(text)] });
    const kubernetes = { labels: { team: 'a' } };
    await expect(without.create('ada', creation({ kubernetes }))).rejects.toMatchObject(
      refused('^kubernetes: not available: .* without an engine'),
    );
    const docker = await reopen({ kind: 'docker', capabilities: DOCKER_CAPABILITIES });
    await expect(docker.create('ada', creation({ kubernetes }))).rejects.toMatchObject(
      refused('^kubernetes: not available on the engine docker'),
    );
    const limits = { kubernetes: kubernetesLimits.parse({ labels: ['team'] }) };
    const capabilities = { ...DOCKER_CAPABILITIES, ...limits };
    const templates = await reopen({ kind: 'kubernetes', capabilities });
    const { id } = await templates.create('ada', creation({ kubernetes }));
    const other = { kubernetes: { labels: { app: 'a' } } };
    await expect(templates.update('ada', id, other)).rejects.toMatchObject(
      refused('^kubernetes.labels.app: "app" is not allowed; the operator allows only "team"'),
    );
    expect((await reopen()).get('ada', id)).toMatchObject({ kubernetes, version: 1 });
    const changed = await templates.update('ada', id, { kubernetes: null });
    expect(changed).toMatchObject({ version: 2 });
    expect(changed).not.toHaveProperty('kubernetes');
  });

  it('is gone after its removal, also after a restart', async () => {
    const { reopen, templates } = await open();
    const { id } = await templates.create('ada', creation());
    await templates.remove('ada', id);
    for (const some of [templates, await reopen()]) expect(some.find('ada', id)).toBeUndefined();
    await expect(templates.remove('ada', id)).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('a template that an endpoint uses', () => {
  it('is not removed before the endpoint is deleted', async () => {
    const { endpoints, templates } = await open();
    const { id } = await templates.create('ada', creation());
    const endpoint = await endpoints.create('ada', deployed(id));
    await expect(templates.remove('ada', id)).rejects.toMatchObject({
      ...{ code: 'conflict', message: expect.stringContaining(endpoint.id) },
    });
    await endpoints.remove('ada', endpoint.id);
    await templates.remove('ada', id);
  });

  it('cannot be used while it is being removed', async () => {
    const { endpoints, templates } = await open();
    const { id } = await templates.create('ada', creation());
    const removed = templates.remove('ada', id);
    await expect(endpoints.create('ada', deployed(id))).rejects.toMatchObject({ code: 'invalid' });
    await removed;
  });

  it('cannot be changed so that its workers cannot start', async () => {
    const { endpoints, templates } = await open();
    const { id } = await templates.create('ada', creation({ ports: ['80/http'] }));
    const { id: user } = await endpoints.create('ada', deployed(id, { type: 'LOAD_BALANCER' }));
    const without = (update: object) => templates.update('ada', id, update);
    const conflict = (text: string) => ({
      code: 'conflict',
      message: expect.stringMatching(new RegExp(`${user}.*${text}`)),
    });
    await expect(without({ ports: ['80/tcp'] })).rejects.toMatchObject(conflict('port'));
    await expect(without({ handler: null })).rejects.toMatchObject(conflict('handler'));
    expect(templates.get('ada', id).version).toBe(1);
  });
});
