// Two platforms in one namespace of a real API server, with the same account: neither touches anything of the other.
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Cluster } from '../support/kubernetes/cluster.ts';
import {
  GPU_NODE,
  GPU_PRODUCT,
  GPU_SETTINGS,
  KubePlatform,
  WORKER_IMAGE,
} from '../support/kubernetes/kube-platform.ts';
import { fixture } from '../support/processes.ts';
import { createAccount } from './access.ts';
import { startRealCluster } from './api-server.ts';

const HOOK_MS = 240_000;
const LONG = { timeout: 120_000, interval: 100 };
/** Passes over all pods are at least every 2 s. */
const PASSES_MS = 5_000;
const NAMES = ['one', 'one-more'];

let cluster: Cluster;
const platforms: KubePlatform[] = [];

beforeAll(async () => {
  ({ cluster } = await startRealCluster({ nodes: [GPU_NODE] }));
  const namespace = await cluster.createNamespace();
  const access = await createAccount(cluster.admin, namespace);
  for (const platform of NAMES) {
    const settings = { platform, workerStateGb: 1, ...GPU_SETTINGS };
    platforms.push(await KubePlatform.start({ cluster, namespace, access, settings }));
  }
}, HOOK_MS);

afterAll(async () => {
  for (const platform of platforms) await platform.close();
  await cluster?.close();
}, HOOK_MS);

/** A pod with a mount, and an endpoint with a worker. */
async function fill(platform: KubePlatform) {
  const mounts = { persistent: { size: 10, path: '/data' } };
  const creation = {
    name: 'pod',
    image: 'none',
    args: 'sleep 1000',
    gpu: { id: GPU_PRODUCT },
    mounts,
  };
  const pod = await platform.create('/v2/pods', creation);
  const template = { name: 'worker', image: WORKER_IMAGE, args: fixture('tagged.ts') };
  const env = { TAG: platform.name };
  const templateId = await platform.create('/v1/templates', { ...template, env });
  const sizes = { workersMin: 1, workersMax: 1, idleTimeout: 60 };
  const endpoint = await platform.create('/v1/endpoints', { name: 'jobs', templateId, ...sizes });
  const states = async () => (await platform.listPods()).map(({ status }) => status);
  await expect.poll(states, LONG).toEqual(['RUNNING', 'RUNNING']);
  return { pod, endpoint };
}

/** UIDs of all that the platform has in the namespace. */
async function listUids(platform: KubePlatform): Promise<string[]> {
  const { claims, pods, secrets } = await platform.listObjects();
  return [...claims, ...pods, ...secrets].map(({ metadata }) => metadata.uid).sort();
}

async function runJob(platform: KubePlatform, endpoint: string): Promise<unknown> {
  const path = `/v2/${endpoint}/runsync?wait=60000`;
  return platform.call('POST', path, { input: { n: 1, ms: 0 } });
}

it('leaves alone what another platform in the namespace has', async () => {
  const [first, second] = platforms;
  if (!first || !second) throw new Error('no platforms');
  const [own, others] = [await fill(first), await fill(second)];
  const [before, untouched] = [await listUids(first), await listUids(second)];
  // A claim of the mount and one of the worker's state; a Secret and a Pod of both.
  expect([before.length, untouched.length]).toEqual([6, 6]);

  await first.kill();
  await first.restart();
  await new Promise((resolve) => setTimeout(resolve, PASSES_MS));
  expect([await listUids(first), await listUids(second)]).toEqual([before, untouched]);
  for (const [platform, { endpoint }] of [
    [first, own],
    [second, others],
  ] as const) {
    expect(await runJob(platform, endpoint)).toMatchObject({ output: { tag: platform.name } });
  }

  await first.call('DELETE', `/v2/pods/${own.pod}`);
  await first.call('DELETE', `/v1/endpoints/${own.endpoint}`);
  await expect.poll(() => listUids(first), LONG).toEqual([]);
  expect(await listUids(second)).toEqual(untouched);

  await second.kill();
  await first.kill();
  await first.restart();
  await new Promise((resolve) => setTimeout(resolve, PASSES_MS));
  expect(await listUids(second)).toEqual(untouched);
  await second.restart();
  expect(await runJob(second, others.endpoint)).toMatchObject({ output: { tag: second.name } });
  expect(await listUids(second)).toEqual(untouched);
});
