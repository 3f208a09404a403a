// Starts the platform from the manifests of deploy/kubernetes, as docs/operations/kubernetes.md says, on a real API server. Its
// nodes and workers run as containers of the tests: with a network, users and files of their own.
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { inspect } from 'node:util';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Cluster } from '../support/kubernetes/cluster.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../support/postgres.ts';
import { requestToken } from './access.ts';
import { IN_CLUSTER, startRealCluster } from './api-server.ts';
import { buildManifests, createManifest, findKubectlTrouble } from './manifest-files.ts';
import { findSandboxTrouble, Sandbox } from './sandbox/sandbox.ts';
import { Services } from './sandbox/services.ts';
import { makePods } from './sandbox/stateful-set.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const FILE = 'test/kubernetes/platform.test.ts';
const HOOK_MS = 240_000;
const LONG = { timeout: 180_000, interval: 200 };
const NAMESPACE = 'millrace';
const CORE = `/api/v1/namespaces/${NAMESPACE}`;
const DATABASE_PORT = 5_432;
const WORKER = 'millrace-worker';
const CATALOG = {
  cpus: [{ id: 'small', vcpuCounts: [2], maxMemory: 4, vcpuPrice: 0.01, memoryPrice: 0.001 }],
};
const ENGINE_SETTINGS = { platform: 'shown' };

const trouble = findKubectlTrouble() ?? findSandboxTrouble();
if (trouble !== undefined) console.warn(`${FILE} is left out: ${trouble}`);
const isLeftOut = trouble !== undefined || leaveOutWithoutPostgres(FILE);

/** ENTRYPOINT and ENV of the image; `tini` and the folder of Node are those of this machine. */
function readImage(): { entryPoint: string[]; variables: Record<string, string> } {
  const text = readFileSync(join(REPOSITORY, 'deploy/Dockerfile.platform'), 'utf8');
  const [, block = ''] = /^ENV ((?:.*\\\n)*.*)$/m.exec(text) ?? [];
  const pairs = block.split(/\\?\n/).map((line) => line.trim().split('='));
  const variables = Object.fromEntries(pairs.map(([name = '', value = '']) => [name, value]));
  const [, list = '[]'] = /^ENTRYPOINT (.*)$/m.exec(text) ?? [];
  const words = z.array(z.string()).parse(JSON.parse(list));
  const own = words.slice(words.indexOf('node') + 1);
  return { entryPoint: [process.execPath, ...own], variables };
}

