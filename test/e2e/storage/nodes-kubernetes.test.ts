// Two nodes on a stand-in of the Kubernetes API: whichever leads manages all pods of the cluster.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Cluster, startCluster, writeKubeconfig } from '../../support/kubernetes/cluster.ts';
import { findFreePort } from '../../support/network/free-port.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { fixture, type PlatformProcess } from '../../support/processes.ts';

const BIN = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url));
const IMAGE = 'millrace-worker';
const PLATFORM = 'shared';
const WORKERS = 2;
const TOLERATION = { key: 'spot', operator: 'Exists' };
const ALLOWED = { tolerations: [TOLERATION], labels: ['team'] };
const KUBERNETES = { tolerations: [TOLERATION], labels: { team: 'vision' } };
const LONG = { timeout: 60_000, interval: 100 };

const created = z.object({ id: z.string() });
const jobState = z.object({
  ...{ status: z.string(), output: z.unknown().optional(), attempt: z.number().optional() },
});
const podList = z.object({
  pods: z.array(
    z.object({
      ...{ id: z.string(), status: z.string(), node: z.string().nullable() },
      startedAt: z.string().nullable(),
    }),
  ),
});

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-kubernetes.test.ts');

describe.skipIf(isLeftOut)('two nodes with the Kubernetes engine', () => {
  let server: PostgresServer;
  let cluster: Cluster;
  let nodes: NodeProcesses;
  let namespace: string;
  let folder: string;
  let endpoint: string;

  beforeAll(async () => {
    server = await PostgresServer.start();
    ({ cluster } = await startCluster());
    cluster.kubelet.images.set(IMAGE, [process.execPath, BIN, 'worker']);
    namespace = await cluster.createNamespace();
    folder = await mkdtemp(join(tmpdir(), 'millrace-kube-'));
    const kubeconfig = join(folder, 'kubeconfig');
    const settings = join(folder, 'settings.json');
    await writeKubeconfig(kubeconfig, cluster.access, namespace);
    await writeFile(settings, JSON.stringify({ platform: PLATFORM, templates: ALLOWED }));
    const port = await findFreePort();
    const args = [
      ...['--kubeconfig', kubeconfig, '--kube-settings', settings],
      // Of the second node, which stays: the first is killed.
      ...['--worker-url', `http://127.0.0.1:${port}`],
    ];
    nodes = await NodeProcesses.start({
      ...{ store: await server.createDatabase(), count: 1, shards: 2, endpoints: [], args },
      engine: 'kubernetes',
    });
    await nodes.add({ args: ['--port', String(port)] });
    const [first] = nodes.all;
    const template = { name: 'worker', image: IMAGE, args: fixture('tagged.ts') };
    const body = { ...template, env: { TAG: 'a' }, kubernetes: KUBERNETES };
    const templateId = await create(first, '/v1/templates', body);
    const sizes = { workersMin: WORKERS, workersMax: WORKERS, idleTimeout: 60 };
    endpoint = await create(first, '/v1/endpoints', { name: 'jobs', templateId, ...sizes });
  });
  afterAll(async () => {
    await nodes?.close();
    await cluster?.close();
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const create = async (node: PlatformProcess | undefined, path: string, body: object) => {
    const response = await node?.post(path, body);
    const text = await response?.text();
    if (response?.status !== 201) throw new Error(`${response?.status}: ${text}`);
    return created.parse(JSON.parse(text ?? '')).id;
  };
  const listPods = async (node: PlatformProcess) => {
    const response = await node.fetch('/v2/pods?limit=1000');
    if (response.status !== 200) return [];
    const { pods } = podList.parse(await response.json());
    return pods.filter(({ status }) => status !== 'TERMINATED');
  };
  const listStates = async (node: PlatformProcess) =>
    (await listPods(node)).map(({ status }) => status);
  const listObjects = async () => {
    const { items } = await cluster.admin.list(`/api/v1/namespaces/${namespace}/pods`);
    return items.map(({ metadata }) => metadata);
  };
  const submit = async (node: PlatformProcess, input: object) => {
    const answer = await node.post(`/v2/${endpoint}/run`, { input });
    return created.parse(await answer.json()).id;
  };
  const readJob = async (node: PlatformProcess, id: string) =>
    jobState.parse(await (await node.fetch(`/v2/${endpoint}/status/${id}`)).json());

  it('run the pods under the one name that both have', async () => {
    await expect.poll(() => listStates(nodes.at(1)), LONG).toEqual(['RUNNING', 'RUNNING']);
    const pods = await listPods(nodes.at(1));
    expect(pods.map(({ node }) => node)).toEqual([PLATFORM, PLATFORM]);
    for (const node of nodes.all) {
      // Not runsync: the shards may still move to the second node, and then a wait ends early.
      const job = await submit(node, { n: 1, ms: 0 });
      const ended = { status: 'COMPLETED', output: { tag: 'a' } };
      await expect.poll(() => readJob(node, job), LONG).toMatchObject(ended);
    }
  });

  it('give workers the settings of their template, within the limits of the operator', async () => {
    const { items } = await cluster.admin.list(`/api/v1/namespaces/${namespace}/pods`);
    expect(items.map(({ metadata }) => metadata.labels?.['team'])).toEqual(['vision', 'vision']);
    expect(items).toMatchObject(Array(WORKERS).fill({ spec: { tolerations: [TOLERATION] } }));
    const beyond = { name: 'b', image: IMAGE, kubernetes: { labels: { app: 'x' } } };
    const refused = await nodes.at(1).post('/v1/templates', beyond);
    expect(refused.status).toBe(422);
    expect(await refused.json()).toMatchObject({
      errors: ['kubernetes.labels.app: "app" is not allowed; the operator allows only "team"'],
    });
  });

  it('finish the job of a pod that the cluster disrupts, and replace the pod', async () => {
    const node = nodes.at(1);
    const before = await listObjects();
    const job = await submit(node, { n: 2, ms: 5_000 });
    const stateOf = async () => (await readJob(node, job)).status;
    await expect.poll(stateOf, LONG).toBe('IN_PROGRESS');
    await Promise.all(before.map(({ name }) => cluster.kubelet.disrupt(namespace, name)));
    await expect.poll(stateOf, LONG).toBe('COMPLETED');
    expect(await readJob(node, job)).toMatchObject({ output: { n: 2 }, attempt: 1 });
    const replaced = async () => {
      const objects = await listObjects();
      return objects.filter(({ uid }) => before.every((each) => each.uid !== uid)).length;
    };
    await expect.poll(replaced, LONG).toBe(WORKERS);
    await expect.poll(() => listStates(node), LONG).toEqual(['RUNNING', 'RUNNING']);
  });

  it('go on with the same pods when the leader is killed', async () => {
    const [leader, other] = [nodes.at(0), nodes.at(1)];
    const before = await listObjects();
    const running = await submit(other, { n: 4, ms: 2_000 });
    await leader.kill();
    await expect
      .poll(async () => (await readJob(other, running).catch(() => undefined))?.status, LONG)
      .toBe('COMPLETED');
    await expect.poll(() => listStates(other), LONG).toEqual(['RUNNING', 'RUNNING']);
    expect((await listObjects()).map(({ uid }) => uid)).toEqual(before.map(({ uid }) => uid));
    // It also ends and makes pods: the next leader's hands are not tied.
    await cluster.admin.remove(`/api/v1/namespaces/${namespace}/pods/${before[0]?.name}`);
    const isReplaced = async () =>
      (await listObjects()).filter(({ uid }) => !before.some((each) => each.uid === uid)).length;
    await expect.poll(isReplaced, LONG).toBe(1);
    await other.fetch(`/v1/endpoints/${endpoint}`, { method: 'DELETE' });
    await expect.poll(listObjects, LONG).toEqual([]);
  });
});
