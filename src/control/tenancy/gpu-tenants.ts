// Collects which endpoints have GPUs and which wait for some, as the passes over the endpoints find it, and plans with it.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type {
  GiveWay,
  Preemption,
  ScaledWorker,
  ScalingFacts,
} from '../../wire/resources/scaling.ts';
import { isParked } from '../pods/pod-lifecycle.ts';
import type { PodState, Pods } from '../pods/pods.ts';
import type { SeenWorker, WorkLoad } from '../scaling/work-view.ts';
import {
  type GpuPlan,
  type GpuPlanInput,
  planGpus,
  type Tenant,
  type TenantEndpoint,
} from './gpu-plan.ts';
import { GpuShares, type GpuUse } from './gpu-shares.ts';
import type { GpuWish } from './gpu-wishes.ts';

export interface GpuTenantsOptions {
  pods: Pick<Pods, 'all'>;
  /** UUIDs of the free GPUs of the types. */
  listFree: (gpuTypes: readonly string[]) => ReadonlyMap<string, readonly string[]>;
  clock: Clock;
}

/** What a pass over an endpoint found. */
export interface TenancyFacts {
  userId: string;
  name: string;
  deployment: Pick<
    EndpointDeployment,
    | 'gpuWeight'
    | 'maxSuspendedSeconds'
    | 'maxSuspensions'
    | 'minResidenceMs'
    | 'parkSeconds'
    | 'preemptible'
    | 'spareWorkers'
    | 'yields'
  >;
  workersMin: number;
  hasWork: boolean;
  /** Those of the waiting jobs that may suspend attempts of lower priority. */
  urgent?: WorkLoad['urgent'];
  /** GPUs that its jobs lack. */
  lacking: readonly GpuWish[];
  workers: readonly TenantWorker[];
  /** How long its last worker took to become ready, and the last parked one to wake, ms; 0: not known. */
  startMs: number;
  wakeMs: number;
  /** GPU memory of its last parked worker; 0: not known. */
  parkedBytes: number;
}

export interface TenantWorker extends Pick<ScaledWorker, 'canPark' | 'id' | 'state' | 'idleSince'> {
  /** Since when it has been ready, has been on the way from its GPUs, or has drained, Unix ms. */
  since: number;
  /** It may still say that it can be parked: until then it does not give way. */
  isNew: boolean;
  /** It is a spare one, and its models are not on their way to the host yet. */
  isSpare: boolean;
  /** Host memory for parked workers of its machine; 0: not known. */
  hostLimitBytes: number;
  /** What it last said of its attempts, and whether they can be suspended. */
  seen?: Pick<SeenParking, 'attempts' | 'canSuspend' | 'suspendedSince'> | undefined;
}

type SeenParking = NonNullable<SeenWorker['parking']>;

/** What an endpoint's pass needs of the others. */
export interface GpuContention {
  /** Free GPUs that are kept for other endpoints, by type. */
  kept: ReadonlyMap<string, number>;
  giveWay: GiveWay[];
  /** Its workers whose attempts are to be suspended, and those that are to go on. */
  preempted: Preemption[];
  resumed: string[];
  /** Its parked workers whose GPUs are free and kept for them. */
  wakeable: ReadonlySet<string>;
  /** Its parked workers that must end: others need the host's memory. */
  homeless: ReadonlySet<string>;
}

const NOTHING: GpuPlan = { moves: [], waits: [] };
/** A plan is good for so long while nothing changes but the time, ms. */
const PLAN_MS = 100;

export class GpuTenants {
  readonly #options: GpuTenantsOptions;
  readonly #facts = new Map<string, TenancyFacts>();
  /** Since when an endpoint has waited for a GPU, Unix ms. */
  readonly #waitsSince = new Map<string, number>();
  readonly #shares = new GpuShares();
  #last = NOTHING;
  /** While the last plan holds, unless something changes, Unix ms. */
  #holds = { from: 0, until: 0 };

  constructor(options: GpuTenantsOptions) {
    this.#options = options;
  }

