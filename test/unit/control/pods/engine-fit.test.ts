// Requests that the engine cannot carry out, and the settings of a pod for Kubernetes.
import { describe, expect, it, onTestFinished } from 'vitest';
import { checkStop, findMisfits } from '../../../../src/control/pods/pod-spec.ts';
import { DOCKER_CAPABILITIES } from '../../../../src/engine/docker/docker-engine.ts';
import type { EngineCapabilities } from '../../../../src/engine/engine.ts';
import { OWNER } from '../../../../src/store/store.ts';
import { kubernetesLimits } from '../../../../src/wire/engine/kubernetes.ts';
import type { TemplateRecord } from '../../../../src/wire/resources/template.ts';
import { PodWorld } from '../../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../../support/no-names.ts';

const poor: EngineCapabilities = {
  ...DOCKER_CAPABILITIES,
  disk: { keptOverStop: false, limit: 'always' },
  globalNetworking: false,
  ports: { protocols: ['http', 'tcp'], reach: 'cluster' },
  mounts: { persistent: false, sizeLimit: 'never', network: ['name'] },
};
const engine = { kind: 'docker', capabilities: poor } as const;
const sourceOf = (id: string) => (id === 'gone' ? undefined : id);

describe('the parts that an engine lacks', () => {
  it('are named with their path and the reason', () => {
    const mounts = {
      persistent: { size: 1, path: '/a' },
      network: [{ volumeId: '/srv', path: '/b' }],
    };
    const spec = { globalNetworking: true, ports: ['80/http', '53/udp'], mounts };
    expect(findMisfits(spec, engine, sourceOf)).toEqual([
      'globalNetworking: not available on the engine docker: it gives pods no network of their own',
      'ports[1]: not available on the engine docker: its ports are http, tcp',
      'mounts.persistent: not available on the engine docker: it has no volumes that outlive a container',
      'mounts.network[0].volumeId: not available on the engine docker: it mounts no folders of a machine; declare the volume without a path',
    ]);
    const rich = { kind: 'docker', capabilities: DOCKER_CAPABILITIES } as const;
    expect(findMisfits(spec, rich, sourceOf)).toEqual([]);
  });

  it('do not include what the catalog judges', () => {
    const mounts = { network: [{ volumeId: 'gone', path: '/b' }] };
    expect(findMisfits({ globalNetworking: false, ports: [], mounts }, engine, sourceOf)).toEqual(
      [],
    );
  });
});

describe('a stop without a disk that stays', () => {
  it('is refused for a pod without mounts, and leaves it running', async () => {
    const world = await PodWorld.open();
    onTestFinished(() => world.close());
    const { id } = await world.create();
    await world.settle();
    const listActions = async () =>
      (await world.pods.show(await world.pods.find('owner', id))).actions;
    expect(await listActions()).toContain('stop');
    world.engine.capabilities.disk.keptOverStop = false;
    expect(await listActions()).toEqual(['restart', 'terminate']);
    await expect(world.pods.act('owner', id, 'stop')).rejects.toMatchObject({
      code: 'invalid',
      errors: [expect.stringMatching(/^stop: not available on the engine docker: .*mount/)],
    });
    expect(await world.pods.find('owner', id)).toMatchObject({ desired: 'running' });
    await world.pods.act('owner', id, 'terminate');
  });

  it('is allowed for workers, and for pods with a volume', async () => {
    const world = await PodWorld.open();
    onTestFinished(() => world.close());
    const { endpointId, spec } = await world.create();
    const withVolume = { ...spec, mounts: { persistent: { size: 1, path: '/a' } } };
    expect(() => checkStop({ endpointId, spec: withVolume }, engine)).not.toThrow();
    expect(() => checkStop({ endpointId: 'ep_1', spec }, engine)).not.toThrow();
    expect(() => checkStop({ endpointId, spec }, engine)).toThrow('stop: not available');
  });
});

describe('the Kubernetes settings of a pod', () => {
  const template: TemplateRecord = {
    ...{ id: 'tpl_1', name: 't', image: 'i', args: '', env: {}, disk: 7, ports: [] },
    ...{ registry: null, handler: null, version: 1, createdAt: '2026-01-01T00:00:00.000Z' },
    kubernetes: { nodeSelector: { pool: 'batch' } },
  };
  const templates = { ...NO_NAMES, find: () => template };
  const LIMITS = kubernetesLimits.parse({
    nodeSelector: { pool: ['batch', 'inference'] },
    labels: ['team'],
  });

  async function openWorld(limits: typeof LIMITS | null = LIMITS) {
    const world = await PodWorld.open({ pods: { templates } });
    onTestFinished(() => world.close());
    world.engine.capabilities.kubernetes = limits;
    return world;
  }

  it('comes from the template, unless the pod has its own or none', async () => {
    const world = await openWorld();
    const made = await world.create({ template: 'tpl_1' });
    const own = await world.create({ template: 'tpl_1', kubernetes: { labels: { team: 'a' } } });
    const none = await world.create({ template: 'tpl_1', kubernetes: null });
    await world.settle();
    expect(world.host.get(made.id).spec.kubernetes).toEqual(template.kubernetes);
    expect(world.host.get(own.id).spec.kubernetes).toEqual({ labels: { team: 'a' } });
    expect(world.host.get(none.id).spec).not.toHaveProperty('kubernetes');
    const shown = await world.pods.show(await world.pods.find(OWNER, made.id));
    expect(shown.kubernetes).toEqual(template.kubernetes);
  });

  it('is refused beyond the limits, and on an engine without any', async () => {
    const world = await openWorld();
    await expect(
      world.create({ kubernetes: { nodeSelector: { pool: 'web' } } }),
    ).rejects.toMatchObject({
      ...{
        code: 'invalid',
        errors: [expect.stringMatching(/^kubernetes\.nodeSelector\.pool: "web"/)],
      },
    });
    const docker = await openWorld(null);
    await expect(docker.create({ template: 'tpl_1' })).rejects.toMatchObject({
      ...{
        code: 'invalid',
        errors: ['kubernetes: not available on the engine docker: leave it out'],
      },
    });
    await docker.create({ template: 'tpl_1', kubernetes: null });
  });

  it('changes with a new container, and null removes it', async () => {
    const world = await openWorld();
    const { id } = await world.create({ template: 'tpl_1' });
    await world.settle();
    const update = async (kubernetes: TemplateRecord['kubernetes'] | null) => {
      await world.pods.update(OWNER, id, { kubernetes: kubernetes ?? null });
      await world.settle();
      const { generation, kubernetes: set } = world.host.get(id).spec;
      return { generation, set };
    };
    const inference = { nodeSelector: { pool: 'inference' } };
    expect(await update(inference)).toEqual({ generation: 2, set: inference });
    expect(await update(inference)).toEqual({ generation: 2, set: inference });
    expect(await update(null)).toEqual({ generation: 3, set: undefined });
    await expect(update({ runtimeClass: 'gvisor' })).rejects.toMatchObject({ code: 'invalid' });
  });
});
