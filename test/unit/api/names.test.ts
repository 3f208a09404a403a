// Names in place of IDs: on every route that takes an ID, only for the caller's own records, and on several nodes.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ServedRoute } from '../../../src/api/http/guard.ts';
import { RESERVED_ENDPOINT_IDS } from '../../../src/wire/resources/fields.ts';
import { ENDPOINT, type Platform, readJson, startPlatform } from '../../support/api/platform.ts';
import { startNodes } from '../../support/api/two-nodes.ts';
import { CPU, PodWorld } from '../../support/containers/pod-world.ts';

const NAME = 'same-name';

/** What a worker that has just started has of each. */
const NOTHING = { devices: [], outbox: [] };

interface Caller {
  key: string;
  ids: Record<'endpoint' | 'template' | 'key' | 'pod' | 'job' | 'registry', string>;
}

/** Ann and Bob have one record of each kind, all with the same name. */
async function startStage() {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const platform = await startPlatform({ engine: 'process', server: { pods: world.pods } });
  return {
    platform,
    world,
    ann: await makeOwn(platform, 'ann'),
    bob: await makeOwn(platform, 'bob'),
  };
}

async function makeOwn(platform: Platform, userId: string): Promise<Caller> {
  const { key } = await platform.keys.issue({ name: userId, scopes: ['admin'], userId });
  const make = async (path: string, body: object) =>
    idOf(await sendJson(platform, key, path, body));
  const template = await make('/v1/templates', { name: NAME, image: 'i', handler: 'h.ts' });
  const endpoint = await make('/v1/endpoints', { name: NAME, templateId: template });
  const ids = {
    ...{ template, endpoint },
    key: await make('/v1/keys', { name: NAME, scopes: ['worker'] }),
    budget: await make('/v1/budgets', { name: NAME, limit: 1 }),
    sharedlimit: await make('/v1/shared-limits', { name: NAME }),
    schedule: await make('/v1/schedules', { name: NAME, endpointId: endpoint, every: 3_600_000 }),
    networkvolume: await make('/v1/network-volumes', { name: NAME, size: 1 }),
    registry: await make('/v1/registries', {
      ...{ name: NAME, server: 'r.example.com' },
      ...{ username: 'u', secret: 's' },
    }),
    pod: await make('/v2/pods', { name: NAME, image: 'i', cpu: CPU }),
    job: await make(`/v2/${endpoint}/run`, { input: {} }),
    batch: await makeBatch(platform, key, endpoint),
    flow: await make(`/v2/${endpoint}/flows`, { jobs: [{ name: 'only', input: {} }] }),
  };
  return { key, ids };
}

async function makeBatch({ call }: Platform, key: string, endpoint: string): Promise<string> {
  const response = await call(`/v2/${endpoint}/batches`, {
    method: 'POST',
    headers: { authorization: key, 'content-type': 'application/x-ndjson' },
    body: '{"id":"a","input":{}}',
  });
  return idOf({ status: response.status, body: await readJson(response) });
}

async function sendJson(
  { post }: Pick<Platform, 'post'>,
  key: string,
  path: string,
  body: object,
  method = 'POST',
) {
  const response = await post(path, body, { method, headers: { authorization: key } });
  return { status: response.status, body: response.status === 204 ? {} : await readJson(response) };
}

function idOf({ body, status }: Awaited<ReturnType<typeof sendJson>>): string {
  const { id } = body;
  if (typeof id !== 'string') throw new Error(`${status}: ${JSON.stringify(body)}`);
  return id;
}

const get = async ({ call }: Pick<Platform, 'call'>, key: string, path: string) => {
  const response = await call(path, { headers: { authorization: key } });
  return { status: response.status, body: await readJson(response) };
};

const SUBJECT = /:(endpoint|template|key|budget|networkvolume|registry|pod)\b/;

/** Polls wait, and the stream is read once. */
function isPlainRead({ method, url }: ServedRoute): boolean {
  return (
    method === 'GET' &&
    SUBJECT.test(url) &&
    !/\*|:version|stream|status-sync|openai|^\/lb/.test(url)
  );
}

/** Status and body. A waiting job's delay grows, so it is left out. */
async function read({ call }: Platform, key: string, path: string): Promise<string> {
  const response = await call(path, { headers: { authorization: key } });
  return `${response.status} ${(await response.text()).replaceAll(/"delayTime":\d+/g, '')}`;
}

