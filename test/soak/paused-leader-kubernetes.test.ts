// A leader on Kubernetes is frozen in the middle of a removal, another node takes over and makes the next container, and the
// first one wakes up: the new container runs on.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startCluster, writeKubeconfig } from '../support/kubernetes/cluster.ts';
import { GPU_NODE, GPU_PRODUCT, GPU_SETTINGS } from '../support/kubernetes/kube-platform.ts';
import { NodeProcesses } from '../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../support/postgres.ts';

const LONG = { timeout: 120_000, interval: 100 };
/** Two passes of any leader over all pods. */
const PASSES_MS = 5_000;
const FIRST = 'token-of-the-first-node';

const podSchema = z.looseObject({ id: z.string(), status: z.string() });
const isLeftOut = leaveOutWithoutPostgres('test/soak/paused-leader-kubernetes.test.ts');

describe.skipIf(isLeftOut)('a frozen leader on Kubernetes', () => {
  let server: PostgresServer;
  let started: Awaited<ReturnType<typeof startCluster>>;
  let nodes: NodeProcesses;
  let namespace: string;
  let folder: string;

  beforeAll(async () => {
    server = await PostgresServer.start();
    started = await startCluster({ nodes: [GPU_NODE] });
    const { api, cluster } = started;
    namespace = await cluster.createNamespace();
    folder = await mkdtemp(join(tmpdir(), 'millrace-kube-'));
    api.allowToken(FIRST);
    const [first, second] = [join(folder, 'first'), join(folder, 'second')];
    await writeKubeconfig(first, { ...cluster.access, token: FIRST }, namespace);
    await writeKubeconfig(second, cluster.access, namespace);
    const settings = join(folder, 'settings.json');
    await writeFile(settings, JSON.stringify({ platform: 'shared', ...GPU_SETTINGS }));
    nodes = await NodeProcesses.start({
      ...{ store: await server.createDatabase(), count: 0, shards: 2, endpoints: [] },
      ...{ engine: 'kubernetes', args: ['--kube-settings', settings] },
    });
    for (const kubeconfig of [first, second]) {
      const url = 'http://127.0.0.1:9';
      await nodes.add({ args: ['--kubeconfig', kubeconfig, '--worker-url', url] });
    }
  });
  afterAll(async () => {
    await nodes?.close();
    await started?.cluster.close();
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const listObjects = async () => {
    const kinds = ['pods', 'secrets'].map(async (kind) => {
      const path = `/api/v1/namespaces/${namespace}/${kind}`;
      return (await started.cluster.admin.list(path)).items;
    });
    return (await Promise.all(kinds)).flat().map(({ metadata }) => metadata);
  };

  it('does not remove what the next leader has made', async () => {
    const { api } = started;
    const [leader, other] = [nodes.at(0), nodes.at(1)];
    const creation = { name: 'pod', image: 'none', args: 'sleep 1000', gpu: { id: GPU_PRODUCT } };
    const answer = await leader.post('/v2/pods', creation);
    const { id } = podSchema.parse(await answer.json());
    const statusAt = async (node: typeof leader) => {
      const response = await node.fetch(`/v2/pods/${id}`);
      return response.ok ? podSchema.parse(await response.json()).status : response.status;
    };
    await expect.poll(() => statusAt(leader), LONG).toBe('RUNNING');

    const wake = Promise.withResolvers<void>();
    const removing = new Promise<void>((resolve) => {
      api.hold = (token, method) => {
        if (token !== FIRST || method !== 'DELETE') return undefined;
        resolve();
        return wake.promise;
      };
    });
    await leader.post(`/v2/pods/${id}/action`, { action: 'restart' });
    await removing;
    leader.process.child.kill('SIGSTOP');
    const names = async () => (await listObjects()).map(({ name }) => name.slice(-2));
    await expect.poll(names, LONG).toEqual(['-2', '-2']);
    await expect.poll(() => statusAt(other), LONG).toBe('RUNNING');
    const made = await listObjects();

    api.hold = undefined;
    wake.resolve();
    leader.process.child.kill('SIGCONT');
    await sleep(PASSES_MS);
    expect(await listObjects()).toEqual(made);
    expect(await statusAt(other)).toBe('RUNNING');
  });
});
