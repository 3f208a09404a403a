// A real `millrace serve --engine kubernetes` in a namespace of the tests' cluster, whose kubelet runs its workers as real
// processes; and what tests ask of both.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { findFreePort } from '../network/free-port.ts';
import { PlatformProcess } from '../processes.ts';
import type { KubeAccess, KubeObject } from './client.ts';
import { type Cluster, writeKubeconfig } from './cluster.ts';

const BIN = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url));
/** Its entry point is a worker; the arguments name the handler. */
export const WORKER_IMAGE = 'millrace-worker';
export const PLATFORM_LABEL = 'millrace.dev/platform';
export const POD_LABEL = 'millrace.dev/pod';

const created = z.object({ id: z.string() });
const podSchema = z.object({
  ...{ id: z.string(), name: z.string(), status: z.string(), reason: z.string().nullable() },
  endpointId: z.string().nullish(),
  env: z.record(z.string(), z.string()),
});
const podList = z.object({ pods: z.array(podSchema) });
const jobSchema = z.object({
  ...{ status: z.string(), attempt: z.number().optional() },
  output: z.looseObject({ tag: z.string().optional() }).optional(),
  waitReason: z.object({ code: z.string(), message: z.string() }).nullish(),
});
const healthSchema = z.object({ jobs: z.record(z.string(), z.number()) });

export interface KubePlatformOptions {
  cluster: Cluster;
  namespace: string;
  access: KubeAccess;
  /** Content of the file of `--kube-settings`. */
  settings: { platform: string } & Record<string, unknown>;
  args?: string[];
}

/** Pods with a mount need a GPU: a node with some, and the setting that declares them. */
export const GPU_PRODUCT = 'TEST-GPU';
export const GPU_NODE = {
  name: 'gpu-node',
  labels: { 'nvidia.com/gpu.product': GPU_PRODUCT },
  gpus: Array.from({ length: 64 }, (_, index) => `GPU-${index}`),
};
export const GPU_SETTINGS = { gpus: [{ product: GPU_PRODUCT, count: 64 }] };

/** Objects of one platform in a namespace. */
interface OwnObjects {
  pods: KubeObject[];
  secrets: KubeObject[];
  claims: KubeObject[];
}

export class KubePlatform {
  readonly process: PlatformProcess;
  readonly #options: KubePlatformOptions;
  readonly #folder: string;

  private constructor(process: PlatformProcess, options: KubePlatformOptions, folder: string) {
    this.process = process;
    this.#options = options;
    this.#folder = folder;
  }

  static async start(options: KubePlatformOptions): Promise<KubePlatform> {
    const { access, args = [], cluster, namespace, settings } = options;
    cluster.kubelet.images.set(WORKER_IMAGE, [process.execPath, BIN, 'worker']);
    const folder = await mkdtemp(join(tmpdir(), 'millrace-kube-'));
    const [kubeconfig, file] = [join(folder, 'kubeconfig'), join(folder, 'settings.json')];
    await writeKubeconfig(kubeconfig, access, namespace);
    await writeFile(file, JSON.stringify(settings));
    const port = String(await findFreePort());
    const own = {
      '--engine': 'kubernetes',
      '--kubeconfig': kubeconfig,
      '--kube-settings': file,
      '--port': port,
      '--worker-url': `http://127.0.0.1:${port}`,
    };
    const all = [...Object.entries(own).flat(), ...args];
    const started = await PlatformProcess.start({ endpoints: [], args: all });
    return new KubePlatform(started, options, folder);
  }

  get name(): string {
    return this.#options.settings.platform;
  }

  async kill(): Promise<void> {
    await this.process.kill();
  }

  restart(): Promise<void> {
    return this.process.restart();
  }

  /** @throws Error with the answer if it is not 2xx */
  async call(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await this.process.fetch(path, {
      method,
      ...(body !== undefined && {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status}: ${text}`);
    return text === '' ? undefined : JSON.parse(text);
  }

  /** @returns the ID of the new resource */
  async create(path: string, body: object): Promise<string> {
    return created.parse(await this.call('POST', path, body)).id;
  }

  /** Those that are not on their way out. */
  async listPods(): Promise<z.infer<typeof podSchema>[]> {
    const { pods } = podList.parse(await this.call('GET', '/v2/pods?limit=1000'));
    return pods.filter(({ status }) => status !== 'TERMINATED');
  }

  submit(endpoint: string, input: object): Promise<string> {
    return this.create(`/v2/${endpoint}/run`, { input });
  }

  async readJob(endpoint: string, id: string) {
    return jobSchema.parse(await this.call('GET', `/v2/${endpoint}/status/${id}`));
  }

  async countJobs(endpoint: string): Promise<Record<string, number>> {
    return healthSchema.parse(await this.call('GET', `/v2/${endpoint}/health`)).jobs;
  }

  /** Everything in the namespace that has the platform's label. */
  async listObjects(): Promise<OwnObjects> {
    const { cluster, namespace } = this.#options;
    const list = async (kind: string) => {
      const selector = `labelSelector=${PLATFORM_LABEL}%3D${this.name}`;
      const path = `/api/v1/namespaces/${namespace}/${kind}?${selector}`;
      return (await cluster.admin.list(path)).items;
    };
    const [pods, secrets, claims] = await Promise.all([
      ...[list('pods'), list('secrets'), list('persistentvolumeclaims')],
    ]);
    return { pods: pods ?? [], secrets: secrets ?? [], claims: claims ?? [] };
  }

  async close(): Promise<void> {
    await this.process.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
