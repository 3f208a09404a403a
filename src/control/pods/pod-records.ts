// What users see of their pods: the record, made of stored state, container and use of resources; and the list,
// terminated ones included.
import { type Clock, sleep } from '../../base/clock.ts';
import { nameInternalHost } from '../../base/net/internal-host.ts';
import type { Container, ContainerStats, Engine } from '../../engine/engine.ts';
import type { Store, StoredResource } from '../../store/store.ts';
import type { PodRecord, PodRuntime, PodStatus } from '../../wire/resources/pod.ts';
import { type PageBounds, PageCutter } from '../user-resources.ts';
import type { LivePods } from './live-pods.ts';
import { isParked, listActions } from './pod-lifecycle.ts';
import { canStop, type EngineTraits } from './pod-spec.ts';
import type { PodState } from './pod-state.ts';

/** Statuses without held resources. */
const FREE_OF_CHARGE: readonly PodStatus[] = ['EXITED', 'ERROR', 'TERMINATED'];

interface PodSight {
  pod: PodState;
  engine: Pick<EngineTraits, 'capabilities'>;
  /** Its container, if observed. */
  seen: Container | undefined;
  /** Its use of resources, if known. */
  stats: ContainerStats | undefined;
  /** USD per hour while it runs. */
  price: number;
  now: number;
}

export function describePod(sight: PodSight): PodRecord {
  const { engine, pod, price, seen } = sight;
  const { spec, status } = pod;
  const { args, cloud, cpu, dataCenterId, disk, env, gpu, image, kubernetes } = spec;
  const { locked, mounts, name, ports, registry, template } = spec;
  const actions = listActions(pod).filter((action) => action !== 'stop' || canStop(pod, engine));
  return {
    id: pod.id,
    name,
    status,
    actions,
    image,
    args,
    disk,
    ports,
    env,
    registry,
    mounts,
    ...(kubernetes && { kubernetes }),
    ...(gpu && { gpu }),
    ...(cpu && { cpu }),
    cloud,
    dataCenterId,
    template,
    cost: FREE_OF_CHARGE.includes(status) || isWaitingForGpus(pod) ? 0 : price,
    locked,
    globalNetworking: describeNetworking(pod, seen),
    runtime: status === 'RUNNING' && !pod.unreachable ? describeRuntime(sight) : null,
    createdAt: new Date(pod.createdAt).toISOString(),
    startedAt: pod.startedAt === null ? null : new Date(pod.startedAt).toISOString(),
    endpointId: pod.endpointId,
    node: pod.node ?? null,
    ...(pod.parked && isParked(pod) && { parked: describeParking(pod.parked) }),
    ...(pod.timeline && {
      timeline: pod.timeline.map(({ at, ...event }) => ({
        at: new Date(at).toISOString(),
        ...event,
      })),
    }),
    reason: describeReason(pod),
  };
}

function describeParking({ bytes, since }: NonNullable<PodState['parked']>) {
  return { since: new Date(since).toISOString(), bytes };
}

function describeReason({ gpus, parked, reason, spare, unreachable }: PodState): string | null {
  const isParked = parked && gpus.length === 0;
  const why = isParked
    ? 'its worker is parked: its GPU is free for others'
    : spare && 'it starts as a spare worker: it is parked when its setup is done';
  if (!unreachable) return reason ?? why ?? null;
  return `${unreachable.why} since ${new Date(unreachable.since).toISOString()}`;
}

function isWaitingForGpus({ gpus, spec }: PodState): boolean {
  return spec.gpu !== undefined && gpus.length === 0;
}

function describeNetworking(
  { id, spec }: PodState,
  seen: Container | undefined,
): PodRecord['globalNetworking'] {
  const ip = spec.globalNetworking ? seen?.ip : null;
  return ip ? { enabled: true, ip, internalDns: nameInternalHost(id) } : { enabled: false };
}

function describeRuntime({ now, pod, seen, stats }: PodSight): PodRuntime {
  const { startedAt } = pod;
  return {
    ...(startedAt !== null && { uptime: Math.max(0, Math.floor((now - startedAt) / 1_000)) }),
    ...(stats && {
      gpus: stats.gpus.map(({ memoryUtil, util }) => ({
        util: toPercent(util),
        memoryUtil: toPercent(memoryUtil),
      })),
      cpu: { util: toPercent(stats.cpu) },
      memory: { util: toPercent(stats.memory) },
    }),
    ...(seen && { ports: seen.ports.map((port) => ({ ...port })) }),
  };
}

