// The pod API over HTTP: each operation, and each status that it may answer with.
import { describe, expect, it, onTestFinished } from 'vitest';
import { HIDDEN_VALUE } from '../../../src/wire/resources/fields.ts';
import { podList, podRecord } from '../../../src/wire/resources/pod.ts';
import { errorAt } from '../../support/answers.ts';
import { readEvents } from '../../support/api/event-reader.ts';
import { readJson, startPlatform } from '../../support/api/platform.ts';
import { CPU, PodWorld, type PodWorldOptions } from '../../support/containers/pod-world.ts';

const CREATION = { name: 'a', image: 'busy', cpu: CPU };

async function startPods(options?: PodWorldOptions) {
  const world = await PodWorld.open(options);
  onTestFinished(() => world.close());
  const platform = await startPlatform({ server: { pods: world.pods } });
  const create = async (creation: object = {}) => {
    const response = await platform.post('/v2/pods', { ...CREATION, ...creation });
    expect(response.status).toBe(201);
    const pod = podRecord.parse(await readJson(response));
    expect(response.headers.get('location')).toBe(`/v2/pods/${pod.id}`);
    await world.settle();
    return pod;
  };
  const patch = (id: string, body: object) =>
    platform.call(`/v2/pods/${id}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const act = (id: string, action: unknown) => platform.post(`/v2/pods/${id}/action`, { action });
  const issueKey = async (scopes: string[], userId?: string) =>
    (await platform.keys.issue({ name: 'k', scopes, ...(userId && { userId }) })).key;
  return { world, platform, create, patch, act, issueKey };
}

async function expectProblem(response: Response, status: number): Promise<Record<string, unknown>> {
  const body = await readJson(response);
  expect({ status: response.status, body: body['status'] }).toEqual({ status, body: status });
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  return body;
}

async function readPod(response: Response) {
  expect(response.status).toBe(200);
  return podRecord.parse(await readJson(response));
}

describe('the life of a pod', () => {
  it('includes its creation, all actions and its end', async () => {
    const { act, create, platform, world } = await startPods();
    const { id, status } = await create();
    expect(status).toBe('PROVISIONING');
    const find = async () => readPod(await platform.call(`/v2/pods/${id}`));
    expect(await find()).toMatchObject({
      status: 'RUNNING',
      actions: ['stop', 'restart', 'terminate'],
    });
    expect(await readPod(await act(id, 'stop'))).toMatchObject({ status: 'EXITED', cost: 0 });
    await world.settle();
    expect(await readPod(await act(id, 'start'))).toMatchObject({ status: 'STARTING' });
    await world.settle();
    expect(await readPod(await act(id, 'restart'))).toMatchObject({ status: 'STARTING' });
    await world.settle();
    expect(await find()).toMatchObject({ status: 'RUNNING' });
    const ended = await act(id, 'terminate');
    expect([ended.status, await ended.text()]).toEqual([204, '']);
    await world.settle();
    expect(await find()).toMatchObject({ status: 'TERMINATED', actions: [] });
  });

  it('ends by DELETE as by the action', async () => {
    const { create, platform, world } = await startPods();
    const { id } = await create();
    const ended = await platform.call(`/v2/pods/${id}`, { method: 'DELETE' });
    expect([ended.status, await ended.text()]).toEqual([204, '']);
    await world.settle();
    expect(world.host.containers.size).toBe(0);
    const again = await platform.call(`/v2/pods/${id}`, { method: 'DELETE' });
    expect([again.status, await again.text()]).toEqual([204, '']);
  });

  it('is changed by PATCH', async () => {
    const { create, patch } = await startPods();
    const { id } = await create();
    expect(await readPod(await patch(id, { name: 'b', env: { A: '1' } }))).toMatchObject({
      ...{ id, name: 'b', env: { A: '1' }, status: 'STARTING' },
    });
  });

  it('shows the requested part of its log', async () => {
    const { create, platform } = await startPods();
    const { id } = await create();
    const log = await platform.call(`/v2/pods/${id}/logs`);
    expect(log.headers.get('content-type')).toBe('text/plain; charset=utf-8');
    expect(await log.text()).toBe(`printed by ${id}\n`);
    expect(log.headers.has('millrace-truncated')).toBe(false);
    const end = await platform.call(`/v2/pods/${id}/logs?bytes=5`);
    expect(end.headers.get('millrace-truncated')).toBe('true');
    expect(await end.text()).toBe(`${id.slice(-4)}\n`);
    await expectProblem(await platform.call(`/v2/pods/${id}/logs?bytes=0`), 422);
  });

  it('shows the values of variables only to keys that may write them', async () => {
    const { create, issueKey, platform } = await startPods();
    const { id } = await create({ env: { TOKEN: 's3cret' } });
    // A scope of templates gives no right to pods.
    const reader = await issueKey(['pods:read', 'endpoints:write'], 'owner');
    const writer = await issueKey(['pods:read', 'pods:write', 'endpoints:write'], 'owner');
    const readTopics = async (authorization: string) => {
      const url = `${platform.url}/v1/events?topics=pods,pod:${id}`;
      const { next } = await readEvents(url, { authorization });
      return [await next(), await next()].map((event) => event?.data);
    };
    const readAll = async (authorization: string) => {
      const call = (path: string) => platform.call(path, { headers: { authorization } });
      const answers = await Promise.all([call('/v2/pods'), call(`/v2/pods/${id}`)]);
      const bodies = await Promise.all(answers.map(readJson));
      const texts = [...bodies, ...(await readTopics(authorization))].map((each) =>
        JSON.stringify(each),
      );
      return texts.map((text) => /"env":({.*?})/.exec(text)?.[1]);
    };
    // At the same time: a topic of one is not a topic of the other.
    const [hidden, shown] = await Promise.all([readAll(reader), readAll(writer)]);
    const times = (env: object) => Array.from({ length: 4 }, () => JSON.stringify(env));
    expect(hidden).toEqual(times({ TOKEN: HIDDEN_VALUE }));
    expect(shown).toEqual(times({ TOKEN: 's3cret' }));
  });

  it('does not take the mask of hidden values as a value', async () => {
    const { create, patch } = await startPods();
    const { id } = await create({ env: { TOKEN: 's3cret' } });
    const { errors } = await expectProblem(await patch(id, { env: { TOKEN: HIDDEN_VALUE } }), 422);
    expect(errors).toEqual([errorAt('env.TOKEN')]);
  });

  it('is listed in pages', async () => {
    const { create, platform } = await startPods();
    const ids = [(await create()).id, (await create()).id, (await create()).id].reverse();
    const page = async (query: string) =>
      podList.parse(await readJson(await platform.call(`/v2/pods?limit=2${query}`)));
    const first = await page('');
    expect(first.pods.map(({ id }) => id)).toEqual(ids.slice(0, 2));
    const second = await page(`&cursor=${first.cursor}`);
    expect(second.pods.map(({ id }) => id)).toEqual(ids.slice(2));
    expect(second.cursor).toBeUndefined();
  });
});

describe('a refusal', () => {
  it('has the status 400 for invalid JSON and violated mount rules', async () => {
    const { create, patch, platform } = await startPods();
    await expectProblem(await platform.post('/v2/pods', '{'), 400);
    const { id } = await create();
    await expectProblem(await platform.post(`/v2/pods/${id}/action`, 'stop'), 400);
    const persistent = { size: 10, path: '/data' };
    const network = [{ volumeId: 'data', path: '/data' }];
    const broken = { ...CREATION, mounts: { persistent, network } };
    expect(await expectProblem(await platform.post('/v2/pods', broken), 400)).toMatchObject({
      code: 'rule_broken',
      errors: [errorAt('mounts')],
    });
    await expectProblem(await patch(id, { mounts: { network } }), 400);
    await expectProblem(await patch(id, { mounts: { network: [] } }), 400);
  });

  it('has the status 401 without a key, and with an invalid key', async () => {
    const { platform } = await startPods();
    for (const authorization of ['', 'Bearer mr_no']) {
      const headers = { authorization };
      await expectProblem(await platform.call('/v2/pods', { headers }), 401);
      await expectProblem(await platform.post('/v2/pods', CREATION, { headers }), 401);
    }
  });

  it('has the status 403 with a key that lacks the scope', async () => {
    const { create, issueKey, platform } = await startPods();
    const { id } = await create();
    const reader = { authorization: await issueKey(['pods:read', 'jobs:write']) };
    const writer = { authorization: await issueKey(['pods:write']) };
    const paths = ['/v2/pods', `/v2/pods/${id}`, `/v2/pods/${id}/logs`];
    for (const path of paths) {
      expect((await platform.call(path, { headers: reader })).status).toBe(200);
      await expectProblem(await platform.call(path, { headers: writer }), 403);
    }
    const written: [string, string][] = [
      ['POST', '/v2/pods'],
      ['PATCH', `/v2/pods/${id}`],
      ['DELETE', `/v2/pods/${id}`],
      ['POST', `/v2/pods/${id}/action`],
    ];
    for (const [method, path] of written) {
      await expectProblem(await platform.call(path, { method, headers: reader }), 403);
    }
  });

  it('has the status 404 for an unknown pod and a pod of another user', async () => {
    const { create, issueKey, platform } = await startPods();
    const { id } = await create();
    const authorization = await issueKey(['admin'], 'bob');
    const headers = { authorization, 'content-type': 'application/json' };
    const asked: [string, string, string?][] = [
      ['GET', ''],
      ['GET', '/logs'],
      ['DELETE', ''],
      ['PATCH', '', '{"name":"b"}'],
      ['POST', '/action', '{"action":"stop"}'],
    ];
    for (const [method, path, body] of asked) {
      const init = { method, ...(body && { body }) };
      const asBob = await platform.call(`/v2/pods/${id}${path}`, { ...init, headers });
      const unknown = { ...init, headers: { 'content-type': 'application/json' } };
      const nowhere = await platform.call(`/v2/pods/pod_0${path}`, unknown);
      const [theirs, nobodys] = [
        await expectProblem(asBob, 404),
        await expectProblem(nowhere, 404),
      ];
      expect(theirs['detail']).toBe(String(nobodys['detail']).replace('pod_0', id));
    }
    const list = await readJson(await platform.call('/v2/pods', { headers }));
    expect(list).toEqual({ pods: [] });
  });

  it('has the status 405 for another method, with the allowed ones', async () => {
    const { create, platform } = await startPods();
    const { id } = await create();
    const response = await platform.call(`/v2/pods/${id}`, { method: 'PUT' });
    expect(response.headers.get('allow')?.split(', ').sort()).toEqual([
      ...['DELETE', 'GET', 'HEAD', 'PATCH'],
    ]);
    await expectProblem(response, 405);
  });

  it('has the status 409 for an action that the status does not allow', async () => {
    const { act, create } = await startPods();
    const { id } = await create();
    expect(await expectProblem(await act(id, 'start'), 409)).toMatchObject({
      ...{ code: 'conflict', detail: expect.stringContaining('RUNNING') },
    });
    const { id: locked } = await create({ locked: true });
    for (const action of ['stop', 'restart', 'terminate']) {
      expect(await expectProblem(await act(locked, action), 409)).toMatchObject({
        ...{ code: 'conflict', detail: expect.stringContaining('locked') },
      });
    }
  });

  it('has the status 415 for another media type', async () => {
    const { platform } = await startPods();
    const headers = { 'content-type': 'text/plain' };
    await expectProblem(await platform.post('/v2/pods', CREATION, { headers }), 415);
  });

  it.each([
    ['no name', { name: undefined }, 'name'],
    ['a CPU beside a GPU', { gpu: { id: 'H200' } }, 'gpu'],
    ['neither CPU nor GPU', { cpu: undefined }, 'gpu'],
    ['neither image nor template', { image: undefined }, 'image'],
    ['an unknown member', { color: 'red' }, 'color'],
    ['a port without protocol', { ports: ['80'] }, 'ports[0]'],
    ['a disk of 0 GB', { disk: 0 }, 'disk'],
    ['a variable that is not a string', { env: { A: 1 } }, 'env.A'],
    ['a variable named __proto__', { env: JSON.parse('{"__proto__":"a"}') }, 'env.__proto__'],
    [
      'a mount over the whole disk',
      { mounts: { network: [{ volumeId: 'data', path: '/./' }] } },
      'mounts.network[0].path',
    ],
    [
      'an incomplete mount',
      { mounts: { network: [{ volumeId: 'data' }] } },
      'mounts.network[0].path',
    ],
  ])('has the status 422 for %s, with the path', async (_what, part, path) => {
    const { platform } = await startPods();
    const response = await platform.post('/v2/pods', { ...CREATION, ...part });
    const { errors } = await expectProblem(response, 422);
    expect(errors).toEqual([errorAt(path)]);
  });

  it('has the status 422 for an unknown action', async () => {
    const { act, create, platform } = await startPods();
    const { id } = await create();
    await expectProblem(await act(id, 'dance'), 422);
    await expectProblem(await platform.post(`/v2/pods/${id}/action`, {}), 422);
    const more = { action: 'stop', now: true };
    await expectProblem(await platform.post(`/v2/pods/${id}/action`, more), 422);
  });

  it('has the status 409 for every operation without an engine', async () => {
    const platform = await startPlatform();
    for (const path of ['/v2/pods', '/v2/pods/pod_1', '/v2/pods/pod_1/logs']) {
      const refused = await expectProblem(await platform.call(path), 409);
      expect(refused).toMatchObject({ code: 'conflict' });
    }
    await expectProblem(await platform.post('/v2/pods', CREATION), 409);
  });
});
