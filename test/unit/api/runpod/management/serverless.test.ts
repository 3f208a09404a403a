// Endpoints and templates of RunPod's REST API: in its shapes, and the same records as those of Millrace's own API.
import { describe, expect, it } from 'vitest';
import { type Platform, readJson, startPlatform } from '../../../../support/api/platform.ts';
import { restEndpoint, restTemplate } from '../../../../support/api/runpod-rest.ts';
import { sendRest as send } from '../../../../support/api/runpod-rest-calls.ts';
import { makeGpus } from '../../../../support/containers/gpus.ts';

const BASE = '/runpod/v2';
const CONTAINER = { image: 'image:1', args: 'run', env: { A: '1' } };
const ENDPOINT = {
  name: 'sdxl',
  ...CONTAINER,
  type: 'QUEUE',
  scaling: { type: 'QUEUE_DELAY', queueDelay: 2.5 },
  cpu: [{ id: 'cpu', vcpuCount: 2 }],
};

const start = () => startPlatform({ engine: 'process', offers: { devices: makeGpus('A', 1) } });

async function create(platform: Platform, given: object = {}) {
  const { json, status } = await send(platform, 'POST', 'serverless', { ...ENDPOINT, ...given });
  expect(json).toMatchObject({ id: expect.anything() });
  expect(status).toBe(201);
  return restEndpoint.parse(json);
}

const patch = (platform: Platform, id: string, body: object) =>
  send(platform, 'PATCH', `serverless/${id}`, body);

async function readTemplates({ call }: Platform) {
  const { templates } = await readJson(await call('/v1/templates'));
  return templates;
}

