// Runs the engine suite on a stand-in of the Kubernetes API whose kubelet runs pods as processes.
import { afterAll, beforeAll } from 'vitest';
import { type Cluster, startCluster } from '../../support/kubernetes/cluster.ts';
import { describeEngine } from './engine.ts';
import type { EngineUnderTest } from './engine-stage.ts';
import { KubernetesGround } from './kubernetes-ground.ts';

const HOOK_MS = 120_000;

let cluster: Cluster | undefined;

const ground = new KubernetesGround(() => {
  if (!cluster) throw new Error('the cluster has not started');
  return cluster;
});
const under: EngineUnderTest = {
  name: 'of Kubernetes',
  image: 'none',
  node: process.execPath,
  mountRoot: '.',
  addedVariables: ['PATH', 'HOME', 'HOSTNAME', 'KUBELET_CONTAINER'],
  gpus: [],
  limitsMemory: false,
  diskOverStop: 'lost',
  // Each stop takes a second on Kubernetes; test:kubernetes has all delays.
  ...(process.env['KUBERNETES_SUITE'] !== 'all' && { cutDelaysMs: [5] }),
  open: () => ground.open(),
};

beforeAll(async () => {
  ({ cluster } = await startCluster());
}, HOOK_MS);

afterAll(() => cluster?.close(), HOOK_MS);

describeEngine(under);
