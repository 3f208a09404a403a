// The platform's clock is ahead of the cluster's: a Pod that takes its time to end is not lost.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { KubernetesEngine } from '../../../../src/engine/kubernetes/kubernetes-engine.ts';
import { kubernetesSettings } from '../../../../src/engine/kubernetes/settings.ts';
import { startCluster, writeKubeconfig } from '../../../support/kubernetes/cluster.ts';

const AHEAD_MS = 3_600_000;
const GRACE_S = 600;

it('takes the time of the cluster for the end of a Pod', async () => {
  const { cluster } = await startCluster();
  const namespace = await cluster.createNamespace();
  const folder = await mkdtemp(join(tmpdir(), 'millrace-kube-'));
  const kubeconfig = join(folder, 'config');
  await writeKubeconfig(kubeconfig, cluster.access, namespace);
  const engine = new KubernetesEngine({
    ...{ platform: 'ahead', access: { kubeconfig, environment: {} }, log: silentLog },
    settings: kubernetesSettings.parse({}),
    clock: { ...systemClock, now: () => systemClock.now() + AHEAD_MS },
  });
  onTestFinished(async () => {
    await engine.close();
    await cluster.close();
    await rm(folder, { recursive: true });
  });
  const args = `sh -c "trap '' TERM; while :; do sleep 1; done"`;
  await engine.create({
    ...{ id: 'p', generation: 1, labels: {}, image: 'none', args, handler: null, env: {} },
    ...{ ports: [], diskGb: 1, registry: null, mounts: [], gpus: [], limits: null, network: null },
  });
  await engine.start('p');
  await expect
    .poll(() => engine.inspect('p'), { timeout: 60_000 })
    .toMatchObject({
      state: 'running',
    });
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const [pod] = (await cluster.admin.list(pods)).items;
  await cluster.admin.remove(`${pods}/${pod?.metadata.name}`, { gracePeriodSeconds: GRACE_S });
  expect(await engine.inspect('p')).toMatchObject({
    ...{ state: 'running', leaving: 'somebody deleted its Pod' },
  });
});
