// Runs the engine suite on a stand-in of the Kubernetes API whose kubelet runs pods as processes.
import { afterAll, afterEach, beforeAll, beforeEach, describe } from 'vitest';
import { startCluster } from '../../support/kubernetes/cluster.ts';
import { describeEngine } from './engine.ts';
import { EngineStage, type EngineUnderTest } from './engine-stage.ts';
import { describeKubernetes } from './kubernetes-features.ts';
import { KubernetesGround } from './kubernetes-ground.ts';

const HOOK_MS = 120_000;
/** Of a deadline: most tests stop a pod, which waits for one. */
const SECOND_MS = 100;
const gpuNode = {
  name: 'gpu-node',
  labels: { 'nvidia.com/gpu.product': 'H200' },
  capacity: { cpu: '64', memory: '256Gi', 'nvidia.com/gpu': '2' },
  gpus: ['GPU-0', 'GPU-1'],
};
const cpuNode = {
  name: 'cpu-node',
  labels: {},
  capacity: { cpu: '64', memory: '256Gi' },
  gpus: [],
};

let started: Awaited<ReturnType<typeof startCluster>> | undefined;

function parts() {
  if (!started) throw new Error('the cluster has not started');
  return started;
}

const ground = new KubernetesGround(() => parts().cluster);
const under: EngineUnderTest = {
  name: 'of Kubernetes',
  image: 'none',
  node: process.execPath,
  mountRoot: '.',
  addedVariables: ['PATH', 'HOME', 'HOSTNAME', 'KUBELET_CONTAINER'],
  gpus: [],
  limitsMemory: false,
  diskOverStop: 'lost',
  // They take long; `npm run test:kubernetes` has them, and KUBERNETES_SUITE=all.
  ...(process.env['KUBERNETES_SUITE'] !== 'all' && { cutDelaysMs: [] }),
  open: () => ground.open(),
};

beforeAll(async () => {
  started = await startCluster({ nodes: [cpuNode, gpuNode], secondMs: SECOND_MS });
}, HOOK_MS);

afterAll(() => started?.cluster.close(), HOOK_MS);

describeEngine(under);

describe('what only Kubernetes has', () => {
  const stage = new EngineStage(under);

  beforeEach(() => stage.set());
  afterEach(() => stage.clear());

  describeKubernetes(stage, ground, () => parts().api);
});
