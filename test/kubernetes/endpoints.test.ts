// Endpoints of a real platform on a real API server with the account of deploy/kubernetes: a roll, a scale to zero, and a
// change of the GPU type.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Cluster } from '../support/kubernetes/cluster.ts';
import { KubePlatform, WORKER_IMAGE } from '../support/kubernetes/kube-platform.ts';
import { PodHistory } from '../support/kubernetes/pod-history.ts';
import { fixture } from '../support/processes.ts';
import { createAccount } from './access.ts';
import { startRealCluster } from './api-server.ts';

const HOOK_MS = 240_000;
const LONG = { timeout: 120_000, interval: 100 };
const JOBS = 60;
const MAX = 3;
const PRODUCT = 'nvidia.com/gpu.product';
/** The cluster has machines for it, and all of their GPUs are in use. */
const FULL = 'NVIDIA-H100-80GB-HBM3';
const FREE = 'NVIDIA-L4';

const NODES = [
  { name: 'cpu-node' },
  { name: 'h100-node', labels: { [PRODUCT]: FULL } },
  { name: 'l4-node', labels: { [PRODUCT]: FREE }, gpus: ['GPU-a', 'GPU-b'] },
];

let cluster: Cluster;
let namespace: string;
let platform: KubePlatform;

beforeAll(async () => {
  ({ cluster } = await startRealCluster({ nodes: NODES }));
  namespace = await cluster.createNamespace();
  const access = await createAccount(cluster.admin, namespace);
  const gpus = [FULL, FREE].map((product) => ({ product, count: 2 }));
  platform = await KubePlatform.start({
    ...{ cluster, namespace, access },
    settings: { platform: 'shown', gpus },
  });
}, HOOK_MS);

afterEach(async () => {
  for (const id of endpoints.splice(0)) await platform.call('DELETE', `/v1/endpoints/${id}`);
  await expect.poll(countObjects, LONG).toEqual([0, 0]);
});

afterAll(async () => {
  await platform?.close();
  await cluster?.close();
}, HOOK_MS);

const endpoints: string[] = [];

async function createEndpoint(changes: object, env: object = {}) {
  const template = { name: 'worker', image: WORKER_IMAGE, args: fixture('tagged.ts'), env };
  const templateId = await platform.create('/v1/templates', template);
  const creation = { name: 'jobs', templateId, workersMax: MAX, idleTimeout: 1, ...changes };
  const endpoint = await platform.create('/v1/endpoints', creation);
  endpoints.push(endpoint);
  return { endpoint, templateId };
}

async function countObjects(): Promise<number[]> {
  const { pods, secrets } = await platform.listObjects();
  return [pods.length, secrets.length];
}

async function listUids(): Promise<string[]> {
  return (await platform.listObjects()).pods.map(({ metadata }) => metadata.uid);
}

