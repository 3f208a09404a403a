// What the tests expect of a Kubernetes cluster. It runs on the stand-in, and on a real API server
// (npm run test:kubernetes), which shows that the stand-in behaves alike.
import { afterAll, beforeAll, beforeEach, describe } from 'vitest';
import type { KubeClient } from '../../support/kubernetes/client.ts';
import type { Cluster } from '../../support/kubernetes/cluster.ts';
import type { KubeObject } from '../../support/kubernetes/objects.ts';
import { describeObjects } from './contract-objects.ts';
import { describeRuns } from './contract-runs.ts';
import { describeWatches } from './contract-watches.ts';

const HOOK_MS = 120_000;

export class ClusterStage {
  #cluster: Cluster | undefined;
  namespace = '';

  get cluster(): Cluster {
    if (!this.#cluster) throw new Error('the stage is not set');
    return this.#cluster;
  }

  set cluster(cluster: Cluster) {
    this.#cluster = cluster;
  }

  get client(): KubeClient {
    return this.cluster.admin;
  }

  /** Of the namespace of the test. */
  path(plural: string, name?: string): string {
    const all = `/api/v1/namespaces/${this.namespace}/${plural}`;
    return name === undefined ? all : `${all}/${name}`;
  }

  /** Runs the script with `sh`; `part` overrides fields of the spec. */
  runPod(name: string, script: string, part: object = {}): Promise<KubeObject> {
    const container = { name: 'main', image: 'none', args: ['sh', '-c', script] };
    const spec = { restartPolicy: 'Never', containers: [container], ...part };
    return this.client.create(this.path('pods'), { metadata: { name }, spec });
  }

  /** Resolves when the pod is as wanted. */
  async untilPod(name: string, isWanted: (pod: KubeObject) => boolean): Promise<KubeObject> {
    for (;;) {
      const pod = await this.client.get(this.path('pods', name));
      if (isWanted(pod)) return pod;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  untilPhase(name: string, phase: string): Promise<KubeObject> {
    return this.untilPod(name, ({ status }) => status?.['phase'] === phase);
  }

  /** Resolves with the first event of the object with this reason. */
  async untilEvent(uid: string, reason: string): Promise<KubeObject> {
    const path = `${this.path('events')}?fieldSelector=involvedObject.uid%3D${uid}`;
    for (;;) {
      const { items } = await this.client.list(path);
      const found = items.find((event) => event['reason'] === reason);
      if (found) return found;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async untilGone(path: string): Promise<void> {
    while (await this.client.find(path)) await new Promise((resolve) => setTimeout(resolve, 10));
  }

  async untilLogged(name: string, text: string): Promise<string> {
    for (;;) {
      const log = await this.client.readLog(`${this.path('pods', name)}/log`).catch(() => '');
      if (log.includes(text)) return log;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

/** One node with a GPU, one without. */
export const NODES = [
  { name: 'cpu-node', capacity: { cpu: '8', memory: '16Gi' } },
  {
    name: 'gpu-node',
    labels: { 'nvidia.com/gpu.product': 'NVIDIA-L4' },
    capacity: { cpu: '8', memory: '16Gi' },
    gpus: ['GPU-1', 'GPU-2'],
  },
];

export function describeCluster(name: string, start: () => Promise<Cluster>): void {
  describe(`a cluster with ${name}`, () => {
    const stage = new ClusterStage();

    beforeAll(async () => {
      stage.cluster = await start();
    }, HOOK_MS);
    afterAll(() => stage.cluster.close(), HOOK_MS);
    beforeEach(async () => {
      stage.namespace = await stage.cluster.createNamespace();
    });

    describeObjects(stage);
    describeWatches(stage);
    describeRuns(stage);
  });
}
