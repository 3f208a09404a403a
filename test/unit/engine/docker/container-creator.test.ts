import { describe, expect, it } from 'vitest';
import {
  type Containment,
  DEFAULT_CONTAINMENT,
  describeContainment,
  limitGpuMemory,
} from '../../../../src/engine/containment.ts';
import {
  checkVendor,
  chooseMeans,
  describeRequest,
  hasGpus,
  pinVariables,
  requestGpus,
} from '../../../../src/engine/docker/container-creator.ts';
import { readRegistry } from '../../../../src/engine/docker/docker-client.ts';
import { readReach } from '../../../../src/engine/docker/networks.ts';
import type { ContainerSpec } from '../../../../src/engine/engine.ts';

function describeSpec(part: Partial<ContainerSpec>, disk: 'limited' | 'unlimited' = 'limited') {
  const spec: ContainerSpec = {
    ...{ id: 'pod_1', generation: 1, labels: {}, image: 'thing', args: '', handler: null, env: {} },
    ...{ ports: [], diskGb: 20, registry: null, mounts: [], gpus: [], limits: null, network: null },
    ...part,
  };
  const containment = DEFAULT_CONTAINMENT;
  const to = { platform: 'home', publishHost: '127.0.0.1', gpuMeans: 'nvidia' } as const;
  return describeRequest({ spec, disk, containment, gpuMemory: null, ...to });
}

describe('the request for a container', () => {
  it('runs the image’s own command without arguments', () => {
    expect(describeSpec({ args: ' ' })).not.toHaveProperty('Cmd');
    expect(describeSpec({ args: 'serve "a b"' })).toMatchObject({ Cmd: ['serve', 'a b'] });
  });

  it('limits resources to its spec, without swap', () => {
    const { HostConfig } = describeSpec({ limits: { vcpus: 1.5, memoryGb: 0.5 } });
    const memory = 536_870_912;
    expect(HostConfig).toMatchObject({ NanoCpus: 1.5e9, Memory: memory, MemorySwap: memory });
    expect(describeSpec({}).HostConfig).not.toHaveProperty('Memory');
  });

  it('limits the disk if the engine can', () => {
    expect(describeSpec({}).HostConfig).toMatchObject({ StorageOpt: { size: '20G' } });
    expect(describeSpec({}, 'unlimited').HostConfig).not.toHaveProperty('StorageOpt');
  });

  it('has its own volumes, the operator’s volumes and the operator’s folders', () => {
    const { HostConfig } = describeSpec({
      mounts: [
        { kind: 'persistent', source: 'data', path: '/own' },
        { kind: 'network', source: 'models', path: '/models' },
        { kind: 'network', source: '/srv/shared', path: '/shared' },
      ],
    });
    expect(HostConfig?.Mounts).toEqual([
      { Type: 'volume', Source: 'home-pod_1-data', Target: '/own' },
      { Type: 'volume', Source: 'models', Target: '/models' },
      { Type: 'bind', Source: '/srv/shared', Target: '/shared' },
    ]);
  });

  it('has the state volume of its endpoint, separate from the pod’s', () => {
    const stateVolume = { endpointId: 'ep_1', slot: 2, path: '/state' };
    const { HostConfig } = describeSpec({ stateVolume });
    expect(HostConfig?.Mounts).toEqual([
      { Type: 'volume', Source: 'home-ep_1-state-2', Target: '/state' },
    ]);
  });

  it('publishes ports that the engine chooses, on one address', () => {
    const { ExposedPorts, HostConfig } = describeSpec({
      ports: [
        { private: 80, protocol: 'http' },
        { private: 53, protocol: 'udp' },
      ],
    });
    expect(ExposedPorts).toEqual({ '80/tcp': {}, '53/udp': {} });
    const anywhere = [{ HostIp: '127.0.0.1', HostPort: '' }];
    expect(HostConfig?.PortBindings).toEqual({ '80/tcp': anywhere, '53/udp': anywhere });
  });

  it('cannot have the labels of another pod', () => {
    const { Labels } = describeSpec({ labels: { 'millrace.pod': 'pod_2', color: 'green' } });
    expect(Labels).toMatchObject({ 'millrace.pod': 'pod_1', color: 'green' });
  });

  it('disables automatic restarts', () => {
    expect(describeSpec({}).HostConfig).not.toHaveProperty('RestartPolicy');
  });
});

describe('the permissions of a container', () => {
  const loose: Containment = {
    ...{ pids: 0, capabilities: 'engine', newPrivileges: 'allowed', memoryPerGpuGb: 0 },
  };

  it('are few by default', () => {
    expect(describeSpec({}).HostConfig).toMatchObject({
      ...{ PidsLimit: 4_096, CapDrop: ['ALL'], SecurityOpt: ['no-new-privileges'] },
      CapAdd: expect.arrayContaining(['SETUID', 'NET_BIND_SERVICE']),
    });
    const added = describeContainment(DEFAULT_CONTAINMENT).CapAdd ?? [];
    for (const name of ['NET_RAW', 'MKNOD', 'SETPCAP', 'SYS_ADMIN']) {
      expect(added).not.toContain(name);
    }
    expect(describeContainment(loose)).toEqual({});
  });

  it('limit the memory of a container with GPUs to its share of the machine', () => {
    const machine = { memoryBytes: 1_000, gpus: 8 };
    const limit = (gpus: string[], containment = DEFAULT_CONTAINMENT, of = machine) =>
      limitGpuMemory({ gpus }, containment, of);
    expect(limit([])).toBeNull();
    expect(limit(['a', 'b'])).toBe(225);
    expect(limit(['a'], DEFAULT_CONTAINMENT, { ...machine, gpus: 0 })).toBe(900);
    expect(limit(['a', 'b'], { ...loose, memoryPerGpuGb: 1 })).toBe(2 ** 31);
    expect(limit(['a'], loose)).toBeNull();
  });
});

