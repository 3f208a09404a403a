// What an engine tells of containers: translates its answers into the seam's view of a container and its use of resources,
// and reads its events. Engines with the same API differ in what they omit.
import { z } from 'zod';
import { type ChangeStream, readDocuments } from '../answers.ts';
import { type Container, type ContainerStats, type PublicPort, toShare } from '../engine.ts';
import { hasGpus, namePort } from './container-creator.ts';
import type { DockerClient } from './docker-client.ts';
import { type LabelledSpec, nameNetwork, PLATFORM_LABEL, POD_LABEL, readLabels } from './labels.ts';

const NANO = 1e9;

export const inspectAnswer = z.object({
  Id: z.string(),
  Config: z.object({ Labels: z.record(z.string(), z.string()).nullish() }),
  State: z.object({
    Status: z.string(),
    ExitCode: z.int(),
    OOMKilled: z.boolean().nullish(),
    StartedAt: z.string(),
    FinishedAt: z.string(),
    Health: z.object({ Status: z.string().nullish() }).nullish(),
  }),
  HostConfig: z.object({
    NanoCpus: z.number().nullish(),
    StorageOpt: z.record(z.string(), z.string()).nullish(),
    DeviceRequests: z.array(z.object({ DeviceIDs: z.array(z.string()).nullish() })).nullish(),
    Devices: z.array(z.object({ PathOnHost: z.string().optional() })).nullish(),
  }),
  NetworkSettings: z.object({
    Ports: z
      .record(z.string(), z.array(z.object({ HostIp: z.string(), HostPort: z.string() })).nullish())
      .nullish(),
    Networks: z
      .record(
        z.string(),
        z.object({ IPAddress: z.string().nullish(), NetworkID: z.string().nullish() }),
      )
      .nullish(),
  }),
});
export type InspectAnswer = z.infer<typeof inspectAnswer>;

/** A container, with details that only this engine needs. */
export interface InspectedContainer {
  container: Container;
  /** The engine's own name of the container; each generation has another one. */
  key: string;
  network: string | null;
  /** ID by which the container finds its network; null: by name. */
  networkId: string | null;
  /** Null without a limit. */
  vcpus: number | null;
  /** Whether it really got the GPUs of its spec. */
  hasItsGpus: boolean;
  /** Exit code of the last start, also of a failed one. */
  lastCode: number;
}

/** Undefined for a container that this platform has not created. */
export function viewContainer(
  answer: InspectAnswer,
  platform: string,
): InspectedContainer | undefined {
  const spec = readLabels(platform, answer.Config.Labels ?? {});
  if (!spec) return undefined;
  const { HostConfig, Id, NetworkSettings, State } = answer;
  const name = nameNetwork(platform, spec.network);
  const networkId = NetworkSettings.Networks?.[name]?.NetworkID;
  return {
    container: describeContainer(answer, spec, platform),
    key: Id,
    network: spec.network,
    // Before the first start, Docker reports no ID and podman reports the name.
    networkId: networkId && networkId !== name ? networkId : null,
    vcpus: HostConfig.NanoCpus ? HostConfig.NanoCpus / NANO : null,
    hasItsGpus: hasGpus(HostConfig, spec.gpus),
    lastCode: State.ExitCode,
  };
}

function describeContainer(
  { HostConfig, NetworkSettings, State }: InspectAnswer,
  spec: LabelledSpec,
  platform: string,
): Container {
  const { generation, gpus, id, labels } = spec;
  const state = readState(State.Status);
  const hasEnded = state === 'exited';
  const startedAt = state === 'created' ? null : readTime(State.StartedAt);
  const own = NetworkSettings.Networks?.[nameNetwork(platform, spec.network)];
  return {
    id,
    generation,
    labels,
    gpus,
    state,
    health: readHealth(State.Health?.Status),
    exitCode: hasEnded ? State.ExitCode : null,
    outOfMemory: hasEnded && State.ExitCode !== 0 && State.OOMKilled === true,
    hasDiskLimit: HostConfig.StorageOpt?.['size'] !== undefined,
    startedAt,
    endedAt: hasEnded ? readEnd(State.FinishedAt, startedAt) : null,
    ports: state === 'running' ? listPorts(spec, NetworkSettings.Ports ?? {}) : [],
    ip: (state === 'running' && spec.network !== null && own?.IPAddress) || null,
  };
}