describe("an endpoint of RunPod's REST API", () => {
  it('is created with its container, listed, read and deleted with it', async () => {
    const platform = await start();
    const made = await create(platform);
    expect(made).toMatchObject({
      ...CONTAINER,
      ...{ name: 'sdxl', type: 'QUEUE', disk: 20, ports: [], registry: null },
      cpu: [{ id: 'cpu', vcpuCount: 2, memory: 4 }],
      workers: { min: 0, max: 3, idleTimeout: 10 },
      scaling: { type: 'QUEUE_DELAY', queueDelay: 3 },
      ...{ timeout: 300_000, flashboot: 'OFF', networkVolumes: [] },
      requestUrls: { run: `${platform.url}${BASE}/${made.id}/run` },
    });
    const listed = await send(platform, 'GET', 'serverless');
    expect(listed.json).toMatchObject({ endpoints: [{ id: made.id }, { id: 'demo' }] });
    expect(await send(platform, 'GET', 'serverless/sdxl')).toEqual({ status: 200, json: made });
    expect(await send(platform, 'GET', 'templates')).toMatchObject({ json: { templates: [] } });
    const own = await readJson(await platform.call(`/v1/endpoints/${made.id}`));
    expect(own).toMatchObject({ name: 'sdxl', executionTimeout: 300_000, parkSeconds: 0 });
    expect((await send(platform, 'DELETE', `serverless/${made.id}`)).status).toBe(204);
    expect((await send(platform, 'GET', `serverless/${made.id}`)).status).toBe(404);
    expect(await readTemplates(platform)).toEqual([]);
  });

  it('is changed and deleted although another endpoint uses its template', async () => {
    const platform = await start();
    const made = await create(platform);
    const { templateId } = await readJson(await platform.call(`/v1/endpoints/${made.id}`));
    const other = await platform.post('/v1/endpoints', { name: 'other', templateId });
    expect(other.status).toBe(201);
    const changed = await patch(platform, made.id, { image: 'image:2' });
    expect(changed).toMatchObject({ status: 200, json: { image: 'image:2' } });
    await platform.post('/v1/endpoints', {
      name: 'third',
      templateId: (await readJson(await platform.call(`/v1/endpoints/${made.id}`)))['templateId'],
    });
    expect((await send(platform, 'DELETE', `serverless/${made.id}`)).status).toBe(204);
    expect(await readTemplates(platform)).toHaveLength(2);
  });

  it('is shown in the shape of the document, whoever made it', async () => {
    const platform = await start();
    const template = await send(platform, 'POST', 'templates', {
      ...{ name: 'lb', ...CONTAINER, ports: ['80/http'], serverless: true },
    });
    const { id } = restTemplate.parse(template.json);
    const own = {
      ...{ name: 'lb', templateId: id, type: 'LOAD_BALANCER', idleTimeout: 80_000 },
      ...{ gpuTypeIds: ['A'], spareWorkers: 1 },
    };
    await platform.post('/v1/endpoints', own);
    const { json } = await send(platform, 'GET', 'serverless/lb');
    expect(restEndpoint.parse(json)).toMatchObject({
      gpu: { pools: ['A'], count: 1 },
      workers: { idleTimeout: 3_600 },
      flashboot: 'PRIORITY_FLASHBOOT',
      requestUrls: { base: expect.stringContaining('/lb/ep_') },
    });
    restEndpoint.parse((await send(platform, 'GET', 'serverless/demo')).json);
  });

  it('takes the settings of a template once, under those of the request', async () => {
    const platform = await start();
    const base = { name: 't', image: 'base:1', args: 'run', env: { A: '0', B: '2' } };
    const template = await send(platform, 'POST', 'templates', { ...base, serverless: true });
    const { id } = restTemplate.parse(template.json);
    const { args: _args, image: _image, ...rest } = ENDPOINT;
    const response = await send(platform, 'POST', 'serverless', { ...rest, templateId: id });
    const made = restEndpoint.parse(response.json);
    expect(made).toMatchObject({ image: 'base:1', args: 'run', env: { A: '1', B: '2' } });
    await send(platform, 'PATCH', `templates/${id}`, { image: 'base:2' });
    expect(await send(platform, 'GET', `serverless/${made.id}`)).toMatchObject({ json: made });
    const changed = await patch(platform, made.id, { templateId: id, args: 'other' });
    expect(changed.json).toMatchObject({ image: 'base:2', args: 'other', env: { A: '0', B: '2' } });
    const ofPods = await send(platform, 'POST', 'templates', { ...base, name: 'pods' });
    const refused = await patch(platform, made.id, {
      templateId: restTemplate.parse(ofPods.json).id,
    });
    expect(refused.status).toBe(422);
    expect((await patch(platform, made.id, { templateId: 'none' })).status).toBe(404);
  });

  it('changes as a whole or not at all, and never a template of others', async () => {
    const platform = await start();
    const shared = await readJson(
      await platform.post('/v1/templates', { name: 'shared', ...CONTAINER }),
    );
    const body = { name: 'own', templateId: shared['id'] };
    const own = String((await readJson(await platform.post('/v1/endpoints', body)))['id']);
    const changed = await patch(platform, own, { image: 'image:2', workers: { max: 7 } });
    expect(changed.json).toMatchObject({ image: 'image:2', workers: { max: 7 } });
    const bad = await patch(platform, own, { image: 'image:3', workers: { min: 9 } });
    expect(bad).toMatchObject({
      status: 422,
      json: { errors: ['workers.min: must not be greater than workersMax'] },
    });
    expect((await send(platform, 'GET', `serverless/${own}`)).json).toEqual(changed.json);
    expect(await readTemplates(platform)).toMatchObject([
      { image: 'image:2' },
      { id: shared['id'] },
    ]);
  });

  it.each([
    [{ gpu: { pools: ['none'] }, cpu: undefined }, 422, 'gpu.pools[0]'],
    [{ gpu: { pools: ['A'] } }, 400, 'gpu'],
    [{ cpu: [{ id: 'cpu', vcpuCount: 4 }] }, 422, 'cpu'],
    [{ gpu: { pools: ['A'], excludedTypes: ['B'] }, cpu: undefined }, 400, 'gpu.excludedTypes[0]'],
    [{ gpu: { pools: ['A'], excludedTypes: ['A'] }, cpu: undefined }, 400, 'gpu.excludedTypes'],
    [{ gpu: { pools: ['A'], count: 2 }, cpu: undefined }, 422, 'gpu.count'],
    [{ gpu: { pools: ['A'], minCudaVersion: '12.4' }, cpu: undefined }, 422, 'gpu.minCudaVersion'],
    [{ image: undefined }, 422, 'image'],
    [{ name: 'billing' }, 422, 'name'],
    [{ networkVolumes: ['a', 'b'] }, 422, 'networkVolumes'],
    [{ networkVolumes: ['none'] }, 422, 'networkVolumes'],
    [{ dataCenterIds: ['none'] }, 422, 'dataCenterIds[0]'],
    [{ type: 'LOAD_BALANCER', ports: ['80/http'] }, 422, 'scaling.type'],
    [
      { scaling: { type: 'REQUEST_COUNT', requestCount: 2 }, workers: { idleTimeout: 5 } },
      ...([400, 'workers.idleTimeout'] as const),
    ],
    [{ workersMin: 1 }, 422, 'workersMin'],
  ])('is refused with %j', async (given, status, path) => {
    const platform = await start();
    const refused = await send(platform, 'POST', 'serverless', { ...ENDPOINT, ...given });
    expect(refused).toMatchObject({
      status,
      json: { title: expect.anything(), status, errors: [expect.stringContaining(`${path}: `)] },
    });
    expect(await readTemplates(platform)).toEqual([]);
  });

  it('belongs to its user, and shows its variables only to who may write them', async () => {
    const platform = await start();
    const { id } = await create(platform);
    const { keys } = platform;
    const eve = (await keys.issue({ name: 'eve', scopes: ['admin'], userId: 'eve' })).key;
    const reader = (await keys.issue({ name: 'r', scopes: ['endpoints:read'] })).key;
    for (const method of ['GET', 'PATCH', 'DELETE']) {
      const body = method === 'PATCH' ? {} : undefined;
      expect((await send(platform, method, `serverless/${id}`, body, eve)).status).toBe(404);
    }
    const seen = await send(platform, 'GET', `serverless/${id}`, undefined, reader);
    expect(seen.json).toMatchObject({ env: { A: '***' } });
    expect((await send(platform, 'DELETE', `serverless/${id}`, undefined, reader)).status).toBe(
      403,
    );
    expect((await send(platform, 'GET', 'serverless', undefined, 'none')).json).toMatchObject({
      ...{ title: 'Unauthorized', status: 401 },
    });
  });
});

