// Manages pods and the workers of endpoints while it is open: the reconciler, the fleet, and what workers need besides
// their containers. One process at a time may have it open.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Balancer } from '../../control/balancing/balancer.ts';
import type { Billing } from '../../control/billing/billing.ts';
import { GpuUse, keepBilling, type NoticeSender } from '../../control/billing/billing-keeper.ts';
import type { Budgets } from '../../control/billing/budgets.ts';
import type { Catalog, UserCatalog } from '../../control/endpoints/catalog.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Templates } from '../../control/endpoints/templates.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { Unreachable } from '../../control/pods/pod-lifecycle.ts';
import type { PodState, Pods } from '../../control/pods/pods.ts';
import { Reconciler } from '../../control/pods/reconciler.ts';
import type { Decisions } from '../../control/scaling/decisions.ts';
import { Fleet } from '../../control/scaling/fleet.ts';
import type { WorkView } from '../../control/scaling/work-view.ts';
import { type GoneWorker, WorkerPods } from '../../control/scaling/worker-pods.ts';
import type { Engine } from '../../engine/engine.ts';
import { OWNER, type Store } from '../../store/store.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';

/** What workers in pods need from the machine that they run on, and from the queue of their endpoint. */
export interface WorkerHost {
  /** URL at which the pod's worker reaches the platform. */
  urlOf: (pod: PodState) => string;
  /** The same, if the machine of the pod has told it. Default: `urlOf`. */
  certainUrlOf?: (pod: PodState) => string | undefined;
  /** Folder for undelivered outcomes. Default: none. */
  stateDirOf?: (endpointId: string, pod: PodState) => Promise<string>;
  /** Releases the leases of a worker whose container is gone. */
  endWorker: (gone: GoneWorker) => Promise<void>;
  /** Removes state that no worker needs. Never rejects. */
  tidy: () => Promise<void>;
  /** Workers that the queue knows. */
  listWorkers: () => readonly { endpointId: string; podId: string | null }[];
  /** Load and workers of endpoints with a queue. */
  view: WorkView;
  /** Calls the listener with each endpoint that gets a ready job. @returns the function that stops it */
  onWork: (listener: (endpointId: string) => void) => () => void;
  /** Why nothing can be known of a pod's container now. Default: every container can be inspected. */
  findUnreachable?: (pod: PodState) => Unreachable | undefined;
  /** A worker whose node has been gone for this long is replaced, ms. Default: never. */
  replaceAfterMs?: number | undefined;
  /** Lease of jobs, ms. */
  leaseMs: number;
}

export interface PodControlOptions {
  catalog: Catalog;
  userCatalog: UserCatalog;
  endpoints: Endpoints;
  templates: Templates;
  decisions: Decisions;
  pods: Pods;
  billing: Billing;
  budgets: Budgets;
  /** Of budgets. */
  store: Store;
  /** Undefined: notices of budgets are not posted. */
  noticeSender: NoticeSender | undefined;
  balancer: Balancer;
  engine: Engine;
  keys: Keys;
  host: WorkerHost;
  clock: Clock;
  log: Log;
}

/**
 * In a cluster, nobody else gets the GPUs of a container before it has ended. With Docker, a container that says that it has
 * left its GPUs can still use them, without paying: only the operator's own are believed.
 */
function findParkObstacle({ kind }: Engine, userId: string): string | undefined {
  if (kind === 'process' || (kind === 'docker' && userId === OWNER)) return undefined;
  if (kind === 'docker') return "on Docker, only the operator's own workers are parked";
  return 'a cluster gives the GPU of a container to nobody else, so its workers are not parked';
}

export class PodControl {
  readonly #options: PodControlOptions;
  readonly #reconciler: Reconciler;
  readonly #workerPods: WorkerPods;
  readonly #fleet: Fleet;
  readonly #closers: (() => unknown)[];
  #isClosed = false;

  constructor(options: PodControlOptions) {
    const { balancer, catalog, clock, decisions, endpoints, engine, host } = options;
    const { keys, log, pods, templates, userCatalog } = options;
    const { findUnreachable, replaceAfterMs, stateDirOf } = host;
    this.#options = options;
    this.#workerPods = new WorkerPods({
      url: host.urlOf,
      certainUrl: host.certainUrlOf,
      listWorkers: host.listWorkers,
      keys,
      endpoints,
      pods,
      clock,
      log,
      ...(stateDirOf && { stateDirOf }),
      stateIn: engine.stateVolumes ? 'volumes' : 'folders',
      onGone: async (gone) => {
        await host.endWorker(gone);
        await host.tidy();
      },
    });
    const environmentOf = this.#workerPods.environmentOf.bind(this.#workerPods);
    const stateVolumeOf = this.#workerPods.stateVolumeOf.bind(this.#workerPods);
    const hasEndpoint = (id: string) => endpoints.find(id) !== undefined;
    this.#reconciler = new Reconciler({
      pods: pods.live,
      meter: pods.meter,
      engine,
      catalog: userCatalog,
      clock,
      log,
      environmentOf,
      stateVolumeOf,
      hasEndpoint,
      ...(findUnreachable && { findUnreachable }),
    });
    const views = { QUEUE: host.view, LOAD_BALANCER: balancer };
    const silentMs = 2 * host.leaseMs;
    const gpuUse = new GpuUse({ store: options.store, clock, log });
    this.#fleet = new Fleet({
      endpoints,
      pods,
      templates,
      decisions,
      views,
      gpuUse,
      silentMs,
      replaceAfterMs,
      catalog,
      clock,
      log,
      findParkObstacle: (userId) => findParkObstacle(engine, userId),
      hasOldUrl: this.#workerPods.hasOldUrl.bind(this.#workerPods),
    });
    this.#closers = [
      host.onWork((endpointId) => this.#fleet.wake(endpointId)),
      balancer.onLoad((endpointId) => this.#fleet.wake(endpointId)),
      () => this.#reconciler.close(),
      () => this.#workerPods.close(),
      () => this.#fleet.close(),
    ];
  }

  /** Takes over the pods and workers of an earlier run and manages them from now on. */
  async start(): Promise<void> {
    const steps = [
      () => this.#workerPods.start(),
      () => this.#reconciler.start(),
      // Budgets count what the reconciler has seen of running containers.
      () => this.#closers.push(keepBilling(this.#options)),
      () => this.#workerPods.noteEnded(),
      () => this.#options.host.tidy(),
      () => this.#fleet.start(),
    ];
    for (const step of steps) if (!this.#isClosed) await step();
  }

  scalingOf(endpointId: string): KnownScaling {
    return this.#fleet.scalingOf(endpointId);
  }

  /** Pods may have become reachable or unreachable. */
  noteMachines(): void {
    if (!this.#isClosed) this.#reconciler.noteMachines();
  }

  /** Pods and workers keep running. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const close of this.#closers.splice(0).reverse()) await close();
  }
}
