// A Kubernetes cluster for tests: an API server (the stand-in, or a real one) with controllers, a
// scheduler and a kubelet that runs pods as processes of this machine.
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { Authority } from '../certificates.ts';
import { ApiStandIn } from './api-stand-in.ts';
import { type KubeAccess, KubeClient } from './client.ts';
import { Controllers } from './controllers.ts';
import { Kubelet, type KubeletOptions } from './kubelet/kubelet.ts';

const ADMIN_TOKEN = 'token-of-the-administrator';

/** An API server that runs. */
export interface ApiServer {
  /** Of an administrator. */
  access: KubeAccess;
  close(): Promise<void>;
}

export class Cluster {
  readonly admin: KubeClient;
  readonly kubelet: Kubelet;
  readonly #server: ApiServer;
  readonly #authority: Authority;
  readonly #controllers: Controllers;
  #namespaces = 0;

  private constructor(parts: {
    server: ApiServer;
    authority: Authority;
    admin: KubeClient;
    kubelet: Kubelet;
  }) {
    this.#server = parts.server;
    this.#authority = parts.authority;
    this.admin = parts.admin;
    this.kubelet = parts.kubelet;
    this.#controllers = new Controllers(this.admin);
  }

  /** `openServer` gets a maker of certificates for a host name. */
  static async start<Server extends ApiServer>(
    openServer: (authority: Authority) => Promise<Server>,
    options: KubeletOptions = {},
  ): Promise<{ cluster: Cluster; server: Server }> {
    const authority = new Authority();
    const server = await openServer(authority).catch((error: unknown) => {
      authority.remove();
      throw error;
    });
    const admin = new KubeClient(server.access);
    const kubelet = await Kubelet.start(admin, authority.sign('localhost'), options);
    return { cluster: new Cluster({ server, authority, admin, kubelet }), server };
  }

  /** Of an administrator. */
  get access(): KubeAccess {
    return this.#server.access;
  }

  /** @returns the name of a new one */
  async createNamespace(): Promise<string> {
    const name = `test-${++this.#namespaces}`;
    await this.admin.create('/api/v1/namespaces', { metadata: { name } });
    // A controller's work in a cluster.
    const account = { metadata: { name: 'default' }, automountServiceAccountToken: false };
    await this.admin.create(`/api/v1/namespaces/${name}/serviceaccounts`, account);
    return name;
  }

  /** Ends all pods, also with objects that stay. @throws Error if the kubelet could not run a pod */
  async close(): Promise<void> {
    await this.#controllers.close();
    try {
      await this.kubelet.close();
    } finally {
      await this.admin.close();
      await this.#server.close();
      this.#authority.remove();
    }
  }
}

/** On the stand-in. `api`: to make trouble. */
export async function startCluster(
  options: KubeletOptions = {},
): Promise<{ cluster: Cluster; api: ApiStandIn }> {
  const { cluster, server } = await Cluster.start(async (authority) => {
    const api = await ApiStandIn.start(authority.sign('localhost'));
    api.allowToken(ADMIN_TOKEN);
    const ca = readFileSync(authority.path, 'utf8');
    const access = { url: api.url, ca, token: ADMIN_TOKEN };
    return {
      api,
      access,
      close: () => api.close(),
    };
  }, options);
  return { cluster, api: server.api };
}

/** Writes a kubeconfig file. JSON is YAML. */
export async function writeKubeconfig(
  path: string,
  { ca, token, url }: KubeAccess,
  namespace = 'default',
): Promise<void> {
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'test',
    clusters: [
      {
        name: 'test',
        cluster: { server: url, 'certificate-authority-data': Buffer.from(ca).toString('base64') },
      },
    ],
    users: [{ name: 'test', user: { token } }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test', namespace } }],
  };
  await writeFile(path, JSON.stringify(config), { mode: 0o600 });
}