describe('an endpoint on a real API server', () => {
  it('replaces its Pods while jobs run, and loses none', async () => {
    const sizes = { workersMin: MAX, scaler: { type: 'REQUEST_COUNT', perWorker: 20 } };
    const { endpoint, templateId } = await createEndpoint(sizes, { TAG: 'old' });
    const readTags = async () => (await platform.listPods()).map(({ env }) => env['TAG']);
    const listRunning = async () =>
      (await platform.listPods()).filter(({ status }) => status === 'RUNNING').length;
    await expect.poll(listRunning, LONG).toBe(MAX);
    const before = await listUids();
    const inputs = Array.from({ length: JOBS }, (_, n) => ({ n, ms: 300 }));
    const jobs = await Promise.all(inputs.map((input) => platform.submit(endpoint, input)));
    const completed = async () => (await platform.countJobs(endpoint))['completed'] ?? 0;
    await expect.poll(completed, LONG).toBeGreaterThan(JOBS / 10);
    await platform.call('PATCH', `/v1/templates/${templateId}`, { env: { TAG: 'new' } });
    await expect.poll(completed, LONG).toBe(JOBS);
    expect(await platform.countJobs(endpoint)).toMatchObject({ failed: 0, retried: 0 });
    const tags = await Promise.all(
      jobs.map(async (id) => (await platform.readJob(endpoint, id)).output?.tag),
    );
    expect(new Set(tags)).toEqual(new Set(['old', 'new']));
    await expect.poll(readTags, LONG).toEqual(Array(MAX).fill('new'));
    const countOld = async () => (await listUids()).filter((uid) => before.includes(uid)).length;
    await expect.poll(countOld, LONG).toBe(0);
    await expect.poll(countObjects, LONG).toEqual([MAX, MAX]);
  });

  it('has no Pod while it is idle, and one again for the next job', async () => {
    const { endpoint } = await createEndpoint({ workersMin: 0 }, { TAG: 'a' });
    expect(await countObjects()).toEqual([0, 0]);
    const runOne = async (n: number) => {
      const job = await platform.submit(endpoint, { n, ms: 200 });
      await expect.poll(listUids, LONG).toHaveLength(1);
      const [uid] = await listUids();
      const stateOf = async () => (await platform.readJob(endpoint, job)).status;
      await expect.poll(stateOf, LONG).toBe('COMPLETED');
      return uid;
    };
    const first = await runOne(1);
    await expect.poll(countObjects, LONG).toEqual([0, 0]);
    const second = await runOne(2);
    expect(second).not.toBe(first);
    await expect.poll(countObjects, LONG).toEqual([0, 0]);
    expect(await platform.countJobs(endpoint)).toMatchObject({ completed: 2, retried: 0 });
  });

  it('moves to its next GPU type at once when the cluster has no free GPU of the first', async () => {
    const history = new PodHistory(cluster, namespace, platform.name);
    const { endpoint } = await createEndpoint({ gpuTypeIds: [FULL, FREE] }, { TAG: 'a' });
    const job = await platform.submit(endpoint, { n: 1, ms: 0 });
    await waitUntilCompleted(endpoint, job);
    await history.close();
    const [first, next, ...more] = history.all;
    expect(more).toEqual([]);
    expect(first).toMatchObject({
      nodeSelector: { [PRODUCT]: FULL },
      unschedulable: expect.stringContaining('1 Insufficient nvidia.com/gpu'),
    });
    expect(next).toMatchObject({ nodeSelector: { [PRODUCT]: FREE } });
    expect(next?.unschedulable).toBeUndefined();
    const passedMs = Math.round((next?.cameAt ?? NaN) - (first?.cameAt ?? NaN));
    console.info(`the Pod of the next GPU type came ${passedMs} ms after the first Pod`);
  });

  it('says that jobs wait for a GPU, and takes the next type when it gets one', async () => {
    const { endpoint } = await createEndpoint({ gpuTypeIds: [FULL] }, { TAG: 'a' });
    const job = await platform.submit(endpoint, { n: 1, ms: 0 });
    const codeOf = async () => (await platform.readJob(endpoint, job)).waitReason?.code;
    await expect.poll(codeOf, LONG).toBe('no_capacity');
    const findReason = async () => (await platform.listPods())[0]?.reason;
    await expect.poll(findReason, LONG).toContain('1 Insufficient nvidia.com/gpu');
    // The worker of the last type stays: an autoscaler may add a node.
    const [waiting] = await listUids();
    await platform.call('PATCH', `/v1/endpoints/${endpoint}`, { gpuTypeIds: [FULL, FREE] });
    await waitUntilCompleted(endpoint, job);
    expect(await listUids()).not.toContain(waiting);
  });
});

async function waitUntilCompleted(endpoint: string, job: string): Promise<void> {
  const stateOf = async () => (await platform.readJob(endpoint, job)).status;
  await expect.poll(stateOf, LONG).toBe('COMPLETED');
}
