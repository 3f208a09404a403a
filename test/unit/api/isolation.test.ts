// Users from one another, and keys from what they do not hold, on every route that the server has.
import { describe, expect, it, onTestFinished } from 'vitest';
import { OWN_FORM } from '../../../src/api/batch-form.ts';
import type { ServedRoute } from '../../../src/api/http/guard.ts';
import { SCOPES } from '../../../src/wire/routes/route.ts';
import { type Platform, readJson, startPlatform } from '../../support/api/platform.ts';
import { CPU, PodWorld } from '../../support/containers/pod-world.ts';
import { packProject } from '../../support/version-project.ts';

const PARAMETER = /:([a-z]+)|\*/gi;

/** One thing of a user's for each parameter that a route can have. */
type Things = Readonly<Record<string, string>>;

interface Stage {
  platform: Platform;
  ann: { key: string; things: Things };
  /** With an admin key. */
  bob: { key: string };
}

async function startStage(): Promise<Stage> {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const platform = await startPlatform({ engine: 'process', server: { pods: world.pods } });
  const admin = async (userId: string) =>
    (await platform.keys.issue({ name: userId, scopes: ['admin'], userId })).key;
  const ann = await admin('ann');
  const make = async (path: string, body: object) => {
    const answer = await readJson(
      await platform.post(path, body, { headers: { authorization: ann } }),
    );
    if (typeof answer['id'] !== 'string') throw new Error(`${path}: ${JSON.stringify(answer)}`);
    return answer['id'];
  };
  const template = await make('/v1/templates', { name: 't', image: 'i', handler: 'h.ts' });
  const endpoint = await make('/v1/endpoints', { name: 'e', templateId: template });
  const job = await make(`/v2/${endpoint}/run`, { input: {} });
  const key = await make('/v1/keys', { name: 'k', scopes: ['worker'] });
  const pod = await make('/v2/pods', { name: 'p', image: 'i', cpu: CPU });
  const budget = await make('/v1/budgets', { name: 'b', limit: 1 });
  const sharedlimit = await make('/v1/shared-limits', { name: 'l' });
  const schedule = await make('/v1/schedules', {
    name: 's',
    endpointId: endpoint,
    every: 3_600_000,
  });
  const networkvolume = await make('/v1/network-volumes', { name: 'v', size: 1 });
  const registry = await make('/v1/registries', {
    ...{ name: 'r', server: 'r.example.com' },
    ...{ username: 'u', secret: 's' },
  });
  const flow = await make(`/v2/${endpoint}/flows`, { jobs: [{ name: 'a', input: {} }] });
  const { batch, file } = await makeBatch(platform, endpoint);
  const version = await uploadVersion(platform, endpoint, ann);
  const things = {
    template,
    endpoint,
    version,
    job,
    flow,
    batch,
    file,
    key,
    pod,
    sharedlimit,
    networkvolume,
    registry,
    budget,
    schedule,
    '*': 'w1/j1',
    // Of the catalog, which belongs to nobody.
    id: 'no-such-type',
  };
  return { platform, ann: { key: ann, things }, bob: { key: await admin('bob') } };
}

async function makeBatch({ queue }: Platform, endpointId: string) {
  const source = async function* () {
    yield Buffer.from('{"id":"a","input":{}}');
  };
  const given = { endpointId, name: 'a.jsonl', form: OWN_FORM };
  const { id: fileId } = await queue.files.upload(given, source());
  const { id } = await queue.batches.create({ endpointId, fileId });
  return { batch: id, file: fileId };
}

/** @returns its number */
async function uploadVersion(platform: Platform, endpoint: string, key: string): Promise<string> {
  const { bytes } = await packProject({ 'handler.ts': 'export default () => 1;' });
  const response = await platform.call(`/v1/endpoints/${endpoint}/versions?entry=handler.ts`, {
    ...{ method: 'POST', body: new Uint8Array(bytes) },
    headers: { authorization: key, 'content-type': 'application/gzip' },
  });
  return String((await readJson(response))['version']);
}

function fill({ url }: ServedRoute, things: Things): string {
  return url.replaceAll(PARAMETER, (match, name: string | undefined) => {
    const thing = things[name ?? match];
    if (thing === undefined) throw new Error(`${url}: say what ann has for ${match}`);
    return thing;
  });
}

function send({ platform }: Stage, route: ServedRoute, path: string, key?: string) {
  const { method } = route;
  const hasBody = method !== 'GET' && method !== 'HEAD' && method !== 'DELETE';
  return fetch(platform.url + path, {
    method,
    headers: {
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...(hasBody && { 'content-type': 'application/json' }),
    },
    ...(hasBody && { body: path.endsWith('/action') ? '{"action":"stop"}' : '{}' }),
  });
}

/** `<status> <method> <url>` of each. */
async function sendAll(
  stage: Stage,
  routes: readonly ServedRoute[],
  keyOf: (route: ServedRoute) => string | undefined,
): Promise<string[]> {
  const all = routes.map(async (route) => {
    const path = fill(route, stage.ann.things);
    const { status } = await send(stage, route, path, keyOf(route));
    return `${status} ${route.method} ${route.url}`;
  });
  return Promise.all(all);
}

const describeRoutes = (status: number, routes: readonly ServedRoute[]) =>
  routes.map(({ method, url }) => `${status} ${method} ${url}`);

const guarded = ({ platform }: Stage) => platform.routes.filter(({ access }) => access !== 'open');
/** Those for any key tell it only of what it may see. */
const scoped = (stage: Stage) => guarded(stage).filter(({ access }) => access !== 'key');
const withThings = (stage: Stage) => guarded(stage).filter(({ url }) => url.search(PARAMETER) >= 0);