const gpus = ['GPU-a', 'GPU-b'];

describe('a request for GPUs', () => {
  it('uses CDI if the engine supports it', () => {
    expect(chooseMeans({ CDISpecDirs: ['/etc/cdi', '/var/run/cdi'] })).toBe('cdi');
    expect(chooseMeans({ CDISpecDirs: [] })).toBe('nvidia');
    expect(chooseMeans({})).toBe('nvidia');
  });

  it('names each GPU', () => {
    expect(requestGpus(gpus, 'cdi')).toEqual([
      { Driver: 'cdi', DeviceIDs: ['nvidia.com/gpu=GPU-a', 'nvidia.com/gpu=GPU-b'] },
    ]);
    expect(requestGpus(gpus, 'nvidia')).toEqual([
      { Driver: 'nvidia', DeviceIDs: gpus, Capabilities: [['gpu']] },
    ]);
  });

  it('is empty without GPUs', () => {
    expect(requestGpus([], 'cdi')).toEqual([]);
    expect(requestGpus([], 'nvidia')).toEqual([]);
  });

  it('removes variables by which a pod could take other GPUs', () => {
    expect(pinVariables([], 'nvidia')).toEqual({ NVIDIA_VISIBLE_DEVICES: 'void' });
    expect(pinVariables(gpus, 'cdi')).toEqual({ NVIDIA_VISIBLE_DEVICES: 'void' });
    expect(pinVariables(gpus, 'nvidia')).toEqual({ NVIDIA_VISIBLE_DEVICES: 'GPU-a,GPU-b' });
  });

  it('is for NVIDIA GPUs only', () => {
    expect(() => checkVendor(['GPU-a', 'MIG-b'])).not.toThrow();
    expect(() => checkVendor(['GPU-a', 'amd-0'])).toThrow(/amd-0/);
  });
});

describe('a container', () => {
  it.each([
    ['as a request by UUID', { DeviceRequests: [{ DeviceIDs: gpus }] }],
    ['as a request by CDI', { DeviceRequests: requestGpus(gpus, 'cdi') }],
    ['as devices', { Devices: gpus.map((uuid) => ({ PathOnHost: `nvidia.com/gpu=${uuid}` })) }],
  ])('requests its GPUs %s', (_how, given) => {
    expect(hasGpus(given, gpus)).toBe(true);
  });

  it('does not have its GPUs if one is missing', () => {
    expect(hasGpus({ DeviceRequests: [{ DeviceIDs: ['GPU-a'] }] }, gpus)).toBe(false);
    expect(hasGpus({ DeviceRequests: null, Devices: null }, gpus)).toBe(false);
    expect(hasGpus({}, gpus)).toBe(false);
  });

  it('needs no GPU if it requests none', () => {
    expect(hasGpus({}, [])).toBe(true);
  });
});

describe('the registry of an image', () => {
  it.each([
    ['busybox', 'docker.io'],
    ['busybox:1', 'docker.io'],
    ['ada/thing', 'docker.io'],
    ['docker.io/ada/thing', 'docker.io'],
    ['index.docker.io/ada/thing', 'docker.io'],
    ['ghcr.io/ada/thing:1@sha256:00', 'ghcr.io'],
    ['localhost/thing', 'localhost'],
    ['host:5000/thing', 'host:5000'],
    ['evil.example/ghcr.io/thing', 'evil.example'],
  ])('of %s is %s', (image, registry) => {
    expect(readRegistry(image)).toBe(registry);
  });
});

describe('the networks', () => {
  const bridge = { IPAM: { Config: [{ Gateway: 'fd00::1' }, { Gateway: '172.17.0.1' }] } };
  const linux = { OperatingSystem: 'Debian GNU/Linux 12 (bookworm)' };

  it.each([
    ['of Docker', { info: linux, version: {}, bridge }, '172.17.0.1', 'gateway'],
    [
      'of Docker Desktop',
      { info: { OperatingSystem: 'Docker Desktop' }, version: {}, bridge },
      '172.17.0.1',
      'loopback',
    ],
    [
      'of podman',
      { info: {}, version: { Components: [{ Name: 'Podman Engine' }] }, bridge },
      '172.17.0.1',
      'none',
    ],
    [
      'of Docker since its first start',
      { info: linux, version: {}, bridge: { IPAM: { Config: [{ Subnet: '172.17.0.0/16' }] } } },
      '172.17.0.1',
      'gateway',
    ],
    ['without a default network', { info: linux, version: {}, bridge: undefined }, null, 'none'],
    [
      'whose network names no gateway',
      { info: linux, version: {}, bridge: { IPAM: { Config: null } } },
      null,
      'none',
    ],
  ] as const)('an engine %s', (_what, given, gateway, hostName) => {
    expect(readReach(given)).toEqual({ gateway, hostName });
  });
});
