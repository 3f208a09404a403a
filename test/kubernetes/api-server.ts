// A real Kubernetes API server on its own etcd, with RBAC. Programs: `etcd` of PATH, and
// `kube-apiserver` of KUBE_APISERVER or PATH (scripts/kubernetes/build-apiserver.sh builds one).
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Authority } from '../support/certificates.ts';
import { type KubeAccess, KubeClient } from '../support/kubernetes/client.ts';
import { type ApiServer, Cluster } from '../support/kubernetes/cluster.ts';
import type { KubeletOptions } from '../support/kubernetes/kubelet/kubelet.ts';
import { findFreePort } from '../support/network/free-port.ts';

const PROGRAM = process.env['KUBE_APISERVER'] ?? 'kube-apiserver';
/** Its name for pods. */
export const IN_CLUSTER = 'kubernetes.default.svc';
const START_MS = 120_000;
const AUDIT = 'audit.log';
const POLICY = JSON.stringify({
  apiVersion: 'audit.k8s.io/v1',
  kind: 'Policy',
  omitStages: ['RequestReceived', 'ResponseStarted'],
  rules: [{ level: 'Metadata' }],
});
const ADMIN_TOKEN = 'token-of-the-administrator';

const auditSchema = z.looseObject({
  verb: z.string(),
  user: z.looseObject({ username: z.string() }),
  objectRef: z
    .looseObject({
      apiGroup: z.string().default(''),
      resource: z.string().default(''),
      subresource: z.string().optional(),
    })
    .optional(),
  responseStatus: z.looseObject({ code: z.number() }).optional(),
});

export interface AuditedCall {
  user: string;
  /** `GROUP/RESOURCE VERB`. */
  right: string;
  code: number;
}

/** Undefined: both programs are there. */
export function findApiServerTrouble(): string | undefined {
  for (const [program, remedy] of [
    ['etcd', 'apt-get install etcd-server'],
    [PROGRAM, 'scripts/kubernetes/build-apiserver.sh builds it; name it in KUBE_APISERVER'],
  ] as const) {
    try {
      execFileSync(program, ['--version'], { stdio: 'ignore' });
    } catch {
      return `${program} does not run: ${remedy}`;
    }
  }
  return undefined;
}