describe("a template of RunPod's REST API", () => {
  it('is created, changed and deleted, and keeps what only RunPod knows', async () => {
    const platform = await start();
    const given = {
      ...{ name: 't', ...CONTAINER, category: 'AMD' },
      mounts: { persistent: { size: 20, path: '/workspace' } },
    };
    const { json, status } = await send(platform, 'POST', 'templates', given);
    const made = restTemplate.parse(json);
    expect(status).toBe(201);
    expect(made).toMatchObject({ ...given, serverless: false, startSsh: true, public: false });
    const changed = await send(platform, 'PATCH', `templates/${made.id}`, {
      ...{ category: 'CPU', args: 'other' },
    });
    expect(changed.json).toEqual({ ...made, category: 'CPU', args: 'other' });
    expect(await send(platform, 'GET', 'templates')).toMatchObject({
      json: { templates: [changed.json] },
    });
    const own = await readJson(await platform.call(`/v1/templates/${made.id}`));
    expect(own).toMatchObject({ args: 'other', version: 2 });
    expect(own).not.toHaveProperty('notes');
    await platform.post('/v1/endpoints', { name: 'user', templateId: made.id });
    expect((await send(platform, 'DELETE', `templates/${made.id}`)).status).toBe(400);
    await platform.call('/v1/endpoints/user', { method: 'DELETE' });
    expect((await send(platform, 'DELETE', `templates/${made.id}`)).status).toBe(204);
  });

  it.each([
    [{ public: true }, 'public'],
    [{ allowedCudaVersions: ['12.4'] }, 'allowedCudaVersions'],
    [{ mounts: { network: [] } }, 'mounts.network'],
    [{ image: undefined }, 'image'],
  ])('is refused with %j', async (given, path) => {
    const platform = await start();
    const body = { name: 't', ...CONTAINER, ...given };
    expect(await send(platform, 'POST', 'templates', body)).toMatchObject({
      ...{ status: 422, json: { errors: [expect.stringContaining(`${path}: `)] } },
    });
  });
});
