// Who has GPUs and who waits for some, as the passes over the endpoints found it, and what is planned with that.
import type { Clock } from '../../base/clock.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type { GiveWay, ScaledWorker, ScalingFacts } from '../../wire/resources/scaling.ts';
import type { Pods } from '../pods/pods.ts';
import {
  type GpuPlan,
  type GpuPlanInput,
  planGpus,
  type Tenant,
  type TenantEndpoint,
} from './gpu-plan.ts';
import { GpuShares } from './gpu-shares.ts';
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
  deployment: Pick<EndpointDeployment, 'gpuTypeIds' | 'gpuWeight' | 'minResidenceMs' | 'yields'>;
  workersMin: number;
  hasWork: boolean;
  /** GPUs that its jobs lack. */
  lacking: readonly GpuWish[];
  workers: readonly (Pick<ScaledWorker, 'id' | 'state' | 'idleSince'> & {
    /** Since when it has been ready, or has drained, Unix ms. */
    since: number;
  })[];
  /** How long its last worker took to become ready, ms; 0: not known. */
  startMs: number;
}

/** What an endpoint's pass needs of the others. */
export interface GpuContention {
  /** Free GPUs that are kept for other endpoints, by type. */
  kept: ReadonlyMap<string, number>;
  giveWay: GiveWay[];
}

const NOTHING: GpuPlan = { moves: [], waits: [] };

export class GpuTenants {
  readonly #options: GpuTenantsOptions;
  readonly #facts = new Map<string, TenancyFacts>();
  /** Since when an endpoint has waited for a GPU, Unix ms. */
  readonly #waitsSince = new Map<string, number>();
  readonly #shares = new GpuShares();
  #last = NOTHING;

  constructor(options: GpuTenantsOptions) {
    this.#options = options;
  }

  note(endpointId: string, facts: TenancyFacts): void {
    const before = this.#facts.get(endpointId);
    this.#facts.set(endpointId, facts);
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
  }

  plan(): GpuPlan {
    this.#last = this.#waitsSince.size === 0 ? NOTHING : planGpus(this.#describe());
    return this.#last;
  }

  contentionOf(endpointId: string): GpuContention {
    const { moves, waits } = this.plan();
    const kept = new Map<string, number>();
    for (const { granted } of waits.filter((wait) => wait.endpointId !== endpointId)) {
      for (const type of granted) kept.set(type, (kept.get(type) ?? 0) + 1);
    }
    const giveWay = moves.flatMap((move) => {
      if (move.endpointId !== endpointId || move.kind !== 'drain') return [];
      const { isTurnOver, podId: worker, since, to } = move;
      return [{ worker, to: this.#nameFor(endpointId, to), since, isTurnOver }];
    });
    return { kept, giveWay };
  }

  /** Who holds the GPU for which the endpoint waits, by the last plan. */
  holderOf(endpointId: string): ScalingFacts['holder'] {
    const holder = this.#last.waits.find((wait) => wait.endpointId === endpointId)?.holder;
    if (!holder) return undefined;
    const { state, until } = holder;
    return { endpoint: this.#nameFor(endpointId, holder.endpointId), until, state };
  }

  /** Null: another user owns it. */
  #nameFor(endpointId: string, otherId: string): string | null {
    const other = this.#facts.get(otherId);
    return other && other.userId === this.#facts.get(endpointId)?.userId ? other.name : null;
  }

  #describe(): GpuPlanInput {
    const used = this.#countShares();
    const now = this.#options.clock.now();
    const waiters = [...this.#waitsSince].flatMap(([endpointId, since]) =>
      (this.#facts.get(endpointId)?.lacking ?? []).map((wish) => ({ endpointId, since, ...wish })),
    );
    const types = new Set(waiters.flatMap(({ gpuTypes }) => gpuTypes));
    const free = this.#options.listFree([...types]);
    return {
      now,
      free: [...free].map(([gpuType, gpus]) => ({ gpuType, gpus })),
      endpoints: [...this.#facts].map(([id, facts]) => describe(id, facts, used.get(id) ?? 0)),
      tenants: this.#listTenants(),
      waiters,
      memory: [],
    };
  }

  #listTenants(): Tenant[] {
    return this.#options.pods.all().flatMap((pod): Tenant[] => {
      const { desired, endpointId, gpus, id, spec, unreachable } = pod;
      if (endpointId === null || gpus.length === 0 || !spec.gpu || unreachable) return [];
      const worker = this.#facts.get(endpointId)?.workers.find((each) => each.id === id);
      const isLeaving = desired !== 'running' || worker?.state === 'draining';
      const isReady = worker?.state === 'ready';
      return [
        {
          podId: id,
          endpointId,
          node: pod.node ?? null,
          gpuType: spec.gpu.id,
          gpus,
          state: isLeaving ? 'leaving' : isReady ? 'resident' : 'starting',
          since: worker?.since ?? pod.createdAt,
          idleSince: worker?.idleSince ?? null,
          canPark: false,
          bytes: 0,
        },
      ];
    });
  }

  #countShares(): ReadonlyMap<string, number> {
    const gpus = new Map<string, number>();
    for (const pod of this.#options.pods.all()) {
      const { endpointId } = pod;
      if (endpointId !== null && pod.gpus.length > 0) {
        gpus.set(endpointId, (gpus.get(endpointId) ?? 0) + pod.gpus.length);
      }
    }
    const active = new Set([...gpus.keys(), ...this.#waitsSince.keys()]);
    return this.#shares.count(
      this.#options.clock.now(),
      [...active].map((id) => {
        const weight = this.#facts.get(id)?.deployment.gpuWeight ?? 1;
        return { id, weight, gpus: gpus.get(id) ?? 0 };
      }),
    );
  }
}

function countAlive(facts: TenancyFacts | undefined): number {
  return (facts?.workers ?? []).filter(({ state }) => state !== 'draining').length;
}

function describe(
  id: string,
  { deployment, hasWork, startMs, workersMin }: TenancyFacts,
  usedMs: number,
): TenantEndpoint {
  const { gpuWeight: weight, minResidenceMs, yields } = deployment;
  const kept = yields ? 0 : workersMin;
  return { id, weight, minResidenceMs, kept, hasWork, usedMs, startMs, wakeMs: 0, parkMs: 0 };
}