describe('a name', () => {
  it("is the ID of the caller's own record on every route, whoever else uses the name", async () => {
    const { ann, bob, platform } = await startStage();
    const routes = platform.routes.filter(isPlainRead);
    const fill = (url: string, ids: Readonly<Record<string, string>>) =>
      url.replaceAll(/:([a-z]+)/g, (_all, name: string) => ids[name] ?? '');
    for (const { key, ids } of [ann, bob]) {
      const named = {
        ...ids,
        endpoint: NAME,
        template: NAME,
        key: NAME,
        pod: NAME,
        networkvolume: NAME,
        registry: NAME,
        budget: NAME,
      };
      for (const { url } of routes) {
        const byId = await read(platform, key, fill(url, ids));
        expect(byId, url).not.toMatch(/^404/);
        expect(await read(platform, key, fill(url, named)), url).toEqual(byId);
      }
    }
    expect(routes.length).toBeGreaterThan(10);
  });

  it("never reaches another user's record", async () => {
    const { ann, platform } = await startStage();
    const { key } = await platform.keys.issue({ name: 'eve', scopes: ['admin'], userId: 'eve' });
    for (const path of [
      ...[`/v1/endpoints/${NAME}`, `/v1/templates/${NAME}`, `/v1/keys/${NAME}`],
      ...[`/v2/pods/${NAME}`, `/v2/${NAME}/health`, `/v2/${NAME}/status/${ann.ids.job}`],
      `/runpod/v2/${NAME}/health`,
    ]) {
      expect((await get(platform, key, path)).status, path).toBe(404);
    }
    // The operator, who finds the keys of all users by their IDs, does not find them by name.
    expect((await platform.call(`/v1/keys/${ann.ids.key}`)).status).toBe(200);
    expect((await platform.call(`/v1/keys/${NAME}`)).status).toBe(404);
  });

  it.each(['/v2', '/runpod/v2'])('submits a job on %s', async (base) => {
    const { ann, platform } = await startStage();
    const submitted = await sendJson(platform, ann.key, `${base}/${NAME}/run`, { input: {} });
    const path = `/v2/${ann.ids.endpoint}/status/${idOf(submitted)}`;
    expect((await get(platform, ann.key, path)).body).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('lets a worker take jobs, with a key that is bound to the endpoint', async () => {
    const { ann, platform } = await startStage();
    const created = await sendJson(platform, ann.key, '/v1/keys', {
      ...{ name: 'of-a-worker', scopes: [`worker:${NAME}`] },
    });
    expect(created.body).toMatchObject({ scopes: [`worker:${ann.ids.endpoint}`] });
    const worker = String(created.body['key']);
    const hello = {
      workerId: 'w',
      incarnation: 1,
      protocol: 1,
      version: '1',
      slots: 1,
      ...NOTHING,
    };
    const path = `/v2/${NAME}/worker/hello`;
    expect(await sendJson(platform, worker, path, hello)).toMatchObject({ status: 200 });
  });

  it('names the template of an endpoint and of a pod, which store its ID', async () => {
    const { ann, bob, platform } = await startStage();
    const endpoint = { name: 'other', templateId: NAME };
    const made = await sendJson(platform, bob.key, '/v1/endpoints', endpoint);
    expect(made.body).toMatchObject({ templateId: bob.ids.template });
    const path = `/v1/endpoints/${NAME}`;
    const changed = await sendJson(platform, ann.key, path, { templateId: NAME }, 'PATCH');
    expect(changed.body).toMatchObject({ id: ann.ids.endpoint, templateId: ann.ids.template });
  });

  it('names the registry of a template, which stores its ID', async () => {
    const { ann, bob, platform } = await startStage();
    const template = { name: 'private', image: 'i', handler: 'h.ts', registry: NAME };
    const made = await sendJson(platform, bob.key, '/v1/templates', template);
    expect(made.body).toMatchObject({ registry: bob.ids.registry });
    const path = `/v1/templates/${NAME}`;
    const changed = await sendJson(platform, ann.key, path, { registry: NAME }, 'PATCH');
    expect(changed.body).toMatchObject({ id: ann.ids.template, registry: ann.ids.registry });
    const unknown = { ...template, registry: 'no-such-name' };
    const refused = await sendJson(platform, ann.key, '/v1/templates', unknown);
    expect(refused).toMatchObject({
      status: 422,
      body: { errors: ['registry: you have no registry with the ID or name "no-such-name"'] },
    });
    await sendJson(platform, ann.key, '/v1/registries', {
      ...{ name: NAME, server: 'other.example.com', username: 'u', secret: 's' },
    });
    const ambiguous = await sendJson(platform, ann.key, '/v1/templates', template);
    expect(ambiguous).toMatchObject({ status: 409, body: { code: 'conflict' } });
  });

  it('follows a change, and is gone with its record', async () => {
    const { ann, platform } = await startStage();
    const rename = (name: string) =>
      sendJson(platform, ann.key, `/v1/endpoints/${ann.ids.endpoint}`, { name }, 'PATCH');
    const status = async (name: string) =>
      (await get(platform, ann.key, `/v2/${name}/health`)).status;
    await rename('renamed');
    expect([await status('renamed'), await status(NAME)]).toEqual([200, 404]);
    await rename('No label');
    expect([await status('No%20label'), await status('renamed')]).toEqual([404, 404]);
    await rename(NAME);
    const remove = { method: 'DELETE', headers: { authorization: ann.key } };
    expect((await platform.call(`/v1/endpoints/${NAME}`, remove)).status).toBe(204);
    expect(await status(NAME)).toBe(404);
  });

  it('is refused if several records have it, with their IDs', async () => {
    const { ann, platform } = await startStage();
    const twin = { name: NAME, templateId: ann.ids.template };
    const second = idOf(await sendJson(platform, ann.key, '/v1/endpoints', twin));
    expect(await get(platform, ann.key, `/v2/${NAME}/health`)).toMatchObject({
      status: 409,
      body: {
        code: 'conflict',
        detail: `2 endpoints have the name ${NAME}; use the ID of one: ${ann.ids.endpoint}, ${second}`,
      },
    });
    const { body, status } = await get(platform, ann.key, `/runpod/v2/${NAME}/health`);
    expect([status, body]).toEqual([400, { error: expect.stringContaining(second) }]);
  });

  it('is free for the next pod once its pod is terminated', async () => {
    const { ann, platform, world } = await startStage();
    const remove = { method: 'DELETE', headers: { authorization: ann.key } };
    expect((await platform.call(`/v2/pods/${NAME}`, remove)).status).toBe(204);
    await world.settle();
    expect((await get(platform, ann.key, `/v2/pods/${NAME}`)).status).toBe(404);
    const again = { name: NAME, image: 'i', cpu: CPU };
    const next = idOf(await sendJson(platform, ann.key, '/v2/pods', again));
    expect((await get(platform, ann.key, `/v2/pods/${NAME}`)).body).toMatchObject({ id: next });
    // The record of the old one is still found by its ID.
    expect((await get(platform, ann.key, `/v2/pods/${ann.ids.pod}`)).status).toBe(200);
  });

  it('gives way to an ID of the same user, and not to one of another user', async () => {
    const { ann, platform } = await startStage();
    await platform.endpoints.ensureEndpoint('echo');
    const twin = { name: 'echo', templateId: ann.ids.template };
    const ofAnn = idOf(await sendJson(platform, ann.key, '/v1/endpoints', twin));
    expect((await get(platform, ann.key, '/v1/endpoints/echo')).body).toMatchObject({ id: ofAnn });
    const named = { method: 'PATCH', body: JSON.stringify({ name: 'echo' }) };
    const headers = { 'content-type': 'application/json' };
    await platform.call(`/v1/endpoints/${ENDPOINT}`, { ...named, headers });
    const response = await platform.call('/v1/endpoints/echo');
    expect(await readJson(response)).toMatchObject({ id: 'echo' });
  });

  it('is refused if it is a path of the API', async () => {
    const { ann, platform } = await startStage();
    for (const name of RESERVED_ENDPOINT_IDS) {
      const path = `/v1/endpoints/${ann.ids.endpoint}`;
      const renamed = await sendJson(platform, ann.key, path, { name }, 'PATCH');
      const twin = { name, templateId: ann.ids.template };
      const created = await sendJson(platform, ann.key, '/v1/endpoints', twin);
      expect([renamed.status, created.status]).toEqual([422, 422]);
      expect(created.body).toMatchObject({ errors: [expect.stringContaining('path of the API')] });
    }
  });

  it('is not found in a path if it is a path of the API, of an endpoint from before', async () => {
    const { ann, platform } = await startStage();
    for (const name of RESERVED_ENDPOINT_IDS) {
      await platform.endpoints.update('ann', ann.ids.endpoint, { name });
      const run = await sendJson(platform, ann.key, `/v2/${name}/run`, { input: {} });
      expect(run.status).toBe(404);
    }
  });
});

describe('with several nodes, a name', () => {
  const named = async () => {
    const nodes = await startNodes();
    await nodes.owner.endpoints.update('owner', ENDPOINT, { name: 'the-demo' });
    return nodes;
  };

  it.each(['/v2', '/runpod/v2'])('is forwarded on %s as the ID of its endpoint', async (base) => {
    const { learn, move, other, owner } = await named();
    const run = async () => {
      const answer = await other.post(`${base}/the-demo/run?`, { input: {} });
      expect(answer.status).toBe(200);
      const { id } = await readJson(answer);
      return (await owner.call(`/v2/${ENDPOINT}/status/${id}`)).status;
    };
    expect(await run()).toBe(200);
    // Only the owner of the endpoint has its jobs; the control plane is elsewhere.
    move(other.nodeUrl, 'control');
    learn();
    expect(await run()).toBe(200);
  });

  it('costs no look-up if it is known', async () => {
    const { learn, move, other, owner } = await named();
    move(owner.nodeUrl, 'no-demo');
    learn();
    const before = other.placement.refreshes;
    expect((await other.call('/v2/the-demo/health')).status).toBe(200);
    expect(other.placement.refreshes).toBe(before);
    expect((await other.call('/v2/no-demo/health')).status).toBe(404);
    expect(other.placement.refreshes).toBe(before + 1);
  });
});