export class RealApiServer implements ApiServer {
  readonly access: KubeAccess;
  readonly #folder: string;
  #etcd: ChildProcess | undefined;
  #server: ChildProcess | undefined;
  #flags: string[] = [];
  readonly #kill = () => {
    this.#server?.kill('SIGKILL');
    this.#etcd?.kill('SIGKILL');
  };

  private constructor(folder: string, access: KubeAccess) {
    this.#folder = folder;
    this.access = access;
    // If the test dies, the servers must not stay.
    process.once('exit', this.#kill);
  }

  static async start(authority: Authority): Promise<RealApiServer> {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-kube-api-'));
    const port = await findFreePort();
    const access = {
      url: `https://localhost:${port}`,
      ca: readFileSync(authority.path, 'utf8'),
      token: ADMIN_TOKEN,
    };
    const server = new RealApiServer(folder, access);
    const etcd = `http://127.0.0.1:${await findFreePort()}`;
    const peer = `http://127.0.0.1:${await findFreePort()}`;
    server.#etcd = server.#run('etcd', [
      `--data-dir=${join(folder, 'etcd')}`,
      ...[`--listen-client-urls=${etcd}`, `--advertise-client-urls=${etcd}`],
      ...[`--listen-peer-urls=${peer}`, `--initial-advertise-peer-urls=${peer}`],
      `--initial-cluster=default=${peer}`,
    ]);
    server.#flags = writeFlags(folder, { authority, etcd, port });
    server.#server = server.#run(PROGRAM, server.#flags);
    await server.#untilReady();
    return server;
  }

  #run(program: string, args: readonly string[]): ChildProcess {
    const log = openSync(join(this.#folder, 'log'), 'a');
    return spawn(program, args, { stdio: ['ignore', log, log], cwd: this.#folder });
  }

  async #untilReady(): Promise<void> {
    const client = new KubeClient(this.access);
    const end = performance.now() + START_MS;
    for (;;) {
      const isReady = await client
        .call('GET', '/readyz')
        .then(async ({ body, statusCode }) => (await body.text()) === 'ok' && statusCode === 200)
        .catch(() => false);
      if (isReady) break;
      const hasEnded = this.#server?.exitCode !== null || this.#etcd?.exitCode !== null;
      if (hasEnded || performance.now() > end) {
        const log = readFileSync(join(this.#folder, 'log'), 'utf8').slice(-3_000);
        await this.close();
        throw new Error(`the API server did not start:\n${log}`);
      }
      await sleep(100);
    }
    await client.close();
  }

  /** The calls that have ended. */
  readAudit(): AuditedCall[] {
    const lines = readFileSync(join(this.#folder, AUDIT), 'utf8').trim().split('\n');
    return lines.map((line) => {
      const { objectRef, responseStatus, user, verb } = auditSchema.parse(JSON.parse(line));
      const { apiGroup, resource, subresource } = objectRef ?? { apiGroup: '', resource: '' };
      const kind = subresource === undefined ? resource : `${resource}/${subresource}`;
      const code = responseStatus?.code ?? 0;
      return { user: user.username, right: `${apiGroup}/${kind} ${verb}`, code };
    });
  }

  async close(): Promise<void> {
    process.removeListener('exit', this.#kill);
    await endProcess(this.#server);
    await endProcess(this.#etcd);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function endProcess(child: ChildProcess | undefined): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

interface ServerPlace {
  authority: Authority;
  etcd: string;
  port: number;
}

function writeFlags(folder: string, { authority, etcd, port }: ServerPlace): string[] {
  const write = (name: string, content: string) => {
    const path = join(folder, name);
    writeFileSync(path, content, { mode: 0o600 });
    return path;
  };
  const { cert, key } = authority.sign('localhost', IN_CLUSTER);
  const [certFile, keyFile] = [write('tls.crt', cert), write('tls.key', key)];
  const accounts = write('accounts.key', makeAccountKey());
  const tokens = write('tokens.csv', `${ADMIN_TOKEN},admin,admin,system:masters\n`);
  return [
    `--etcd-servers=${etcd}`,
    ...['--bind-address=127.0.0.1', `--secure-port=${port}`, `--cert-dir=${folder}`],
    ...[`--tls-cert-file=${certFile}`, `--tls-private-key-file=${keyFile}`],
    `--token-auth-file=${tokens}`,
    '--authorization-mode=RBAC',
    '--service-account-issuer=https://kubernetes.test',
    ...[`--service-account-key-file=${accounts}`, `--service-account-signing-key-file=${accounts}`],
    '--service-cluster-ip-range=10.0.0.0/24',
    '--endpoint-reconciler-type=none',
    // For calls to metrics.k8s.io, which it passes on with its own certificate.
    ...[`--proxy-client-cert-file=${certFile}`, `--proxy-client-key-file=${keyFile}`],
    ...[`--requestheader-client-ca-file=${authority.path}`, '--requestheader-allowed-names=proxy'],
    '--requestheader-username-headers=X-Remote-User',
    '--profiling=false',
    ...[`--audit-log-path=${join(folder, AUDIT)}`, `--audit-policy-file=${write('audit', POLICY)}`],
  ];
}

/** Signs the tokens of service accounts. */
function makeAccountKey(): string {
  return generateKeyPairSync('ec', {
    namedCurve: 'P-256',
    privateKeyEncoding: { type: 'sec1', format: 'pem' },
    publicKeyEncoding: { type: 'spki', format: 'pem' },
  }).privateKey;
}

/** On a real API server. */
export async function startRealCluster(
  options: KubeletOptions = {},
): Promise<{ cluster: Cluster; server: RealApiServer }> {
  const { cluster, server } = await Cluster.start(
    (authority) => RealApiServer.start(authority),
    options,
  );
  await registerMetrics(cluster);
  return { cluster, server };
}

/** From now on the API server asks the kubelet of the tests for figures of pods. */
async function registerMetrics({ admin, kubelet }: Cluster): Promise<void> {
  const { port } = kubelet;
  await admin.create('/api/v1/namespaces/default/services', {
    metadata: { name: 'metrics' },
    spec: { type: 'ExternalName', externalName: 'localhost', ports: [{ port }] },
  });
  await admin.create('/apis/apiregistration.k8s.io/v1/apiservices', {
    apiVersion: 'apiregistration.k8s.io/v1',
    kind: 'APIService',
    metadata: { name: 'v1beta1.metrics.k8s.io' },
    spec: {
      group: 'metrics.k8s.io',
      version: 'v1beta1',
      service: { namespace: 'default', name: 'metrics', port },
      insecureSkipTLSVerify: true,
      groupPriorityMinimum: 100,
      versionPriority: 100,
    },
  });
}
