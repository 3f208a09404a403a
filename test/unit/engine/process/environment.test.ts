import { describe, expect, it } from 'vitest';
import { makeEnvironment } from '../../../../src/engine/process/environment.ts';
import type { Device } from '../../../../src/wire/link/worker-link.ts';

const run = '/c/1/run-1';
const folders = { disk: '/c/1/disk', temporary: '/c/1/disk/tmp', mount: undefined };
const spec = {
  id: 'pod_a',
  generation: 1,
  labels: {},
  image: 'none',
  args: '',
  handler: null,
  env: {},
  ports: [],
  diskGb: 1,
  registry: null,
  mounts: [],
  gpus: [],
  limits: null,
  network: null,
};

function device(uuid: string, index: number, kind: Device['kind'] = 'gpu'): Device {
  return { kind, index, uuid, name: 'pretended', memoryBytes: 1 };
}

const nvidia = [device('GPU-a', 0), device('GPU-b', 1), device('GPU-c', 2)];

function pin(gpus: string[], devices: Device[]): Record<string, string> {
  const made = makeEnvironment({ run, spec: { ...spec, gpus }, folders, ports: [], devices });
  const names = /^(?:CUDA|NVIDIA|ROCR|HIP|ZE)_/;
  return Object.fromEntries(Object.entries(made).filter(([name]) => names.test(name)));
}

describe('the environment of a container', () => {
  it('contains PATH, its own folders and a language', () => {
    expect(makeEnvironment({ run, spec, folders, ports: [], devices: [] })).toEqual({
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: '/c/1/disk',
      TMPDIR: '/c/1/disk/tmp',
      LANG: 'C.UTF-8',
      MILLRACE_RUN: run,
    });
  });

  it('is overridden by the spec, except for ports and GPUs', () => {
    const env = { PATH: '/opt', A: 'b', PORT: '1', CUDA_VISIBLE_DEVICES: 'all' };
    const ports = [{ private: 80, public: 4_000, type: 'http' as const, ip: '127.0.0.1' }];
    const made = makeEnvironment({ run, spec: { ...spec, env }, folders, ports, devices: nvidia });
    expect(made).toMatchObject({ PATH: '/opt', A: 'b', PORT: '4000', CUDA_VISIBLE_DEVICES: '-1' });
  });

  it('has the operator’s defaults, which the spec overrides', () => {
    const defaults = { LANG: 'de', A: 'default', B: 'default' };
    const options = { run, spec: { ...spec, env: { A: 'b' } }, folders, ports: [], devices: [] };
    expect(makeEnvironment({ ...options, defaults })).toMatchObject({
      ...{ LANG: 'de', A: 'b', B: 'default' },
    });
  });

  it('names the port of each private port, and the first as PORT', () => {
    const ports = [9_000, 8_000].map((own, place) => ({
      private: own,
      public: 4_000 + place,
      type: 'tcp' as const,
      ip: '127.0.0.1',
    }));
    expect(makeEnvironment({ run, spec, folders, ports, devices: [] })).toMatchObject({
      PORT: '4000',
      MILLRACE_PORT_9000: '4000',
      MILLRACE_PORT_8000: '4001',
    });
  });

  it('names the folder of its mount', () => {
    const options = {
      run,
      spec,
      folders: { ...folders, mount: '/v/data' },
      ports: [],
      devices: [],
    };
    expect(makeEnvironment(options)).toMatchObject({ MILLRACE_MOUNT: '/v/data' });
  });
});

describe('GPUs', () => {
  it('of NVIDIA are shown by their UUIDs, in the order given', () => {
    expect(pin(['GPU-c', 'GPU-a'], nvidia)).toEqual({
      CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
      CUDA_VISIBLE_DEVICES: 'GPU-c,GPU-a',
      NVIDIA_VISIBLE_DEVICES: 'GPU-c,GPU-a',
      HIP_VISIBLE_DEVICES: '-1',
    });
  });

  it('are all hidden from a container without any', () => {
    expect(pin([], nvidia)).toEqual({
      CUDA_VISIBLE_DEVICES: '-1',
      NVIDIA_VISIBLE_DEVICES: 'void',
      HIP_VISIBLE_DEVICES: '-1',
    });
  });

  it('of AMD are shown by their indices, without a conflicting CUDA variable', () => {
    const amd = [device('amd-x', 0), device('amd-y', 1)];
    expect(pin(['amd-y'], amd)).toEqual({ ROCR_VISIBLE_DEVICES: '1', HIP_VISIBLE_DEVICES: '0' });
  });

  it('of Intel are shown by their indices', () => {
    expect(pin(['intel-x'], [device('intel-x', 3)])).toMatchObject({
      ZE_AFFINITY_MASK: '3',
      CUDA_VISIBLE_DEVICES: '-1',
    });
  });

  it('are not mentioned on a machine without GPUs', () => {
    expect(pin([], [device('cpu', 0, 'cpu')])).toEqual({});
  });
});