describe.skipIf(isLeftOut)('the platform of deploy/kubernetes', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-manifests-'));
  let database: PostgresServer;
  let sandbox: Sandbox;
  let cluster: Cluster;
  let services: Services;
  let url: string;
  let key: string;

  beforeAll(async () => {
    database = await PostgresServer.start();
    const env = { KUBERNETES_SERVICE_HOST: IN_CLUSTER, KUBERNETES_SERVICE_PORT: '443' };
    sandbox = new Sandbox(REPOSITORY, env);
    await sandbox.start();
    ({ cluster } = await startRealCluster({ runtime: sandbox }));
    const { admin, kubelet } = cluster;
    const names = [IN_CLUSTER, 'db.example'].map((name) => [name, sandbox.gateway] as const);
    services = new Services(admin, sandbox, names);
    const local = (port: number) => () => ({ host: '127.0.0.1', port });
    const apiPort = Number(new URL(cluster.access.url).port);
    await sandbox.serve({ address: sandbox.gateway, port: 443 }, local(apiPort));
    const ofDatabase = { address: sandbox.gateway, port: DATABASE_PORT };
    await sandbox.serve(ofDatabase, local(database.port));
    const { entryPoint, variables } = readImage();
    kubelet.images.set('registry.example/millrace-platform:1', entryPoint, variables);
    kubelet.images.set(WORKER, [process.execPath, 'bin/millrace.js', 'worker']);
    await admin.create('/api/v1/namespaces', { metadata: { name: NAMESPACE } });
    await apply();
    await makeSecrets();
    await giveToken();
    await makePods(admin, NAMESPACE, 'millrace');
    const service = await admin.get(`${CORE}/services/millrace`);
    url = `http://${z.looseObject({ clusterIP: z.string() }).parse(service.spec).clusterIP}:8000`;
  }, HOOK_MS);

  afterAll(async () => {
    await services?.close();
    await cluster?.close();
    await sandbox?.close();
    await database?.stop();
    rmSync(folder, { recursive: true, force: true });
  }, HOOK_MS);

  /** The folder that the docs describe. */
  async function apply(): Promise<void> {
    const base = relative(folder, join(REPOSITORY, 'deploy/kubernetes/base'));
    const store = new URL(await database.createDatabase());
    const address = `postgres://postgres@db.example:${DATABASE_PORT}${store.pathname}?sslmode=disable`;
    writeFileSync(join(folder, 'kubernetes.json'), JSON.stringify(ENGINE_SETTINGS));
    writeFileSync(join(folder, 'catalog.json'), JSON.stringify(CATALOG));
    const file = {
      resources: [base],
      namespace: NAMESPACE,
      images: [
        {
          name: 'millrace-platform',
          newName: 'registry.example/millrace-platform',
          newTag: '1',
        },
      ],
      configMapGenerator: [
        {
          name: 'millrace',
          behavior: 'merge',
          literals: [
            `MILLRACE_STORE=${address}`,
            'MILLRACE_CATALOG=/etc/millrace/engine/catalog.json',
            'MILLRACE_SECRETS_KEY_FILE=/etc/millrace/secrets/secrets-key',
          ],
        },
        {
          name: 'millrace-engine',
          behavior: 'replace',
          files: ['kubernetes.json', 'catalog.json'],
        },
      ],
    };
    writeFileSync(join(folder, 'kustomization.yaml'), JSON.stringify(file));
    for (const manifest of buildManifests(folder)) {
      await createManifest(cluster.admin, NAMESPACE, manifest);
    }
  }

  async function makeSecrets(): Promise<void> {
    copyFileSync(join(REPOSITORY, 'deploy/make-secrets.sh'), join(folder, 'make-secrets.sh'));
    execFileSync('sh', ['make-secrets.sh'], { cwd: folder });
    const read = (name: string) => readFileSync(join(folder, 'secrets', name), 'utf8');
    const names = ['keys', 'node-secret', 'postgres-password', 'secrets-key', 'webhook-secrets'];
    const stringData = Object.fromEntries(names.map((name) => [name, read(name)]));
    await cluster.admin.create(`${CORE}/secrets`, { metadata: { name: 'millrace' }, stringData });
    const [, admin = ''] = /^MILLRACE_ADMIN_KEY=(.*)$/m.exec(read('keys')) ?? [];
    key = admin;
  }

  /** Gives a service account its token, as the cluster's controller does; Pods then get it as a volume. */
  async function giveToken(): Promise<void> {
    const { access, admin } = cluster;
    const token = await requestToken(admin, NAMESPACE);
    await admin.create(`${CORE}/secrets`, {
      metadata: {
        name: 'millrace-token',
        annotations: { 'kubernetes.io/service-account.name': 'millrace' },
      },
      type: 'kubernetes.io/service-account-token',
      stringData: { token, namespace: NAMESPACE, 'ca.crt': access.ca },
    });
    const account = `${CORE}/serviceaccounts/millrace`;
    await admin.patch(account, { secrets: [{ name: 'millrace-token' }] });
    await admin.create(`${CORE}/serviceaccounts`, {
      metadata: { name: 'default' },
      automountServiceAccountToken: false,
    });
  }

  /** On connections that the client keeps. */
  async function call(method: 'GET' | 'POST', path: string, body?: unknown) {
    const response = await request(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const text = await response.body.text();
    const { statusCode } = response;
    if (statusCode >= 300) throw new Error(`${method} ${path}: ${statusCode}: ${text}`);
    return z.unknown().parse(JSON.parse(text));
  }

  const create = async (path: string, body: object) =>
    z.looseObject({ id: z.string() }).parse(await call('POST', path, body)).id;

  async function listReady(): Promise<string[]> {
    const selector = 'labelSelector=millrace.dev/component=node';
    const { items } = await cluster.admin.list(`${CORE}/pods?${selector}`);
    return items.flatMap(({ metadata, status }) => {
      const isReady = JSON.stringify(status?.['conditions']).includes(
        '{"type":"Ready","status":"True"',
      );
      return isReady && !metadata.deletionTimestamp ? [metadata.name] : [];
    });
  }

  let endpoint: string;

  it('has two nodes that become ready by their probes', async () => {
    await expect.poll(listReady, LONG).toEqual(['millrace-0', 'millrace-1']);
    // The Service hears of them a moment later.
    const list = () => call('GET', '/v1/nodes').catch(() => undefined);
    await expect.poll(list, LONG).toMatchObject({ nodes: [{}, {}] });
  });

  it('runs a job on a worker that it has made as a Pod', async () => {
    const args = '/app/test/support/handlers/tagged.ts';
    const template = { name: 'worker', image: WORKER, args, env: { TAG: 'in the cluster' } };
    const templateId = await create('/v1/templates', template);
    const sizes = { workersMin: 1, workersMax: 1 };
    endpoint = await create('/v1/endpoints', { name: 'jobs', templateId, ...sizes });
    const run = () => call('POST', `/v2/${endpoint}/runsync`, { input: { n: 1, ms: 0 } });
    await expect
      .poll(() => run().catch(() => undefined), LONG)
      .toMatchObject({
        ...{ status: 'COMPLETED', output: { tag: 'in the cluster' } },
      });
    const selector = `labelSelector=millrace.dev/endpoint=${endpoint}`;
    const { items } = await cluster.admin.list(`${CORE}/pods?${selector}`);
    expect(items).toMatchObject([
      { metadata: { labels: { 'millrace.dev/platform': ENGINE_SETTINGS.platform } } },
    ]);
  });

  it('reads the catalog file and the key of registries', async () => {
    expect(await call('GET', '/v2/catalog/cpus')).toMatchObject({ cpus: [{ id: 'small' }] });
    const registry = { name: 'own', server: 'r.example', username: 'ada', secret: 'password' };
    expect(await create('/v1/registries', registry)).toBeTypeOf('string');
  });

  it('loses no request when one of its nodes is drained', async () => {
    const nodes = await listReady();
    for (const name of nodes) {
      const ended = new AbortController();
      const failures: string[] = [];
      let done = 0;
      const ask = async () => {
        while (!ended.signal.aborted) {
          await call('POST', `/v2/${endpoint}/runsync`, { input: { n: 1, ms: 20 } })
            .then(() => done++)
            .catch((error: unknown) => failures.push(inspect(error)));
        }
      };
      const asking = Array.from({ length: 4 }, ask);
      await expect.poll(() => done, LONG).toBeGreaterThan(10);
      await cluster.admin.remove(`${CORE}/pods/${name}`);
      await expect.poll(() => cluster.admin.find(`${CORE}/pods/${name}`), LONG).toBeUndefined();
      const before = done;
      await makePods(cluster.admin, NAMESPACE, 'millrace');
      await expect.poll(listReady, LONG).toEqual(nodes);
      await expect.poll(() => done, LONG).toBeGreaterThan(before + 10);
      ended.abort();
      await Promise.all(asking);
      expect(failures).toEqual([]);
    }
  });
});
