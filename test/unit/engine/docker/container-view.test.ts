import { describe, expect, it } from 'vitest';
import {
  type InspectAnswer,
  measureUsage,
  type StatsAnswer,
  viewContainer,
} from '../../../../src/engine/docker/container-view.ts';
import { writeLabels } from '../../../../src/engine/docker/labels.ts';
import type { ContainerSpec } from '../../../../src/engine/engine.ts';

const NEVER = '0001-01-01T00:00:00Z';

const spec: ContainerSpec = {
  ...{ id: 'pod_1', generation: 2, labels: { color: 'green' }, image: 'thing', args: '' },
  ...{ handler: null, env: {}, diskGb: 1, registry: null, mounts: [], gpus: [], limits: null },
  ports: [
    { private: 80, protocol: 'http' },
    { private: 53, protocol: 'udp' },
  ],
  network: 'user-1',
};

interface Parts {
  labels?: Record<string, string>;
  state?: Partial<InspectAnswer['State']>;
  network?: Partial<InspectAnswer['NetworkSettings']>;
  storage?: Record<string, string> | null;
}

function answer({ labels, network, state, storage }: Parts = {}): InspectAnswer {
  return {
    Id: 'abc',
    Config: { Labels: labels ?? { ...writeLabels('home', spec), shape: 'of the image' } },
    State: {
      ...{ Status: 'running', ExitCode: 0, OOMKilled: false, Health: null },
      ...{ StartedAt: '2026-01-01T00:00:00.5Z', FinishedAt: NEVER },
      ...state,
    },
    HostConfig: { NanoCpus: 0, DeviceRequests: null, Devices: null, StorageOpt: storage },
    NetworkSettings: { Ports: {}, Networks: {}, ...network },
  };
}

const view = (parts?: Parts) => viewContainer(answer(parts), 'home')?.container;

describe('the view of a container', () => {
  it('names its owner by its labels', () => {
    const { generation, id, labels } = spec;
    expect(view()).toMatchObject({ id, generation, labels });
    expect(view()?.labels).toEqual(labels);
    expect(viewContainer(answer(), 'elsewhere')).toBeUndefined();
    expect(view({ labels: {} })).toBeUndefined();
  });

  it('has a disk limit if it was created with one', () => {
    expect(view({ storage: { size: '20G' } })).toMatchObject({ hasDiskLimit: true });
    expect(view({ storage: null })).toMatchObject({ hasDiskLimit: false });
    expect(view()).toMatchObject({ hasDiskLimit: false });
  });

  it.each([
    ['created', 'created'],
    ['configured', 'created'],
    ['initialized', 'created'],
    ['running', 'running'],
    ['paused', 'running'],
    ['restarting', 'running'],
    ['stopping', 'running'],
    ['stopped', 'exited'],
    ['exited', 'exited'],
    ['removing', 'exited'],
    ['dead', 'exited'],
  ])('maps the state %s to %s', (Status, state) => {
    expect(view({ state: { Status } })).toMatchObject({ state });
  });

  it('has no end if it could not be started', () => {
    const state = { Status: 'created', ExitCode: 127, StartedAt: NEVER };
    expect(view({ state })).toMatchObject({ exitCode: null, startedAt: null, endedAt: null });
  });

  it('has no end of an earlier run', () => {
    const state = { ExitCode: 1, FinishedAt: '2025-01-01T00:00:00Z' };
    expect(view({ state })).toMatchObject({ exitCode: null, endedAt: null });
  });

  it('has no end before the start', () => {
    const state = { Status: 'exited', FinishedAt: '2026-01-01T00:00:00.499Z' };
    const startedAt = Date.parse('2026-01-01T00:00:00.5Z');
    expect(view({ state })).toMatchObject({ startedAt, endedAt: startedAt });
  });

  it('is out of memory only if that ended the container', () => {
    const exited = { Status: 'exited', OOMKilled: true };
    expect(view({ state: { ...exited, ExitCode: 137 } })).toMatchObject({ outOfMemory: true });
    expect(view({ state: { ...exited, ExitCode: 0 } })).toMatchObject({ outOfMemory: false });
  });

  it.each([
    ['healthy', 'healthy'],
    ['starting', 'starting'],
    ['unhealthy', 'unhealthy'],
    ['none', 'none'],
    ['', 'none'],
  ])('maps the health %s to %s', (Status, health) => {
    expect(view({ state: { Health: { Status } } })).toMatchObject({ health });
  });

  it('has the addresses of its ports', () => {
    const Ports = {
      '80/tcp': [{ HostIp: '0.0.0.0', HostPort: '32001' }],
      '53/udp': [{ HostIp: '10.0.0.5', HostPort: '32002' }],
    };
    const ports = [
      { private: 80, public: 32_001, type: 'http', ip: '127.0.0.1' },
      { private: 53, public: 32_002, type: 'udp', ip: '10.0.0.5' },
    ];
    expect(view({ network: { Ports } })).toMatchObject({ ports });
    expect(view({ network: { Ports }, state: { Status: 'exited' } })).toMatchObject({ ports: [] });
  });

  it('has a port without an address yet', () => {
    const [port] = view({ network: { Ports: { '80/tcp': null } } })?.ports ?? [];
    expect(port).toEqual({ private: 80, public: null, type: 'http', ip: null });
  });

  it('has its address in the network of its spec', () => {
    const Networks = { 'home-net-user-1': { IPAddress: '172.20.0.2' } };
    expect(view({ network: { Networks } })).toMatchObject({ ip: '172.20.0.2' });
    expect(view({ network: { Networks: { other: { IPAddress: '1.1.1.1' } } } })?.ip).toBeNull();
  });
});

const startedAt = Date.parse('2026-01-01T00:00:00Z');
const before = { at: startedAt, cpuNs: 1_000_000_000 };

function answerStats(fields: Partial<StatsAnswer['memory_stats']> = {}): StatsAnswer {
  return {
    read: '2026-01-01T00:00:02.000000001Z',
    cpu_stats: { cpu_usage: { total_usage: 2_000_000_000 }, online_cpus: 4 },
    memory_stats: { usage: 600, limit: 1_000, ...fields },
  };
}

describe('the usage of a container', () => {
  it('is relative to its limit: one second of CPU time in two, of two CPUs', () => {
    expect(measureUsage(answerStats(), before, 2).cpu).toBe(25);
  });

  it('is relative to the machine without a limit', () => {
    expect(measureUsage(answerStats(), before, null).cpu).toBe(12.5);
  });

  it('is never more than 100 %', () => {
    expect(measureUsage(answerStats(), { ...before, at: startedAt + 2_000 }, 1).cpu).toBe(100);
    expect(measureUsage(answerStats(), { ...before, cpuNs: 3_000_000_000 }, 1).cpu).toBe(0);
  });

  it.each([
    ['of cgroup v1', { total_inactive_file: 200, inactive_file: 1 }],
    ['of cgroup v2', { inactive_file: 200 }],
  ])('excludes the file cache from memory: %s', (_what, stats) => {
    expect(measureUsage(answerStats({ stats }), before, 1).memory).toBe(40);
  });

  it('includes memory without a memory limit', () => {
    expect(measureUsage(answerStats({ limit: 0 }), before, 1).memory).toBe(0);
  });
});
