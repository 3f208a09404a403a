// Runs the engine suite on a real API server with the account of deploy/kubernetes, and compares what
// the account may do with what the engine has done.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kubernetesSettings } from '../../src/engine/kubernetes/settings.ts';
import { describeEngine } from '../conformance/engine/engine.ts';
import { EngineStage, type EngineUnderTest, MOUNT } from '../conformance/engine/engine-stage.ts';
import { KubernetesGround } from '../conformance/engine/kubernetes-ground.ts';
import type { Cluster } from '../support/kubernetes/cluster.ts';
import { createAccount, listRights, readManifests } from './access.ts';
import { type RealApiServer, startRealCluster } from './api-server.ts';

const HOOK_MS = 240_000;

let started: { cluster: Cluster; server: RealApiServer } | undefined;

function getStarted() {
  if (!started) throw new Error('the cluster has not started');
  return started;
}

const ground = new KubernetesGround(
  () => getStarted().cluster,
  ({ admin }, namespace) => createAccount(admin, namespace),
);
const under: EngineUnderTest = {
  name: 'of Kubernetes, on a real API server with its least rights',
  image: 'none',
  node: process.execPath,
  mountRoot: '.',
  addedVariables: ['PATH', 'HOME', 'HOSTNAME', 'KUBELET_CONTAINER'],
  gpus: [],
  limitsMemory: false,
  diskOverStop: 'lost',
  open: () => ground.open(),
};

beforeAll(async () => {
  started = await startRealCluster();
}, HOOK_MS);

afterAll(() => started?.cluster.close(), HOOK_MS);

describeEngine(under);

describe('the account of the engine', () => {
  const stage = new EngineStage(under);

  it('may also grow claims and remove volumes of endpoints', async () => {
    const { admin } = getStarted().cluster;
    await admin.create('/apis/storage.k8s.io/v1/storageclasses', {
      metadata: { name: 'growing' },
      provisioner: 'test',
      allowVolumeExpansion: true,
    });
    await stage.set();
    const settings = kubernetesSettings.parse({ storageClass: 'growing', workerStateGb: 1 });
    const engine = ground.openEngine({ settings });
    const stateVolume = { endpointId: 'ep_a', slot: 0, path: '/state' };
    const small = stage.spec({
      mounts: [{ kind: 'persistent', source: 'data', path: MOUNT, sizeGb: 1 }],
      stateVolume,
    });
    await engine.create(small);
    // Not the claim of the suite's shared folder.
    const ours = 'labelSelector=millrace.dev/platform';
    const path = `/api/v1/namespaces/${ground.namespace}/persistentvolumeclaims?${ours}`;
    const grown = small.mounts.map((mount) => ({ ...mount, sizeGb: 2 }));
    // Kubernetes grows only claims with a volume.
    await expect
      .poll(() => admin.list(path))
      .toMatchObject({ items: [{ status: { phase: 'Bound' } }, { status: { phase: 'Bound' } }] });
    await engine.remove(small.id, 'keep');
    await engine.create({ ...small, generation: 2, mounts: grown });
    const { items } = await admin.list(path);
    const sizes = items.map(({ spec }) => JSON.stringify(spec?.['resources']));
    expect(sizes.join()).toContain('"storage":"2Gi"');
    expect(await engine.stateVolumes?.listEndpoints()).toEqual(['ep_a']);
    await engine.remove(small.id, 'remove');
    await engine.stateVolumes?.remove('ep_a');
    expect(await admin.list(path)).toMatchObject({ items: [] });
    await engine.close();
    await stage.clear();
  });

  it('has each right that the suite used, and no other', () => {
    const calls = getStarted()
      .server.readAudit()
      .filter(({ user }) => user.endsWith(':millrace'));
    expect(calls.filter(({ code }) => code === 403)).toEqual([]);
    const used = new Set(calls.map(({ right }) => right));
    const rules = readManifests().flatMap((manifest) => manifest.rules ?? []);
    expect([...used].sort()).toEqual(listRights(rules));
  });
});