/** Docker's states and podman's additional ones. */
function readState(status: string): Container['state'] {
  switch (status) {
    case 'created':
    case 'configured':
    case 'initialized':
      return 'created';
    case 'running':
    case 'paused':
    case 'restarting':
    case 'stopping':
      return 'running';
    default:
      return 'exited';
  }
}

function readHealth(status: string | null | undefined): Container['health'] {
  return status === 'starting' || status === 'healthy' || status === 'unhealthy' ? status : 'none';
}

/** Engines report the year 1 for never. */
function readTime(text: string): number | null {
  const at = Date.parse(text);
  return at > 0 ? at : null;
}

/** An engine may record the end before the start. */
function readEnd(text: string, startedAt: number | null): number | null {
  const at = readTime(text);
  return at === null ? null : Math.max(at, startedAt ?? at);
}

function listPorts(
  { ports }: LabelledSpec,
  bindings: NonNullable<InspectAnswer['NetworkSettings']['Ports']>,
): PublicPort[] {
  return ports.map((port) => {
    const [bound] = bindings[namePort(port)] ?? [];
    return {
      private: port.private,
      public: bound ? Number(bound.HostPort) : null,
      type: port.protocol,
      ip: bound ? reachable(bound.HostIp) : null,
    };
  });
}

/** A port published on all addresses is reachable on loopback. */
function reachable(ip: string): string {
  return ip === '' || ip === '0.0.0.0' || ip === '::' ? '127.0.0.1' : ip;
}

const NS_PER_MS = 1_000_000;

/** Engines omit unknown members: for a stopped container all of them. */
export const statsAnswer = z.object({
  read: z.string(),
  cpu_stats: z.object({
    cpu_usage: z.object({ total_usage: z.number() }),
    online_cpus: z.number().optional(),
  }),
  memory_stats: z.object({
    usage: z.number().optional(),
    limit: z.number().optional(),
    stats: z.record(z.string(), z.unknown()).nullish(),
  }),
});
export type StatsAnswer = z.infer<typeof statsAnswer>;

export interface UsageSample {
  /** Unix ms. */
  at: number;
  cpuNs: number;
}

export function readSample({ cpu_stats, read }: StatsAnswer): UsageSample {
  return { at: Date.parse(read), cpuNs: cpu_stats.cpu_usage.total_usage };
}

/**
 * The use of resources as shares of the container's limits. `before`: an earlier sample, or the start, when nothing was
 * used. `vcpus`: null without a limit.
 */
export function measureUsage(
  answer: StatsAnswer,
  before: UsageSample,
  vcpus: number | null,
): Omit<ContainerStats, 'gpus'> {
  const { cpu_stats, memory_stats } = answer;
  const { at, cpuNs } = readSample(answer);
  const ms = Math.max(1, at - before.at);
  const cpus = vcpus ?? cpu_stats.online_cpus ?? 1;
  return {
    cpu: toShare((cpuNs - before.cpuNs) / NS_PER_MS / ms / cpus),
    memory: toShare(countMemory(memory_stats) / (memory_stats.limit || Number.POSITIVE_INFINITY)),
  };
}

/** Excludes file caches that the kernel frees on demand. */
function countMemory({ stats, usage = 0 }: StatsAnswer['memory_stats']): number {
  // cgroup v1 prefixes the name with the whole tree.
  const cache = stats?.['total_inactive_file'] ?? stats?.['inactive_file'];
  return usage - (typeof cache === 'number' ? cache : 0);
}

/** Health checks run commands in the container; each one creates events. */
const NO_CHANGE = /^exec_/;

const event = z.object({
  Action: z.string().optional(),
  Actor: z.object({ Attributes: z.record(z.string(), z.string()).nullish() }).optional(),
});

interface EventWatch {
  client: DockerClient;
  platform: string;
  listIds(): Promise<string[]>;
}

/** Reports containers that may have changed. @throws Error if the engine does not answer */
export async function watchEvents(watch: EventWatch, stream: ChangeStream): Promise<void> {
  const { client, platform } = watch;
  const filters = { type: ['container'], label: [`${PLATFORM_LABEL}=${platform}`] };
  const query = { filters: JSON.stringify(filters) };
  const events = await client.open({ path: '/events', query }, stream.signal);
  stream.opened();
  // Only after the stream is open: later changes are then in the stream.
  const ids = await watch.listIds();
  for (const id of ids) stream.changed(id);
  for await (const document of readDocuments(events)) {
    const { Action = '', Actor } = event.parse(document);
    const id = Actor?.Attributes?.[POD_LABEL];
    if (id !== undefined && !NO_CHANGE.test(Action)) stream.changed(id);
  }
}
