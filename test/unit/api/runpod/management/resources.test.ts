// Pods, network volumes, registries and the catalog of RunPod's REST API, in the shapes of its document.
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { readJson, startPlatform } from '../../../../support/api/platform.ts';
import {
  restCpu,
  restDataCenter,
  restGpu,
  restPod,
  restRegistry,
  restTemplate,
  restVolume,
} from '../../../../support/api/runpod-rest.ts';
import { sendRest } from '../../../../support/api/runpod-rest-calls.ts';
import { makeGpus } from '../../../../support/containers/gpus.ts';
import { CPU, PodWorld } from '../../../../support/containers/pod-world.ts';

const start = () => startPlatform({ engine: 'process', offers: { devices: makeGpus('A', 4) } });

async function startWithPods() {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const platform = await startPlatform({ engine: 'process', server: { pods: world.pods } });
  return { platform, world };
}

const problemAt = (path: string) => ({ errors: [expect.stringContaining(`${path}: `)] });

describe("a network volume of RunPod's REST API", () => {
  it('is created, listed, grown and deleted', async () => {
    const platform = await start();
    const given = { name: 'models', size: 20, dataCenter: 'local' };
    const { json, status } = await sendRest(platform, 'POST', 'network-volumes', given);
    const made = restVolume.parse(json);
    expect([status, made]).toEqual([201, { id: made.id, ...given, type: 'STANDARD' }]);
    const path = `network-volumes/${made.id}`;
    const grown = await sendRest(platform, 'PATCH', path, { size: 30 });
    expect(grown).toEqual({ status: 200, json: { ...made, size: 30 } });
    const listed = await sendRest(platform, 'GET', 'network-volumes');
    expect(listed.json).toEqual({ networkVolumes: [grown.json] });
    expect((await sendRest(platform, 'DELETE', path)).status).toBe(204);
    expect((await sendRest(platform, 'GET', path)).status).toBe(404);
  });

  it('is shown with a size that the document allows', async () => {
    const platform = await start();
    await platform.post('/v1/network-volumes', { name: 'small', size: 1 });
    const { json } = await sendRest(platform, 'GET', 'network-volumes/small');
    expect(restVolume.parse(json)).toMatchObject({ size: 10 });
  });

  it.each([
    [{ size: 9 }, 'size'],
    [{ type: 'HIGH_PERFORMANCE' }, 'type'],
    [{ dataCenter: undefined }, 'dataCenter'],
    [{ dataCenter: 'none' }, 'dataCenter'],
  ])('is refused with %j', async (given, path) => {
    const platform = await start();
    const body = { name: 'models', size: 20, dataCenter: 'local', ...given };
    const refused = await sendRest(platform, 'POST', 'network-volumes', body);
    expect(refused).toMatchObject({ status: 422, json: problemAt(path) });
  });
});

describe("a registry of RunPod's REST API", () => {
  it('is created for Docker Hub, listed without its login, and deleted once unused', async () => {
    const platform = await start();
    const given = { name: 'hub', username: 'ci', password: 'secret' };
    const { json, status } = await sendRest(platform, 'POST', 'registries', given);
    const made = restRegistry.parse(json);
    expect([status, made.name]).toEqual([201, 'hub']);
    expect((await sendRest(platform, 'GET', 'registries')).json).toEqual({ registries: [made] });
    const own = await readJson(await platform.call(`/v1/registries/${made.id}`));
    expect(own).toMatchObject({ server: 'docker.io', username: 'ci' });
    const template = { name: 't', image: 'i', registry: made.id };
    const used = restTemplate.parse((await sendRest(platform, 'POST', 'templates', template)).json);
    expect((await sendRest(platform, 'DELETE', `registries/${made.id}`)).status).toBe(400);
    await sendRest(platform, 'DELETE', `templates/${used.id}`);
    expect((await sendRest(platform, 'DELETE', `registries/${made.id}`)).status).toBe(204);
    expect((await sendRest(platform, 'PATCH', `registries/${made.id}`, {})).status).toBe(405);
  });
});