  note(endpointId: string, facts: TenancyFacts): void {
    const before = this.#facts.get(endpointId);
    this.#facts.set(endpointId, facts);
    if (!isDeepStrictEqual(before, facts)) this.noteChange();
    if (facts.lacking.length === 0) this.#waitsSince.delete(endpointId);
    else if (!this.#waitsSince.has(endpointId) || countAlive(facts) > countAlive(before)) {
      this.#waitsSince.set(endpointId, this.#options.clock.now());
    }
    this.#countShares();
  }

  forget(endpointId: string): void {
    this.#facts.delete(endpointId);
    this.#waitsSince.delete(endpointId);
    this.#shares.forget(endpointId);
    this.noteChange();
  }

  /** A pod has changed: the last plan no longer holds. */
  noteChange(): void {
    this.#holds = { from: 0, until: 0 };
  }

  plan(): GpuPlan {
    const now = this.#options.clock.now();
    if (now >= this.#holds.from && now < this.#holds.until) return this.#last;
    const isQuiet = this.#waitsSince.size === 0 && !this.#options.pods.all().some(isParked);
    this.#last = isQuiet ? NOTHING : planGpus(this.#describe(now));
    const dues = this.#last.waits.flatMap(({ holder }) => holder?.until ?? []);
    const until = Math.min(now + PLAN_MS, ...dues.filter((due) => due > now));
    this.#holds = { from: now, until };
    return this.#last;
  }

  contentionOf(endpointId: string): GpuContention {
    const { moves, waits } = this.plan();
    const isOther = (each: { endpointId: string }) => each.endpointId !== endpointId;
    const waking = moves.filter(({ kind }) => kind === 'wake');
    const kept = new Map<string, number>();
    const resumed = moves.filter(({ kind }) => kind === 'resume');
    const types = [
      ...waits.filter(isOther).flatMap(({ granted }) => granted),
      // Also from new workers of its own.
      ...[...waking.filter(isOther), ...resumed].flatMap(({ podId }) => this.#typeOf(podId)),
    ];
    for (const type of types) kept.set(type, (kept.get(type) ?? 0) + 1);
    const own = moves.filter((move) => !isOther(move));
    const giveWay = own.flatMap((move) => {
      if (move.kind !== 'drain' && move.kind !== 'park') return [];
      const { isTurnOver, podId: worker, since, to } = move;
      return [{ worker, to: this.#nameFor(endpointId, to), since, isTurnOver }];
    });
    const preempted = own.flatMap((move) => {
      if (move.kind !== 'suspend') return [];
      const { podId: worker, priority, since, to } = move;
      return [{ worker, to: this.#nameFor(endpointId, to) ?? '', since, priority }];
    });
    const ending = own.filter(({ kind }) => kind === 'end');
    return {
      kept,
      giveWay,
      preempted,
      resumed: resumed.filter((move) => !isOther(move)).map(({ podId }) => podId),
      wakeable: idsOf(waking).union(this.#listWakeable(endpointId, kept)),
      homeless: idsOf(ending),
    };
  }

  /** Memory for one more parked worker, on the host that has most of it; Infinity if that is not known. */
  findHostBytes(): number {
    const pods = this.#options.pods.all();
    const left = this.#listMemory().map(({ bytes, node }) => {
      const own = pods.filter((pod) => (pod.node ?? null) === node);
      return own.reduce((rest, { parked }) => rest - (parked?.bytes ?? 0), bytes);
    });
    return left.length === 0 ? Number.POSITIVE_INFINITY : Math.max(...left);
  }

  /** As many as there are GPUs that are not kept for others. */
  #listWakeable(endpointId: string, kept: ReadonlyMap<string, number>): Set<string> {
    const { listFree, pods } = this.#options;
    const parked = pods
      .all()
      .filter((pod) => pod.endpointId === endpointId && isParked(pod) && !pod.unreachable);
    const free = listFree(parked.flatMap(({ spec }) => spec.gpu?.id ?? []));
    const wakeable = parked.filter(({ parked, spec }) => {
      const type = spec.gpu?.id ?? '';
      const open = free.get(type) ?? [];
      const isOpen = open.length > (kept.get(type) ?? 0);
      return isOpen && parked?.gpus.every((gpu) => open.includes(gpu));
    });
    return new Set(wakeable.map(({ id }) => id));
  }

  #typeOf(podId: string): string[] {
    const pod = this.#options.pods.all().find(({ id }) => id === podId);
    return pod?.spec.gpu ? [pod.spec.gpu.id] : [];
  }

  /** Who holds the GPU for which the endpoint waits, by the last plan. */
  holderOf(endpointId: string): ScalingFacts['holder'] {
    const wait = this.#last.waits.find((each) => each.endpointId === endpointId);
    if (!wait?.holder) return wait && this.#findPod(endpointId);
    const { state, until } = wait.holder;
    return { endpoint: this.#nameFor(endpointId, wait.holder.endpointId), until, state };
  }

  /** A pod of a user, which gives way to nobody. */
  #findPod(endpointId: string): ScalingFacts['holder'] {
    const facts = this.#facts.get(endpointId);
    const types = facts?.lacking.flatMap(({ gpuTypes }) => gpuTypes) ?? [];
    const held = this.#options.pods.all().filter(({ endpointId: owner, gpus, spec }) => {
      return owner === null && gpus.length > 0 && types.includes(spec.gpu?.id ?? '');
    });
    const pod = held.find(({ userId }) => userId === facts?.userId) ?? held[0];
    if (!pod) return undefined;
    const endpoint = pod.userId === facts?.userId ? pod.spec.name : null;
    return { endpoint, until: null, state: 'pod' };
  }

  /** Null: another user owns it. */
  #nameFor(endpointId: string, otherId: string): string | null {
    const other = this.#facts.get(otherId);
    return other && other.userId === this.#facts.get(endpointId)?.userId ? other.name : null;
  }

