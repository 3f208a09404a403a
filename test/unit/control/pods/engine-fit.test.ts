// Requests that the engine cannot carry out: which parts, and why.
import { describe, expect, it, onTestFinished } from 'vitest';
import { checkStop, findMisfits } from '../../../../src/control/pods/engine-fit.ts';
import { DOCKER_CAPABILITIES } from '../../../../src/engine/docker/docker-engine.ts';
import type { EngineCapabilities } from '../../../../src/engine/engine.ts';
import { PodWorld } from '../../../support/containers/pod-world.ts';

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