describe("a pod of RunPod's REST API", () => {
  const POD = { name: 'box', image: 'i', cpu: { id: CPU.id, vcpuCount: CPU.vcpuCount } };

  it('is created, listed, changed, stopped and deleted', async () => {
    const { platform, world } = await startWithPods();
    const created = await sendRest(platform, 'POST', 'pods', { ...POD, args: 'run' });
    const made = restPod.parse(created.json);
    expect(created.status).toBe(201);
    expect(made).toMatchObject({ name: 'box', args: 'run', cudaVersion: null, template: null });
    expect(made.ssh).toEqual({ proxy: null, direct: null });
    await world.settle();
    const listed = z
      .strictObject({ pods: z.array(restPod) })
      .parse((await sendRest(platform, 'GET', 'pods')).json);
    expect(listed.pods).toMatchObject([{ id: made.id, status: 'RUNNING' }]);
    const path = `pods/${made.id}`;
    const locked = await sendRest(platform, 'PATCH', path, { name: 'other', locked: true });
    expect(restPod.parse(locked.json)).toMatchObject({ name: 'other', locked: true });
    const refused = await sendRest(platform, 'POST', `${path}/action`, { action: 'stop' });
    expect(refused.status).toBe(409);
    await sendRest(platform, 'PATCH', path, { locked: false });
    const stopped = await sendRest(platform, 'POST', `${path}/action`, { action: 'restart' });
    expect(restPod.parse(stopped.json).id).toBe(made.id);
    expect((await sendRest(platform, 'DELETE', path)).status).toBe(204);
    expect((await sendRest(platform, 'GET', 'pods')).json).toEqual({ pods: [] });
  });

  it.each([
    [{ gpu: { id: 'A' } }, 400, 'gpu'],
    [{ cpu: undefined }, 400, 'gpu'],
    [{ cpu: { ...POD.cpu, memory: 1 } }, 422, 'cpu.memory'],
    [{ image: undefined }, 422, 'image'],
    [{ dataCenterIds: ['a', 'b'] }, 422, 'dataCenterIds'],
    [{ gpu: { id: 'A', allowedCudaVersions: ['12.4'] } }, 422, 'gpu.allowedCudaVersions'],
    [{ template: 't' }, 422, 'template'],
  ])('is refused with %j', async (given, status, path) => {
    const { platform } = await startWithPods();
    const refused = await sendRest(platform, 'POST', 'pods', { ...POD, ...given });
    expect(refused).toMatchObject({ status, json: problemAt(path) });
  });

  it("is hidden from other users, and from keys without the pods' scope", async () => {
    const { platform } = await startWithPods();
    const { id } = restPod.parse((await sendRest(platform, 'POST', 'pods', POD)).json);
    const { keys } = platform;
    const eve = (await keys.issue({ name: 'eve', scopes: ['admin'], userId: 'eve' })).key;
    const reader = (await keys.issue({ name: 'r', scopes: ['endpoints:read'] })).key;
    const action = { action: 'terminate' };
    expect((await sendRest(platform, 'GET', `pods/${id}`, undefined, eve)).status).toBe(404);
    expect((await sendRest(platform, 'POST', `pods/${id}/action`, action, eve)).status).toBe(404);
    expect((await sendRest(platform, 'GET', `pods/${id}`, undefined, reader)).status).toBe(403);
  });
});

describe("the catalog of RunPod's REST API", () => {
  const schemas = { gpus: restGpu, cpus: restCpu, datacenters: restDataCenter };
  const members = { gpus: 'gpus', cpus: 'cpus', datacenters: 'dataCenters' };

  it.each([
    ['gpus', 'include=AVAILABILITY&product=POD,SERVERLESS&count=2'],
    ['cpus', 'include=AVAILABILITY&product=POD'],
    ['datacenters', 'include=GPU_AVAILABILITY,CPU_AVAILABILITY'],
  ] as const)('lists %s and shows each, with what is free if asked', async (path, query) => {
    const platform = await start();
    const read = async (search: string) => {
      const { json } = await sendRest(platform, 'GET', `catalog/${path}${search}`);
      return z.strictObject({ [members[path]]: z.array(schemas[path]) }).parse(json);
    };
    const [plain] = (await read(''))[members[path]] ?? [];
    const [full] = (await read(`?${query}`))[members[path]] ?? [];
    expect(full).toMatchObject({ ...plain });
    expect(Object.keys(full ?? {}).join()).toMatch(/vailability/);
    const id = encodeURIComponent(plain?.id ?? '');
    expect(await sendRest(platform, 'GET', `catalog/${path}/${id}`)).toEqual({
      ...{ status: 200, json: plain },
    });
    expect((await sendRest(platform, 'GET', `catalog/${path}/none`)).status).toBe(404);
  });

  it('says that there are not enough GPUs of a type', async () => {
    const platform = await start();
    const query = 'include=AVAILABILITY&product=POD&count=5';
    const { json } = await sendRest(platform, 'GET', `catalog/gpus/A?${query}`);
    expect(restGpu.parse(json)).toMatchObject({ availability: 'NONE' });
  });

  it.each([
    ['gpus?include=AVAILABILITY', 400],
    ['gpus?product=POD', 400],
    ['cpus?include=AVAILABILITY&product=CLUSTER', 422],
    ['gpus?include=AVAILABILITY&product=POD&count=0', 422],
  ])('refuses %s', async (path, status) => {
    const platform = await start();
    expect((await sendRest(platform, 'GET', `catalog/${path}`)).status).toBe(status);
  });
});
