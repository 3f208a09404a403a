// Pods and workers of endpoints over several nodes, each with the process engine: they are spread, served through any
// node, reported when their node is gone, and never doubled.
import { readdir, readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { createPlatform } from '../../../src/client/platform-client.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { fixture, type PlatformProcess } from '../../support/processes.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';
import {
  createVersionedEndpoint,
  deploy as deployVersion,
  handlerOf,
  upload,
} from '../../support/version-project.ts';

const SERVER = fileURLToPath(new URL('../../../examples/load-balanced/server.ts', import.meta.url));
const COUNT = 3;
const LONG = { timeout: 60_000, interval: 100 };

/** Workers of the endpoint that starts while its leader is killed. */
const WORKERS = 4;

const created = z.object({ id: z.string() });
const shout = z.object({ text: z.string(), worker: z.string() });
const onePod = z.object({
  ...{ id: z.string(), status: z.string(), node: z.string().nullable() },
  ...{ reason: z.string().nullable(), startedAt: z.string().nullable() },
  endpointId: z.string().nullable(),
});
const gpuTypes = z.object({
  gpus: z.array(z.object({ id: z.string(), total: z.number(), available: z.number() })),
});
const waitingJob = z.object({ waitReason: z.object({ code: z.string() }).optional() });
const podList = z.object({ pods: z.array(onePod) });

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/node-pods.test.ts');
const hasNoCompiler =
  leaveOutWithoutCompiler('take turns on one GPU') ||
  leaveOutWithoutPython('take turns on one GPU');

describe.skipIf(isLeftOut)('three nodes with the process engine', () => {
  let server: PostgresServer;
  let nodes: NodeProcesses;

  beforeAll(async () => {
    server = await PostgresServer.start();
    const store = await server.createDatabase();
    nodes = await NodeProcesses.start({
      ...{ store, count: COUNT, shards: 6, endpoints: [], engine: 'process' },
      lastEnv: {
        PATH: `${standInFolder}${delimiter}${process.env['PATH']}`,
        ...sayingOf('one-h200'),
      },
    });
    // The first node leads. A node that joins gets pods as soon as the leader has found it.
    await nodes.at(0).process.find(/(?:node found[\s\S]*){3}/);
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
  });

  const create = async (node: PlatformProcess, path: string, body: object): Promise<string> => {
    const response = await node.post(path, body);
    const text = await response.text();
    if (response.status !== 201) throw new Error(`${response.status}: ${text}`);
    return created.parse(JSON.parse(text)).id;
  };
  const submitTo = async (node: PlatformProcess, path: string, body: object): Promise<string> => {
    const response = await node.post(path, body);
    return created.parse(await response.json()).id;
  };
  const remove = (node: PlatformProcess, endpoint: string) =>
    node.fetch(`/v1/endpoints/${endpoint}`, { method: 'DELETE' });
  /** Those that are not on their way out. */
  const listPods = async (node: PlatformProcess, endpoint: string) => {
    const response = await node.fetch('/v2/pods?limit=1000');
    if (response.status !== 200) return [];
    const { pods } = podList.parse(await response.json());
    return pods.filter(
      ({ endpointId, status }) => endpointId === endpoint && status !== 'TERMINATED',
    );
  };
  const countContainers = async (node: PlatformProcess) =>
    (await readdir(join(node.folder, 'data', 'pods', 'containers')).catch(() => [])).length;
  const countAll = async () => {
    const counts = await Promise.all(nodes.all.map(countContainers));
    return counts.reduce((sum, count) => sum + count, 0);
  };
  /** An endpoint with `count` workers, all of them connected. */
  const deploy = async (count: number): Promise<string> => {
    const handler = fixture('tagged.ts');
    const template = { name: 'worker', image: 'none', handler, env: { TAG: 'a' } };
    const templateId = await create(nodes.at(1), '/v1/templates', template);
    const sizes = { workersMin: count, workersMax: count, idleTimeout: 60 };
    return create(nodes.at(2), '/v1/endpoints', { name: 'jobs', templateId, ...sizes });
  };
  const statuses = async (node: PlatformProcess, endpoint: string) =>
    (await listPods(node, endpoint)).map(({ status }) => status);

  it('runs a version that was sent to any of them, on any of them', async () => {
    const [through, other] = [1, 2].map((n) => {
      const { adminKey: key, url } = nodes.at(n);
      return createPlatform({ url, key });
    });
    if (!through || !other) throw new Error('there are no such nodes');
    const { id } = await createVersionedEndpoint(through, { workersMin: 3, workersMax: 3 });
    const version = await upload(through, id, { 'handler.ts': handlerOf('first') });
    expect(await deployVersion(other, id, version)).toMatchObject({ version: 1, state: 'DONE' });
    const ran = async () => {
      const job = await nodes.at(2).post(`/v2/${id}/runsync`, { input: {} });
      return job.json();
    };
    expect(await ran()).toMatchObject({ output: { version: 'first' } });
    await remove(nodes.at(0), id);
    await expect.poll(countAll, LONG).toBe(0);
  });

  it('spread the workers of an endpoint, which serve jobs through any node', async () => {
    const endpoint = await deploy(COUNT);
    const running = new Array(COUNT).fill('RUNNING');
    await expect.poll(() => statuses(nodes.at(0), endpoint), LONG).toEqual(running);
    const pods = await listPods(nodes.at(1), endpoint);
    expect(new Set(pods.map(({ node }) => node)).size).toBe(COUNT);
    expect(await Promise.all(nodes.all.map(countContainers))).toEqual([1, 1, 1]);
    for (const node of nodes.all) {
      const answer = await node.post(`/v2/${endpoint}/runsync`, { input: { n: 1, ms: 0 } });
      expect(await answer.json()).toMatchObject({ status: 'COMPLETED', output: { tag: 'a' } });
    }
    await remove(nodes.at(0), endpoint);
    await expect.poll(countAll, LONG).toBe(0);
  });

  it('say why a job waits, also if its endpoint belongs to a node that does not lead', async () => {
    const template = { name: 'worker', image: 'none', handler: fixture('broken.ts'), env: {} };
    const templateId = await create(nodes.at(1), '/v1/templates', template);
    const creation = { name: 'jobs', templateId, workersMax: 1, idleTimeout: 60 };
    // Most likely not all of them belong to the leader.
    for (let n = 0; n < COUNT; n++) {
      const endpoint = await create(nodes.at(2), '/v1/endpoints', creation);
      const job = await nodes.at(1).post(`/v2/${endpoint}/run`, { input: {} });
      const { id } = created.parse(await job.json());
      const readCode = async () => {
        const record = await nodes.at(n).fetch(`/v2/${endpoint}/status/${id}`);
        return waitingJob.parse(await record.json()).waitReason?.code;
      };
      await expect.poll(readCode, LONG).toBe('handler_not_loaded');
      await remove(nodes.at(0), endpoint);
    }
    await expect.poll(countAll, LONG).toBe(0);
  });

  it('are listed with their shards and machines, and count what a user has, through any of them', async () => {
    const pod = { name: 'held', image: 'none', args: 'sleep 600', disk: 1 };
    const cpu = { id: 'cpu', vcpuCount: 2, memory: 1 };
    const id = await create(nodes.at(1), '/v2/pods', { ...pod, cpu });
    for (const { adminKey: key, url } of nodes.all) {
      const platform = createPlatform({ url, key });
      const { nodes: listed } = await platform.nodes.list();
      expect(listed.map(({ state }) => state)).toEqual(new Array(COUNT).fill('serving'));
      expect(listed.filter(({ isLeader }) => isLeader)).toHaveLength(1);
      const owned = listed.flatMap(({ shards }) => shards);
      expect(owned.toSorted()).toEqual([0, 1, 2, 3, 4, 5]);
      expect(listed.every(({ self }) => self !== null)).toBe(true);
      const machines = listed.flatMap(({ machine }) => machine ?? []);
      expect(machines.map(({ engine }) => engine)).toEqual(new Array(COUNT).fill('process'));
      expect(machines.flatMap(({ gpus }) => gpus)).toMatchObject([{ podId: null }]);
      expect(machines.reduce((sum, { memoryGb }) => sum + memoryGb.used, 0)).toBe(1);
      const { quotas } = await platform.limits.get();
      expect(quotas.find(({ name }) => name === 'pods')).toMatchObject({ used: 1 });
    }
    await nodes.at(2).fetch(`/v2/pods/${id}`, { method: 'DELETE' });
    await expect.poll(countAll, LONG).toBe(0);
  });

  it('offer the GPUs of all of them, and start pods where these are', async () => {
    const readTypes = async () => {
      const { gpus } = gpuTypes.parse(await (await nodes.at(0).fetch('/v2/catalog/gpus')).json());
      return gpus;
    };
    await expect.poll(readTypes, LONG).toMatchObject([{ total: 1, available: 1 }]);
    const gpu = { id: (await readTypes())[0]?.id ?? '', count: 1 };
    const args = `sh -c 'echo GPU $CUDA_VISIBLE_DEVICES; sleep 600'`;
    const pod = { name: 'gpu', image: 'none', args, gpu, disk: 1 };
    const id = await create(nodes.at(0), '/v2/pods', pod);
    const readLog = async () => (await nodes.at(1).fetch(`/v2/pods/${id}/logs`)).text();
    await expect.poll(readLog, LONG).toMatch(/GPU GPU-/);
    expect(await Promise.all(nodes.all.map(countContainers))).toEqual([0, 0, 1]);
    expect(await readTypes()).toMatchObject([{ total: 1, available: 0 }]);
    await nodes.at(1).fetch(`/v2/pods/${id}`, { method: 'DELETE' });
    await expect.poll(countAll, LONG).toBe(0);
  });

  it.skipIf(hasNoCompiler)(
    'let endpoints of several owners take turns on one GPU, and park their models',
    async () => {
      const driver = compileDriver();
      onTestFinished(() => removeDriver(driver));
      const device = new StandInDevice(driver, { totalMb: 1_500 });
      const { CUDA_VISIBLE_DEVICES: _, ...onDevice } = device.environment;
      const env = { ...onDevice, ...sayingOf('one-h200') };
      const template = { name: 'model', image: 'none', handler: fixture('resident.ts'), env };
      const templateId = await create(nodes.at(0), '/v1/templates', template);
      const { gpus } = gpuTypes.parse(await (await nodes.at(0).fetch('/v2/catalog/gpus')).json());
      const gpuTypeIds = gpus.map(({ id }) => id);
      const sizes = { gpuTypeIds, workersMax: 1, idleTimeout: 3_600, minResidenceMs: 0 };
      const runOn = async (endpoint: string, n: number) => {
        const id = await submitTo(nodes.at(n), `/v2/${endpoint}/run`, { input: {} });
        const read = async () => {
          const record = await nodes.at((n + 1) % COUNT).fetch(`/v2/${endpoint}/status/${id}`);
          return record.json();
        };
        await expect.poll(read, LONG).toMatchObject({ status: 'COMPLETED', attempt: 1 });
        const pods = await listPods(nodes.at(0), endpoint);
        // One that gives way before it has found a way to park its model ends.
        const logs = `/v2/pods/${pods[0]?.id}/logs`;
        const readLog = async () => (await nodes.at(n).fetch(logs)).text();
        await expect.poll(readLog, LONG).toContain('worker can be parked');
        return pods;
      };
      const endpoints: string[] = [];
      // Most likely not all of them belong to the leader.
      for (let n = 0; n < COUNT; n++) {
        endpoints.push(
          await create(nodes.at(n), '/v1/endpoints', { name: `model-${n}`, templateId, ...sizes }),
        );
      }
      const first = [];
      for (const [n, endpoint] of endpoints.entries()) first.push(await runOn(endpoint, n));
      for (const [n, endpoint] of endpoints.entries()) {
        const pods = await runOn(endpoint, (n + 1) % COUNT);
        expect(pods.map(({ id }) => id)).toEqual(first[n]?.map(({ id }) => id));
      }
      expect(device.tenants.map(({ state }) => state).sort()).toEqual([
        ...['checkpointed', 'checkpointed', 'running'],
      ]);
      for (const endpoint of endpoints) await remove(nodes.at(0), endpoint);
      await expect.poll(countAll, LONG).toBe(0);
    },
  );

  it('balance requests over workers of all nodes, whichever is asked', async () => {
    const template = { name: 'web', image: 'none', ports: ['8000/http'] };
    const args = `'${process.execPath}' '${SERVER}'`;
    const templateId = await create(nodes.at(0), '/v1/templates', { ...template, args });
    const sizes = { workersMin: COUNT, workersMax: COUNT, idleTimeout: 60 };
    const endpoint = await create(nodes.at(1), '/v1/endpoints', {
      ...{ name: 'web', type: 'LOAD_BALANCER', templateId, ...sizes },
    });
    const workers = new Set<string>();
    const ask = async (node: PlatformProcess) => {
      const response = await fetch(`${node.url}/lb/${endpoint}/upper`, {
        ...{ method: 'POST', body: JSON.stringify({ text: 'text' }) },
        headers: { authorization: `Bearer ${node.adminKey}`, 'content-type': 'application/json' },
      });
      const { text, worker } = shout.parse(await response.json());
      expect(text).toBe('TEXT');
      workers.add(worker);
    };
    const askAll = async () => {
      for (const node of nodes.all) await ask(node);
      return workers.size;
    };
    await expect.poll(askAll, LONG).toBe(COUNT);
    await remove(nodes.at(2), endpoint);
    await expect.poll(countAll, LONG).toBe(0);
  });

  it('pass requests for pods on, and remove pod and volume of a killed node when it is back', async () => {
    const cpu = { id: 'cpu', vcpuCount: 2, memory: 1 };
    const ids: string[] = [];
    const volumeId = await create(nodes.at(1), '/v1/network-volumes', { name: 'own', size: 1 });
    const mounts = { network: [{ volumeId, path: '/data' }] };
    const countVolumes = async () => {
      const folders = nodes.all.map(({ folder }) => join(folder, 'data/pods/network-volumes'));
      return (await Promise.all(folders.map((folder) => readdir(folder)))).flat().length;
    };
    for (const [index, node] of nodes.all.entries()) {
      const args = `sh -c 'echo pod ${index}; sleep 600'`;
      const pod = { name: `pod-${index}`, image: 'none', args, cpu, disk: 1, mounts };
      ids.push(await create(node, '/v2/pods', pod));
    }
    const show = async (node: PlatformProcess, id: string) => {
      const response = await node.fetch(`/v2/pods/${id}`);
      return response.status === 200 ? onePod.parse(await response.json()) : undefined;
    };
    const act = (node: PlatformProcess, id: string, action: string) =>
      node.post(`/v2/pods/${id}/action`, { action });
    const statusesAt = (node: PlatformProcess) => async () =>
      Promise.all(ids.map(async (id) => (await show(node, id))?.status));
    await expect.poll(statusesAt(nodes.at(1)), LONG).toEqual(['RUNNING', 'RUNNING', 'RUNNING']);
    const places = await Promise.all(ids.map(async (id) => (await show(nodes.at(2), id))?.node));
    expect(new Set(places).size).toBe(COUNT);
    expect(await countVolumes()).toBe(COUNT);
    for (const [index, id] of ids.entries()) {
      const node = nodes.at((index + 1) % COUNT);
      const readLog = async () => (await node.fetch(`/v2/pods/${id}/logs`)).text();
      await expect.poll(readLog, LONG).toContain(`pod ${index}`);
      expect((await act(node, id, 'stop')).status).toBe(200);
    }
    await expect.poll(statusesAt(nodes.at(1)), LONG).toEqual(['EXITED', 'EXITED', 'EXITED']);
    for (const id of ids) expect((await act(nodes.at(2), id, 'start')).status).toBe(200);
    await expect.poll(statusesAt(nodes.at(0)), LONG).toEqual(['RUNNING', 'RUNNING', 'RUNNING']);

    const [killed, other] = [nodes.at(2), nodes.at(1)];
    const name = (await readFile(join(killed.folder, 'data', 'node-name'), 'utf8')).trim();
    const lost = ids.filter((_, index) => places[index] === name);
    await killed.kill();
    for (const id of lost) {
      const readReason = async () => (await show(other, id))?.reason;
      await expect.poll(readReason, LONG).toContain(`node ${name} is gone since`);
    }
    const { adminKey: key, url } = other;
    const { nodes: listed } = await createPlatform({ url, key }).nodes.list();
    expect(listed.filter(({ state }) => state === 'gone')).toMatchObject([{ name }]);
    for (const id of ids) await other.fetch(`/v2/pods/${id}`, { method: 'DELETE' });
    await expect.poll(statusesAt(other), LONG).toEqual(ids.map(() => 'TERMINATED'));
    await expect.poll(countAll, LONG).toBe(lost.length);
    const deleteVolume = async () =>
      (await other.fetch(`/v1/network-volumes/${volumeId}`, { method: 'DELETE' })).status;
    await expect.poll(deleteVolume, LONG).toBe(204);
    await expect.poll(countVolumes, LONG).toBe(1);
    await killed.restart();
    await expect.poll(countAll, LONG).toBe(0);
    await expect.poll(countVolumes, LONG).toBe(0);
  });

  it('report the pods of a killed leader, start no second ones, and adopt them when it is back', async () => {
    const [leader, other] = [nodes.at(0), nodes.at(1)];
    const endpoint = await deploy(WORKERS);
    const running = new Array(WORKERS).fill('RUNNING: null');
    let most = 0;
    const describePods = async () => {
      const pods = await listPods(leader, endpoint);
      most = Math.max(most, pods.length, await countAll());
      return pods.map(({ reason, status }) => `${status}: ${reason}`);
    };
    // A pod that has not started yet may be replaced.
    await expect.poll(describePods, LONG).toEqual(running);
    expect(await countContainers(leader)).toBeGreaterThan(0);
    await leader.kill();
    const reported = async () => {
      const pods = await listPods(other, endpoint);
      most = Math.max(most, pods.length, await countAll());
      return pods.some(({ reason }) => reason?.includes('is gone since') ?? false);
    };
    await expect.poll(reported, LONG).toBe(true);
    const before = await listPods(other, endpoint);
    const lost = before.filter(({ reason }) => reason?.includes('is gone since'));
    const name = lost[0]?.node;
    expect(lost).toHaveLength(before.filter(({ node }) => node === name).length);
    const answer = await other.post(`/v2/${endpoint}/runsync`, { input: { n: 1, ms: 0 } });
    expect(await answer.json()).toMatchObject({ status: 'COMPLETED' });
    await leader.restart();
    await expect.poll(describePods, LONG).toEqual(running);
    const after = new Map((await listPods(leader, endpoint)).map((pod) => [pod.id, pod]));
    for (const { id, startedAt } of lost) {
      expect(after.get(id)?.node).toBe(name);
      if (startedAt !== null) expect(after.get(id)?.startedAt).toBe(startedAt);
    }
    expect([most, await countAll()]).toEqual([WORKERS, WORKERS]);
    await remove(other, endpoint);
    await expect.poll(countAll, LONG).toBe(0);
  });
});