  #describe(now: number): GpuPlanInput {
    this.#countShares();
    const waiters = [...this.#waitsSince].flatMap(([endpointId, since]) =>
      (this.#facts.get(endpointId)?.lacking ?? []).map((wish) => ({
        ...{ endpointId, since, ...wish },
        urgent: wish.isPlaced ? 0 : this.#facts.get(endpointId)?.urgent?.waiting,
      })),
    );
    const tenants = this.#listTenants();
    const bound = tenants.filter(({ state }) => state === 'suspended');
    const types = new Set([
      ...waiters.flatMap(({ gpuTypes }) => gpuTypes),
      ...bound.map(({ gpuType }) => gpuType),
    ]);
    const free = this.#options.listFree([...types]);
    return {
      now,
      free: [...free].map(([gpuType, gpus]) => ({ gpuType, gpus })),
      endpoints: [...this.#facts].map(([id, facts]) =>
        describe(id, facts, this.#shares.ofEndpoint(facts.userId, id)),
      ),
      tenants,
      waiters,
      users: this.#shares.listUsers(),
      memory: this.#listMemory(),
    };
  }

  #listTenants(): Tenant[] {
    return this.#options.pods.all().flatMap((pod): Tenant[] => {
      const { endpointId, id, parked, spec, unreachable } = pod;
      const gpus = isParked(pod) ? (parked?.gpus ?? []) : pod.gpus;
      if (endpointId === null || gpus.length === 0 || !spec.gpu || unreachable) return [];
      const facts = this.#facts.get(endpointId);
      const worker = facts?.workers.find((each) => each.id === id);
      const state = stateOf(pod, worker);
      if (isParked(pod) && state === 'leaving') return [];
      return [
        {
          ...{ podId: id, endpointId, node: pod.node ?? null, gpuType: spec.gpu.id, gpus, state },
          since: isParked(pod) ? (parked?.since ?? 0) : (worker?.since ?? pod.createdAt),
          idleSince: worker?.idleSince ?? null,
          canPark: worker?.canPark ?? false,
          bytes: parked?.bytes ?? facts?.parkedBytes ?? 0,
          ...describeAttempts(worker, facts?.deployment),
        },
      ];
    });
  }

  /** What workers said of their machines. */
  #listMemory(): GpuPlanInput['memory'] {
    const nodes = new Map(this.#options.pods.all().map(({ id, node }) => [id, node ?? null]));
    const limits = new Map<string | null, number>();
    for (const { workers } of this.#facts.values()) {
      for (const { hostLimitBytes, id } of workers) {
        const node = nodes.get(id);
        if (node === undefined || hostLimitBytes === 0) continue;
        limits.set(node, Math.max(limits.get(node) ?? 0, hostLimitBytes));
      }
    }
    return [...limits].map(([node, bytes]) => ({ node, bytes }));
  }

  #countShares(): void {
    const weightOf = (id: string) => this.#facts.get(id)?.deployment.gpuWeight ?? 1;
    const having = this.#options.pods
      .all()
      .flatMap(({ endpointId, gpus, spec, userId }): GpuUse[] =>
        endpointId === null || gpus.length === 0 || !spec.gpu
          ? []
          : [
              {
                ...{ userId, endpointId, weight: weightOf(endpointId) },
                ...{ gpuType: spec.gpu.id, gpus: gpus.length },
              },
            ],
      );
    const waiting = [...this.#waitsSince.keys()].flatMap((endpointId): GpuUse[] => {
      const { lacking = [], userId = '' } = this.#facts.get(endpointId) ?? {};
      const weight = weightOf(endpointId);
      const types = lacking.flatMap(({ gpuTypes }) => gpuTypes);
      return types.map((gpuType) => ({ userId, endpointId, weight, gpuType, gpus: 0 }));
    });
    this.#shares.count(this.#options.clock.now(), [...having, ...waiting]);
  }
}

