import { describe, expect, it } from 'vitest';
import { letOthersRun } from '../../../src/base/clock.ts';
import type { Store } from '../../../src/store/store.ts';
import { endpointList, endpointRecord } from '../../../src/wire/resources/endpoint.ts';
import { errorAt } from '../../support/answers.ts';
import {
  type Platform,
  type PlatformSettings,
  readJson,
  startPlatform,
} from '../../support/api/platform.ts';
import { makeGpus } from '../../support/containers/gpus.ts';
import { addJobs, makeJob } from '../../support/store/stored-jobs.ts';

const DEPLOYED: PlatformSettings = { engine: 'process', offers: { devices: makeGpus('L4', 1) } };

async function createTemplate({ post }: Platform, given: object = {}): Promise<string> {
  const template = { name: 't', image: 'img', handler: '/srv/h.ts', ...given };
  return String((await readJson(await post('/v1/templates', template)))['id']);
}

/** With a template of its own unless one is given. */
async function create(platform: Platform, given: { templateId?: string } & object = {}) {
  const templateId = given.templateId ?? (await createTemplate(platform));
  const response = await platform.post('/v1/endpoints', { name: 'e', ...given, templateId });
  expect(response.status).toBe(201);
  const endpoint = endpointRecord.parse(await readJson(response));
  expect(response.headers.get('location')).toBe(`/v1/endpoints/${endpoint.id}`);
  return endpoint;
}

const patch = ({ post }: Platform, id: string, body: unknown) =>
  post(`/v1/endpoints/${id}`, body, { method: 'PATCH' });

async function expectProblem(response: Response, status: number, errors?: unknown[]) {
  expect(response.status).toBe(status);
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  expect(await readJson(response)).toMatchObject({ status, ...(errors && { errors }) });
}

describe('an endpoint', () => {
  it('is created with the six fields, read, changed and deleted, and accepts jobs meanwhile', async () => {
    const platform = await startPlatform(DEPLOYED);
    const { call, post } = platform;
    const six = {
      ...{ name: 'image', templateId: await createTemplate(platform), gpuTypeIds: ['L4'] },
      ...{ workersMin: 1, workersMax: 2, idleTimeout: 60 },
    };
    const made = await create(platform, six);
    expect(made).toMatchObject({ ...six, type: 'QUEUE', maxAttempts: 3 });
    const path = `/v1/endpoints/${made.id}`;
    expect(await readJson(await call(path))).toEqual(made);
    expect((await post(`/v2/${made.id}/run`, { input: {} })).status).toBe(200);
    const changed = await patch(platform, made.id, { workersMax: 5, maxQueued: 1 });
    expect(changed.status).toBe(200);
    expect(await readJson(changed)).toEqual({ ...made, workersMax: 5, maxQueued: 1 });
    await expectProblem(await post(`/v2/${made.id}/run`, { input: {} }), 429);
    const removed = await call(path, { method: 'DELETE' });
    expect(removed.status).toBe(204);
    expect(await removed.text()).toBe('');
    await expectProblem(await call(path), 404);
    await expectProblem(await patch(platform, made.id, {}), 404);
    await expectProblem(await call(path, { method: 'DELETE' }), 404);
  });

  it('is shown like any other if it was declared', async () => {
    const platform = await startPlatform();
    const declared = endpointRecord.parse(
      await readJson(await platform.call('/v1/endpoints/demo')),
    );
    expect(declared).toMatchObject({ id: 'demo', name: 'demo', templateId: null, workersMax: 0 });
    expect((await patch(platform, 'demo', { name: 'shown', maxAttempts: 1 })).status).toBe(200);
    await expectProblem(await patch(platform, 'demo', { workersMax: 1 }), 409);
  });

  it('is listed in pages, newest first', async () => {
    const platform = await startPlatform(DEPLOYED);
    const templateId = await createTemplate(platform);
    const ids: string[] = ['demo'];
    for (let n = 0; n < 2; n++) ids.unshift((await create(platform, { templateId })).id);
    const read = async (query: string) =>
      endpointList.parse(await readJson(await platform.call(`/v1/endpoints?${query}`)));
    const first = await read('limit=2');
    const second = await read(`limit=2&cursor=${first.cursor}`);
    expect([...first.endpoints, ...second.endpoints].map(({ id }) => id)).toEqual(ids);
    expect(second).not.toHaveProperty('cursor');
    await expectProblem(await platform.call('/v1/endpoints?cursor=!'), 422);
    // As an array it would be read as the bytes 49 and 50, which are digits.
    await expectProblem(await platform.call('/v1/endpoints?cursor=49&cursor=50'), 422);
  });

  it.each([
    [{ name: undefined }, 'name'],
    [{ templateId: 'none' }, 'templateId'],
    [{ gpuTypeIds: ['L4', 'H9'] }, 'gpuTypeIds[1]'],
    [{ workersMin: 4 }, 'workersMin'],
    [{ idleTimeout: 0 }, 'idleTimeout'],
    [{ type: 'LOAD_BALANCER' }, 'templateId'],
    [{ type: 'LOAD_BALANCER', scaler: { type: 'QUEUE_DELAY' } }, 'scaler.type'],
    [{ workers: 1 }, 'workers'],
  ])('is refused with %j, by path', async (given, path) => {
    const platform = await startPlatform(DEPLOYED);
    const body = { name: 'e', templateId: await createTemplate(platform), ...given };
    await expectProblem(await platform.post('/v1/endpoints', body), 422, [errorAt(path)]);
  });

  it('is refused if it is not JSON, of another type, or too large', async () => {
    const { post } = await startPlatform(DEPLOYED);
    const asText = { headers: { 'content-type': 'text/plain' } };
    await expectProblem(await post('/v1/endpoints', '[}'), 400);
    await expectProblem(await post('/v1/endpoints', {}, asText), 415);
    await expectProblem(await post('/v1/endpoints', { name: 'x'.repeat(1_100_000) }), 413);
    await expectProblem(await post('/v1/endpoints', {}, { method: 'PUT' }), 405);
  });

  it('is not created by a platform without an engine', async () => {
    const platform = await startPlatform();
    const templateId = await createTemplate(platform);
    const response = await platform.post('/v1/endpoints', { name: 'e', templateId });
    expect(response.status).toBe(409);
    expect(await readJson(response)).toMatchObject({ code: 'conflict' });
  });

  it('is read with endpoints:read and changed with endpoints:write, only by its user', async () => {
    const platform = await startPlatform(DEPLOYED);
    const { call, keys, post, url } = platform;
    const { id, templateId } = await create(platform);
    const path = `/v1/endpoints/${id}`;
    const issue = async (userId: string, scope: string) => {
      const { key } = await keys.issue({ name: 'k', userId, scopes: [scope] });
      return { headers: { authorization: key } };
    };
    const reader = await issue('owner', `endpoints:read:${id}`);
    expect((await call(path, reader)).status).toBe(200);
    await expectProblem(await call('/v1/endpoints', reader), 403);
    await expectProblem(await call(path, { ...reader, method: 'DELETE' }), 403);
    const body = { name: 'e', templateId };
    await expectProblem(await post('/v1/endpoints', body, reader), 403);
    const stranger = await issue('bob', 'admin');
    await expectProblem(await call(path, stranger), 404);
    await expectProblem(await post(path, {}, { ...stranger, method: 'PATCH' }), 404);
    await expectProblem(await call(path, { ...stranger, method: 'DELETE' }), 404);
    expect(await readJson(await call('/v1/endpoints', stranger))).toEqual({ endpoints: [] });
    const foreign = await post('/v1/endpoints', body, stranger);
    await expectProblem(foreign, 422, [errorAt('templateId')]);
    await expectProblem(await fetch(url + path), 401);
  });
});