function toPercent(share: number): number {
  return Math.round(Math.min(100, Math.max(0, share)));
}

/** Records read from the store in one operation. */
const READ_AT_ONCE = 50;

export interface PodListing extends PageBounds {
  userId: string;
  /** Only pods with a smaller position: newest first. */
  before?: number | undefined;
}

interface PodSources {
  store: Store;
  /** Pods in memory, with their current state. */
  live: LivePods;
}

export async function listPods(
  { before, userId, ...bounds }: PodListing,
  { live, store }: PodSources,
): Promise<{ pods: PodState[]; next?: number }> {
  const cutter = new PageCutter(bounds);
  const pods: PodState[] = [];
  let next = before;
  for await (const resource of listStored(store, userId, before)) {
    const pod = live.get(resource.id) ?? live.read(resource);
    if (!cutter.take(pod)) return next === undefined ? { pods } : { pods, next };
    pods.push(pod);
    next = resource.position;
  }
  return { pods };
}

/** Newest first, a few at a time, because records can be large. */
async function* listStored(
  store: Store,
  userId: string,
  before: number | undefined,
): AsyncGenerator<StoredResource> {
  let last = before;
  do {
    const wanted = { kind: 'pod', userId, before: last, limit: READ_AT_ONCE } as const;
    const stored = await store.read((tx) => tx.resources(wanted));
    yield* stored;
    last = stored.length < READ_AT_ONCE ? undefined : stored.at(-1)?.position;
  } while (last !== undefined);
}

/** How long an answer is reused without another question, ms. */
const FRESH_MS = 2_000;
/** How long an answer stands in for one that is late, ms. */
const KEPT_MS = 30_000;
/** Longest wait, ms: a record with older data, or without them, is better than a late one. */
const PATIENCE_MS = 100;
const MAX_AT_ONCE = 8;

interface StatsSample {
  /** When the run of the container began. */
  startedAt: number | null;
  askedAt: number;
  /** Never rejects. */
  answer: Promise<ContainerStats | undefined>;
  isAnswered: boolean;
  /** The last answer, and when it came. */
  known: ContainerStats | undefined;
  knownAt: number;
}

export interface PodStatsOptions {
  engine: Engine;
  clock: Clock;
}

/** Reads the use of resources by containers from the engine, on demand and cached. */
export class PodStats {
  readonly #options: PodStatsOptions;
  readonly #samples = new Map<string, StatsSample>();
  #asking = 0;

  constructor(options: PodStatsOptions) {
    this.#options = options;
  }

  /**
   * The last known ones if the engine does not answer at once; its answer is then kept for the next call. Undefined if the
   * container does not run. Those of an earlier run do not count.
   */
  async read(id: string, startedAt: number | null): Promise<ContainerStats | undefined> {
    const sample = this.#sample(id, startedAt);
    if (!sample) return undefined;
    if (sample.isAnswered) return sample.known;
    const answered = new AbortController();
    const late = sleep(this.#options.clock, PATIENCE_MS, answered.signal);
    try {
      await Promise.race([sample.answer, late]);
      return this.#options.clock.now() - sample.knownAt < KEPT_MS ? sample.known : undefined;
    } finally {
      answered.abort();
    }
  }

  #sample(id: string, startedAt: number | null): StatsSample | undefined {
    const now = this.#options.clock.now();
    for (const [name, { askedAt, isAnswered }] of this.#samples) {
      if (isAnswered && now - askedAt >= KEPT_MS) this.#samples.delete(name);
    }
    const found = this.#samples.get(id);
    const last = found?.startedAt === startedAt ? found : undefined;
    if (last && (!last.isAnswered || now - last.askedAt < FRESH_MS)) return last;
    if (this.#asking >= MAX_AT_ONCE) return last;
    const answer = this.#ask(id);
    const { known, knownAt = now } = last ?? {};
    const sample: StatsSample = {
      startedAt,
      askedAt: now,
      answer,
      isAnswered: false,
      known,
      knownAt,
    };
    this.#samples.set(id, sample);
    void answer.then((known) => {
      sample.known = known;
      sample.knownAt = this.#options.clock.now();
      sample.isAnswered = true;
    });
    return sample;
  }

  async #ask(id: string): Promise<ContainerStats | undefined> {
    this.#asking++;
    try {
      return await this.#options.engine.stats(id);
    } catch {
      // The reconciler detects and reports an engine that does not respond.
      return undefined;
    } finally {
      this.#asking--;
    }
  }
}
