// What only Kubernetes has: scheduling, GPUs by product, several platforms in a namespace, and watches that end.
import { describe, expect, it } from 'vitest';
import { kubernetesSettings } from '../../../src/engine/kubernetes/settings.ts';
import type { ApiStandIn } from '../../support/kubernetes/api-stand-in.ts';
import { REGISTRY_LOGIN } from '../../support/kubernetes/kubelet/pod-needs.ts';
import { until } from '../../support/until.ts';
import type { EngineStage } from './engine-stage.ts';
import type { KubernetesGround } from './kubernetes-ground.ts';

export function describeKubernetes(
  stage: EngineStage,
  ground: KubernetesGround,
  api: () => ApiStandIn,
): void {
  describe('scheduling', () => {
    it('runs a pod on a node with GPUs of its product', async () => {
      const gpus = ['H200/0', 'H200/1'];
      const { id } = await stage.run('echo "gpus: $NVIDIA_VISIBLE_DEVICES"; exec sleep 1000', {
        gpus,
      });
      expect(await stage.untilPrinted(id, 'gpus: ')).toMatch(/gpus: \S+,\S+/);
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running', gpus });
    });

    it('tells why no node has capacity, and stops a pod that waits', async () => {
      const { id } = await stage.run('echo up', { gpus: ['A100/0'] });
      expect(await stage.until(id, ({ waiting }) => waiting !== undefined)).toMatchObject({
        state: 'starting',
        waiting: { cause: 'capacity', isFinal: false },
      });
      await stage.engine.stop(id, 1_000);
      // It has not run, so it costs nothing.
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'exited', startedAt: null });
    });

    it('refuses to start a pod whose image does not exist', async () => {
      const spec = stage.spec({ image: 'registry.test/app:missing' });
      await stage.engine.create(spec);
      await expect(stage.engine.start(spec.id)).rejects.toMatchObject({ code: 'refused' });
    });
  });

  describe('a pod that the cluster ends', () => {
    const nameOf = async (id: string) => {
      const selector = `labelSelector=millrace.dev/pod=${id}`;
      const path = `/api/v1/namespaces/${ground.namespace}/pods`;
      const { items } = await ground.admin.list(`${path}?${selector}`);
      const [pod] = items;
      if (!pod) throw new Error(`no Pod of ${id}`);
      return { path, ...pod.metadata };
    };

    it('is leaving until it is gone', async () => {
      const { id } = await stage.run('trap "" TERM; echo up; while true; do sleep 0.1; done');
      await stage.untilPrinted(id, 'up');
      const { name, namespace = '' } = await nameOf(id);
      await ground.kubelet.disrupt(namespace, name);
      expect(await stage.until(id, ({ leaving }) => leaving !== undefined)).toMatchObject({
        ...{ state: 'running', leaving: expect.stringContaining('EvictionByEvictionAPI') },
      });
    });

    it('is lost with its node, and can be started and removed all the same', async () => {
      const { id } = await stage.run('echo up; exec sleep 1000');
      await stage.untilPrinted(id, 'up');
      const { name, namespace = '', path, uid } = await nameOf(id);
      ground.kubelet.lose(namespace, name);
      await ground.admin.remove(`${path}/${name}`, { gracePeriodSeconds: 1 });
      expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
      api().aheadMs = 120_000;
      try {
        expect(await stage.engine.inspect(id)).toMatchObject({
          ...{ state: 'exited', leaving: 'its node does not answer any more' },
        });
        await stage.engine.start(id);
        expect(await stage.engine.inspect(id)).toMatchObject({ state: 'running' });
        expect((await nameOf(id)).uid).not.toBe(uid);
        await stage.engine.remove(id, 'remove');
        expect(await stage.engine.inspect(id)).toBeUndefined();
      } finally {
        api().aheadMs = 0;
      }
    });
  });

  it('gives the login of a registry to the kubelet', async () => {
    const image = 'registry.test/private/none';
    const login = { server: 'registry.test', ...REGISTRY_LOGIN };
    const refused = stage.spec({ image });
    await stage.engine.create(refused);
    await expect(stage.engine.start(refused.id)).rejects.toMatchObject({ code: 'refused' });
    const { id } = await stage.run('echo up', { registry: login, image });
    await stage.untilPrinted(id, 'up');
  });

  it('never touches pods of another platform in the namespace', async () => {
    const other = ground.openEngine({ platform: `${ground.platform}-b` });
    try {
      const spec = await stage.run('echo up; exec sleep 1000');
      await stage.untilPrinted(spec.id, 'up');
      expect(await other.list()).toEqual([]);
      await other.stop(spec.id, 0);
      await other.remove(spec.id, 'remove');
      await other.create({ ...spec, generation: 5 });
      await other.remove(spec.id, 'remove');
      expect(await stage.engine.inspect(spec.id)).toMatchObject({
        ...{ generation: 1, state: 'running' },
      });
    } finally {
      await other.close();
    }
  });

  it.each(['expired', 'cut'] as const)('hears of changes after a watch that is %s', async (how) => {
    const { id } = await stage.run('echo up; exec sleep 1000');
    let heard = 0;
    const close = stage.engine.watch((changed) => {
      if (changed === id) heard++;
    });
    await until(() => heard > 0);
    api().breakWatches(how);
    const before = heard;
    await stage.engine.stop(id, 100);
    await until(() => heard > before);
    close();
  });

  it('gives a Pod the settings of its pod that the operator allows', async () => {
    const toleration = { key: 'spot', operator: 'Exists' as const };
    const templates = { tolerations: [toleration], labels: ['team'] };
    const engine = ground.openEngine({ settings: kubernetesSettings.parse({ templates }) });
    try {
      const kubernetes = { tolerations: [toleration], labels: { team: 'vision' } };
      const spec = stage.spec({ args: 'sh -c "exec sleep 1000"', kubernetes });
      await engine.create(spec);
      await engine.start(spec.id);
      const selector = `labelSelector=millrace.dev/pod=${spec.id},team=vision`;
      const path = `/api/v1/namespaces/${ground.namespace}/pods?${selector}`;
      const { items } = await ground.admin.list(path);
      expect(items).toMatchObject([
        { spec: { tolerations: expect.arrayContaining([expect.objectContaining(toleration)]) } },
      ]);
      const beyond = stage.spec({ kubernetes: { labels: { app: 'x' } } });
      await expect(engine.create(beyond)).rejects.toMatchObject({ code: 'refused' });
      expect(await engine.inspect(beyond.id)).toBeUndefined();
      await engine.remove(spec.id, 'remove');
    } finally {
      await engine.close();
    }
  });

  it('keeps the state of workers in claims of their endpoint', async () => {
    const settings = kubernetesSettings.parse({ workerStateGb: 1 });
    const engine = ground.openEngine({ settings });
    try {
      const spec = stage.spec({ stateVolume: { endpointId: 'ep_1', slot: 0, path: '/state' } });
      await engine.create(spec);
      expect(await engine.stateVolumes?.listEndpoints()).toEqual(['ep_1']);
      await engine.remove(spec.id, 'remove');
      await engine.stateVolumes?.remove('ep_1');
      expect(await engine.stateVolumes?.listEndpoints()).toEqual([]);
    } finally {
      await engine.close();
    }
  });
}