function stateOf(pod: PodState, worker: TenantWorker | undefined): Tenant['state'] {
  if (pod.desired !== 'running' || worker?.state === 'draining') return 'leaving';
  const isSuspended = worker?.state === 'suspended';
  if (isParked(pod)) return isSuspended ? 'suspended' : 'parked';
  if (pod.parked) return 'waking';
  if (isSuspended) return 'suspending';
  if (pod.spare && worker?.isSpare !== false) return 'spare';
  if (worker?.state === 'parked') return 'parking';
  return worker?.state === 'ready' && !worker.isNew ? 'resident' : 'starting';
}

function describeAttempts(
  worker: TenantWorker | undefined,
  deployment: TenancyFacts['deployment'] | undefined,
): Pick<Tenant, 'attempts' | 'canSuspend' | 'suspendedUntil'> {
  const { attempts, canSuspend, suspendedSince } = worker?.seen ?? {};
  if (!attempts || !deployment) return {};
  const leftMs = deployment.maxSuspendedSeconds * 1_000 - attempts.suspendedMs;
  const isLeft = attempts.suspensions < deployment.maxSuspensions && leftMs > 0;
  return {
    attempts,
    ...(deployment.preemptible && canSuspend && isLeft && { canSuspend }),
    ...(suspendedSince !== undefined && { suspendedUntil: suspendedSince + leftMs }),
  };
}

function idsOf(moves: readonly { podId: string }[]): Set<string> {
  return new Set(moves.map(({ podId }) => podId));
}

function countAlive(facts: TenancyFacts | undefined): number {
  const alive = (facts?.workers ?? []).filter(
    ({ state }) => state === 'starting' || state === 'ready',
  );
  return alive.length;
}

function describe(
  id: string,
  { deployment, hasWork, startMs, urgent, userId, wakeMs, workersMin }: TenancyFacts,
  usedMs: number,
): TenantEndpoint {
  const { gpuWeight: weight, minResidenceMs, parkSeconds, spareWorkers: spares } = deployment;
  const kept = deployment.yields ? 0 : workersMin;
  const parkMs = parkSeconds * 1_000;
  const times = { minResidenceMs, usedMs, startMs, wakeMs, parkMs };
  const urgency = { urgentPriority: urgent?.priority, isPreemptible: deployment.preemptible };
  return { id, userId, weight, kept, hasWork, spares, ...times, ...urgency };
}