describe('every route', () => {
  it('returns 404 to another user, whatever their key allows', async () => {
    const stage = await startStage();
    const routes = withThings(stage);
    const answers = await sendAll(stage, routes, () => stage.bob.key);
    expect(answers).toEqual(describeRoutes(404, routes));
    expect(routes.length).toBeGreaterThan(30);
  });

  it('responds as if it did not exist', async () => {
    const stage = await startStage();
    const { platform, ann, bob } = stage;
    const missing = Object.fromEntries(
      Object.entries(ann.things).map(([name, thing]) => [name, thing.replace(/.$/, 'x')]),
    );
    const read = async (route: ServedRoute, things: Things) => {
      let text = await (await send(stage, route, fill(route, things), bob.key)).text();
      for (const [name, thing] of Object.entries(things)) {
        if (isUnique(thing)) text = text.replaceAll(thing, name);
      }
      return { url: route.url, text };
    };
    for (const route of withThings({ ...stage, platform }).filter(isQuick)) {
      expect(await read(route, ann.things)).toEqual(await read(route, missing));
    }
  });

  it('answers 401 without a key, with one that has expired and with one that is revoked', async () => {
    const stage = await startStage();
    const { keys } = stage.platform;
    const grant = { name: 'x', scopes: ['admin'], userId: 'ann' };
    const expired = await keys.issue({ ...grant, expiresAt: 1 });
    const revoked = await keys.issue(grant);
    await keys.remove(revoked.holder.keyId);
    const routes = guarded(stage);
    for (const key of [undefined, expired.key, revoked.key]) {
      expect(await sendAll(stage, routes, () => key)).toEqual(describeRoutes(401, routes));
    }
  });

  it("answers 403 to the user's own key that has every scope but the one", async () => {
    const stage = await startStage();
    const lacking = new Map<string, string>();
    for (const scope of SCOPES) {
      const scopes = SCOPES.filter((other) => other !== scope && other !== 'admin');
      const { key } = await stage.platform.keys.issue({ name: scope, scopes, userId: 'ann' });
      lacking.set(scope, key);
    }
    const routes = scoped(stage);
    const answers = await sendAll(stage, routes, ({ access }) => lacking.get(access));
    expect(answers).toEqual(describeRoutes(403, routes));
  });

  it('answers 403 to a key that is bound to another endpoint', async () => {
    const stage = await startStage();
    const { key } = await stage.platform.keys.issue({
      ...{ name: 'x', userId: 'ann' },
      scopes: [...SCOPES.map((scope) => `${scope}:ep_other`)],
    });
    const routes = scoped(stage);
    expect(await sendAll(stage, routes, () => key)).toEqual(describeRoutes(403, routes));
  });
});

/** The number of a version is part of many texts. */
function isUnique(thing: string): boolean {
  return thing.length > 2;
}

/** The others hold a refusal back for a second. */
function isQuick({ access, method, url }: ServedRoute): boolean {
  return !(access === 'worker' && method === 'GET' && url.startsWith('/runpod/'));
}

/** These show the platform as a whole. */
const OF_OPERATOR = ['/metrics', '/v1/nodes'];

describe('a user', () => {
  it('finds nothing of others in lists', async () => {
    const stage = await startStage();
    const { ann, bob, platform } = stage;
    const lists = guarded(stage).filter(({ method, url }) => method === 'GET' && !/[:*]/.test(url));
    const owned = Object.values(ann.things).filter(isUnique);
    let foundByAnn = 0;
    // events.test.ts has the event stream, which needs topics and does not end.
    const others = [...OF_OPERATOR, '/v1/events'];
    for (const route of lists.filter(({ url }) => !others.includes(url))) {
      const read = async (key: string) => {
        const response = await send(stage, route, route.url, key);
        expect(response.status).toBe(200);
        const text = await response.text();
        return owned.filter((thing) => text.includes(thing));
      };
      expect(await read(bob.key)).toEqual([]);
      foundByAnn += (await read(ann.key)).length;
    }
    expect(foundByAnn).toBeGreaterThanOrEqual(4);
    for (const url of OF_OPERATOR) {
      const ofBob = { headers: { authorization: bob.key } };
      expect((await platform.call(url, ofBob)).status).toBe(403);
      expect((await platform.call(url)).status).toBe(200);
    }
  });

  it('reads their own resources', async () => {
    const stage = await startStage();
    const { ann, platform } = stage;
    const { endpoint, job, key, pod, template } = ann.things;
    for (const path of [
      `/v2/${endpoint}/status/${job}`,
      `/v1/endpoints/${endpoint}`,
      `/v1/templates/${template}`,
      `/v1/keys/${key}`,
      `/v2/pods/${pod}`,
    ]) {
      const response = await platform.call(path, { headers: { authorization: ann.key } });
      expect(response.status).toBe(200);
    }
  });

  it("cannot reach a job of another's endpoint through their own", async () => {
    const stage = await startStage();
    const { ann, platform } = stage;
    const mine = await readJson(await platform.post('/v2/demo/run', { input: {} }));
    const path = `/v2/${ann.things['endpoint']}/status/${mine['id']}`;
    const response = await platform.call(path, { headers: { authorization: ann.key } });
    expect(response.status).toBe(404);
  });

  it('has no access to a declared endpoint, which belongs to the operator', async () => {
    const { bob, platform } = await startStage();
    const response = await platform.call('/v2/demo/health', {
      headers: { authorization: bob.key },
    });
    expect(response.status).toBe(404);
  });
});