describe('an endpoint with 20,000 jobs that is deleted', { timeout: 60_000 }, () => {
  const JOBS = 20_000;

  async function startFull() {
    let store: Store | undefined;
    const wrapStore = (opened: Store) => {
      store = opened;
      return opened;
    };
    const platform = await startPlatform({ ...DEPLOYED, wrapStore });
    if (!store) throw new Error('no store was opened');
    const { id } = await create(platform);
    const now = Date.now();
    const times = { expiresAt: now + 1e9, dueAt: now + 1e9, submittedAt: now, queuedAt: now };
    const jobs = Array.from({ length: JOBS }, (_, n) =>
      makeJob({ ...times, endpointId: id, id: `job-${n}`, position: n + 1 }),
    );
    await addJobs(store, jobs);
    const opened = store;
    const countJobs = async () => (await opened.read((tx) => tx.endpoint(id)))?.inQueue ?? 0;
    return { platform, id, countJobs };
  }

  it('ends every waiting call, is unknown at once, and does not delay other endpoints', async () => {
    const { countJobs, id, platform } = await startFull();
    const { call, post } = platform;
    // The oldest job: it is removed last.
    const path = (verb: string) => `/v2/${id}/${verb}/job-0`;
    const events = await call(path('stream'), { headers: { accept: 'text/event-stream' } });
    const stream = call(`${path('stream')}?wait=300000`);
    const runsync = post(`/v2/${id}/runsync?wait=300000`, { input: {} });
    while ((await countJobs()) === JOBS) await letOthersRun();

    expect((await call(`/v1/endpoints/${id}`, { method: 'DELETE' })).status).toBe(204);
    await expectProblem(await stream, 404);
    await expectProblem(await runsync, 404);
    expect(await events.text()).toMatch(/event: expired\ndata: \{\}\n\n$/);
    await expectProblem(await call(path('status')), 404);
    await expectProblem(await call(`/v2/${id}/health`), 404);
    await expectProblem(await post(`/v2/${id}/run`, { input: {} }), 404);
    expect(await countJobs()).toBeGreaterThan(0);

    let served = 0;
    for (; (await countJobs()) > 0; served++) {
      expect((await post('/v2/demo/run', { input: {} })).status).toBe(200);
    }
    expect(served).toBeGreaterThan(1);
  });
});
