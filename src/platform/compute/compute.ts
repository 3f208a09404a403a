// Runs pods and the workers of endpoints on one engine. Without an engine, only templates and a
// catalog exist.

import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { Balancer, type BalancerOptions } from '../../control/balancing/balancer.ts';
import { PodTargets } from '../../control/balancing/worker-targets.ts';
import { Billing } from '../../control/billing/billing.ts';
import type { NoticeSender } from '../../control/billing/budget-notices.ts';
import type { Budgets } from '../../control/billing/budgets.ts';
import { CostTotals } from '../../control/billing/cost-totals.ts';
import { Spending } from '../../control/billing/spending.ts';
import { VolumeMeters } from '../../control/billing/volume-meters.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import { EndpointDeletion, type EndpointJobs } from '../../control/endpoints/endpoint-deletion.ts';
import { describeVolumes } from '../../control/endpoints/endpoint-volumes.ts';
import { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Templates } from '../../control/endpoints/templates.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { Amounts, Place } from '../../control/limits/capacity.ts';
import type { Quotas } from '../../control/limits/quotas.ts';
import { Pods } from '../../control/pods/pods.ts';
import type { Registries } from '../../control/registries/registries.ts';
import type { SecretSealer } from '../../control/registries/sealed-secret.ts';
import { Decisions } from '../../control/scaling/decisions.ts';
import { openResources, type ServedResource } from '../../control/served-resources.ts';
import { inspectUpload } from '../../control/versions/inspect-upload.ts';
import { Versions } from '../../control/versions/versions.ts';
import type { NetworkVolumeService } from '../../control/volumes/network-volumes.ts';
import { VolumeGrowth } from '../../control/volumes/volume-growth.ts';
import { VolumeRemovals } from '../../control/volumes/volume-removals.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Queues } from '../../queue/queues.ts';
import { logLevelOf, type Store } from '../../store/store.ts';
import type { KnownScaling } from '../../wire/resources/scaling-facts.ts';
import { findHandlerFault } from '../files/handler-fault.ts';
import { PodControl, type WorkerHost } from './pod-control.ts';
import type { FolderUse, WorkerFolders } from './worker-folders.ts';
import { WorkerVolumes } from './worker-volumes.ts';

export interface ComputeOptions {
  store: Store;
  clock: Clock;
  log: Log;
  catalog: Catalog;
  /** Undefined: pods cannot run. Closed together with Compute. */
  engine: Engine | undefined;
  processUsers: 'owner' | 'all';
  /** Returns the shard of a new endpoint. Default: 0. */
  chooseShard?: ((endpointId: string) => number) | undefined;
  /** Encrypts the secrets of registries. */
  sealer: SecretSealer;
  /** Posts notices of budgets; closed together with Compute. Default: they are not posted. */
  noticeSender?: NoticeSender | undefined;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Resources of all pods together. Default: no limit. */
  limits?: Amounts | undefined;
  /** State folders of workers in pods, for an engine without state volumes. Default: none. */
  workerFolders?: WorkerFolders | undefined;
  /** If pods run on the machines of several nodes. Default: on this one. */
  nodes?: ComputeOfNodes | undefined;
}

export interface ComputeOfNodes {
  /** Of pods and scaling decisions. Only the leader reads and writes it. */
  store: Store;
  /** The machines that take pods now. */
  listPlaces: () => readonly Place[];
  /** UUIDs of the GPUs on the machine of a node. */
  gpusOfNode: (node: string) => ReadonlySet<string>;
  /** How the balancer connects to workers on other machines. */
  connectorOf: BalancerOptions['connectorOf'];
}

interface StartOptions {
  queue: Queues;
  keys: Keys;
  /** URL at which the started workers reach the platform. */
  url: string;
}

/** The parts that need an engine. */
interface EngineParts {
  engine: Engine;
  pods: Pods;
  balancer: Balancer;
  /** Only if the engine has state volumes. */
  workerVolumes: WorkerVolumes | undefined;
}

export class Compute {
  readonly catalog: Catalog;
  /** Services of the API besides endpoints, pods and keys. */
  readonly served: readonly ServedResource[];
  readonly templates: Templates;
  readonly networkVolumes: NetworkVolumeService;
  readonly registries: Registries;
  readonly endpoints: Endpoints;
  readonly decisions: Decisions;
  readonly versions: Versions;
  readonly billing: Billing;
  readonly budgets: Budgets;
  readonly #options: ComputeOptions;
  readonly #engineParts: EngineParts | undefined;
  readonly #removals: VolumeRemovals | undefined;
  readonly #meters: VolumeMeters;
  readonly #totals: CostTotals;
  readonly #spending: Spending;
  #control: PodControl | undefined;

  private constructor(
    options: ComputeOptions,
    parts: Pick<
      Compute,
      | 'served'
      | 'templates'
      | 'networkVolumes'
      | 'registries'
      | 'endpoints'
      | 'decisions'
      | 'billing'
      | 'budgets'
    > & {
      pods: Pods | undefined;
      removals: VolumeRemovals | undefined;
      meters: VolumeMeters;
      totals: CostTotals;
      spending: Spending;
    },
  ) {
    const { catalog, clock, engine, log } = options;
    const { decisions, endpoints, networkVolumes, pods, registries, removals } = parts;
    const { served, templates } = parts;
    this.#options = options;
    this.catalog = catalog;
    this.served = served;
    this.templates = templates;
    this.networkVolumes = networkVolumes;
    this.registries = registries;
    this.#removals = removals;
    this.#meters = parts.meters;
    this.#totals = parts.totals;
    this.#spending = parts.spending;
    this.endpoints = endpoints;
    this.decisions = decisions;
    this.versions = new Versions({
      // Other nodes have no copies of versions.
      store: options.nodes?.store ?? options.store,
      ...{ clock, log, endpoints, quotas: options.quotas, inspect: inspectUpload },
      admit: (userId) => pods?.admit(userId),
    });
    this.billing = parts.billing;
    this.budgets = parts.budgets;
    if (!engine || !pods) return;
    const targets = new PodTargets(pods.live);
    const { connectorOf } = options.nodes ?? {};
    const balancer = new Balancer({ targets, endpoints, clock, log, connectorOf });
    const { stateVolumes: volumes } = engine;
    const workerVolumes = volumes && new WorkerVolumes({ volumes, log });
    this.#engineParts = { engine, pods, balancer, workerVolumes };
  }

  /** Loads the records; starts nothing yet. With several nodes, `load` reads the pods. */
  static async open(options: ComputeOptions): Promise<Compute> {
    const { catalog, clock, engine, limits, log, nodes, processUsers, quotas, store } = options;
    const kind = engine?.kind ?? 'none';
    const { networkVolumes: volumes } = engine ?? {};
    const removals =
      volumes && new VolumeRemovals({ store, volumes, clock, log, hasCopies: nodes !== undefined });
    const growth = new VolumeGrowth({ volumes, log });
    let opened: Pods | undefined;
    const { sealer } = options;
    let found: Endpoints | undefined;
    const podStore = nodes?.store ?? store;
    const totals = new CostTotals(clock);
    const onBilled = totals.add.bind(totals);
    let knownVolumes: NetworkVolumeService | undefined;
    const meters = new VolumeMeters({
      ...{ store: podStore, clock, log, onBilled },
      priceOf: (dataCenterId) => catalog.volumePriceOf(dataCenterId),
      listVolumes: () => knownVolumes?.entries() ?? [],
    });
    const nameOf = (billed: string, id: string) =>
      billed === 'endpoint' ? found?.nameOf(id) : meters.nameOf(id);
    const listOwn = () => opened;
    const billing = new Billing({
      ...{ store: podStore, clock, pods: listOwn, volumes: meters, totals, nameOf },
    });
    const spending = new Spending({ store: podStore, clock, billing: () => billing });
    const { budgets, networkVolumes, registries, served, templates } = await openResources({
      ...{ store, clock, log, catalog, quotas, sealer, meters },
      spending: () => spending,
      judgeWebhook: (url) => options.noticeSender?.judge(url),
      nameOfEndpoint: (id) => found?.nameOf(id),
      findEndpoint: (userId, idOrName) => {
        const id = found?.resolve(userId, idOrName) ?? idOrName;
        return found?.find(id)?.userId === userId ? id : undefined;
      },
      listPods: () => opened?.live.allAndComing() ?? [],
      onVolumeRemoved: () => void removals?.run(),
      onVolumeGrown: (source, sizeGb) => void growth.grow(source, sizeGb),
      engine: kind,
      // Of several nodes, the one that runs the worker may have the file.
      ...(kind === 'process' && !nodes && { findHandlerFault }),
    });
    knownVolumes = networkVolumes;
    const listPlaces = nodes?.listPlaces;
    const pods =
      engine &&
      Pods.create({
        ...{ store: podStore, clock, engine, catalog, templates, processUsers, quotas, limits },
        ...{ listPlaces, gpusOfNode: nodes?.gpusOfNode, onBilled },
        findObstacle: (userId, endpointId) => budgets.findObstacle(userId, endpointId),
      });
    opened = pods;
    if (!nodes) await Promise.all([pods?.live.load(), meters.load()]);
    const admit = (userId: string) => pods?.admit(userId);
    const deploying = engine && {
      ...{ engine: engine.kind, catalog, templates, admit },
      volumes: describeVolumes({ catalog, engine, names: networkVolumes }),
    };
    const endpoints = await Endpoints.open({
      store,
      clock,
      quotas,
      chooseShard: options.chooseShard,
      ...(deploying && { deploying }),
    });
    found = endpoints;
    const decisions = await Decisions.open(podStore);
    const compute = new Compute(options, {
      ...{ billing, budgets, registries },
      ...{
        served,
        templates,
        networkVolumes,
        endpoints,
        decisions,
        pods,
        removals,
        meters,
        totals,
        spending,
      },
    });
    if (!nodes) await compute.#readBudgets();
    return compute;
  }

  get pods(): Pods | undefined {
    return this.#engineParts?.pods;
  }

  /** Null without an engine. */
  get engineKind(): Engine['kind'] | null {
    return this.#engineParts?.engine.kind ?? null;
  }

  /** Resources of all pods of this machine together; undefined: no limit, or several nodes. */
  get limits(): Amounts | undefined {
    return this.#options.limits;
  }

  get engine(): Engine | undefined {
    return this.#engineParts?.engine;
  }

  get balancer(): Balancer | undefined {
    return this.#engineParts?.balancer;
  }

  /** Reads the pods, the meters of network volumes, and what budgets have left: this process is about to manage them. */
  async load(): Promise<void> {
    await Promise.all([this.pods?.live.load(), this.#meters.load()]);
    this.pods?.meter.clear();
    this.#totals.start();
    this.#spending.forget();
    await this.#readBudgets();
  }

  /** Before the first request for a pod, so that none slips through a budget that is used up. Never rejects. */
  async #readBudgets(): Promise<void> {
    const { log } = this.#options;
    if (!this.#engineParts) return;
    const onError = (err: unknown) =>
      log[logLevelOf(err)]({ err }, 'reading budgets failed, retrying');
    await this.budgets.observe(onError).catch(onError);
  }

  /**
   * Begins to remove the remains of deleted endpoints, which nobody can find from now on. Resolves
   * when none of these names is being removed any more, so that they may be declared again, with the function
   * that interrupts it. `lost` interrupts it too, also before that.
   */
  async startDeletion(
    ofQueue: EndpointJobs,
    names: readonly string[],
    lost?: AbortSignal,
  ): Promise<() => Promise<void>> {
    const { clock, log, store } = this.#options;
    const pods = this.#engineParts?.pods;
    const endWorkers = async (endpointId: string) => {
      await Promise.all(pods?.ofEndpoint(endpointId).map(({ id }) => pods.endWorker(id)) ?? []);
    };
    const { endpoints } = this;
    const shared = { store, clock, log, endpoints };
    const forget = (endpointId: string) => {
      ofQueue.forget(endpointId);
      void this.versions.sweep();
      void this.#tidyState();
    };
    const drop: EndpointJobs['drop'] = (id, signal) => ofQueue.drop(id, signal);
    const jobs = { drop, forget };
    const deletion = new EndpointDeletion({ ...shared, jobs, endWorkers });
    lost?.addEventListener('abort', () => void deletion.close(), { once: true });
    try {
      await deletion.start();
    } catch (error) {
      await deletion.close();
      throw error;
    }
    for (const name of names) await deletion.settled(name);
    void this.versions.sweep();
    return () => deletion.close();
  }

  /** Takes over the pods and workers of an earlier run and manages them from now on. */
  async start({ keys, queue, url }: StartOptions): Promise<void> {
    const { workerFolders } = this.#options;
    const hasVolumes = this.#engineParts?.engine.stateVolumes !== undefined;
    await this.begin(keys, {
      ...{ urlOf: () => url, tidy: () => this.#tidyState() },
      ...(workerFolders && { stateDirOf: (id: string) => workerFolders.provide(id) }),
      endWorker: ({ endpointId, podId }) => {
        const readOutbox = async (workerId: string) =>
          (await workerFolders?.readLeft(endpointId, workerId)) ?? [];
        return queue.endPod(endpointId, podId, hasVolumes ? undefined : readOutbox);
      },
      listWorkers: () => queue.workerLoads.listPresent(),
      ...{ view: queue.workerLoads, onWork: (listener) => queue.workerLoads.onWork(listener) },
      leaseMs: queue.settings.leaseMs,
    });
  }

  /** Like `start`, for workers on any machine. Does nothing without an engine. */
  async begin(keys: Keys, host: WorkerHost): Promise<void> {
    await this.#reseal();
    this.#meters.start();
    if (!this.#engineParts) return;
    const { catalog, decisions, endpoints, templates } = this;
    const { clock, log } = this.#options;
    const { balancer, engine, pods } = this.#engineParts;
    const control = new PodControl({
      ...{ catalog, decisions, endpoints, templates, clock, log, balancer, engine, pods },
      ...{ billing: this.billing, budgets: this.budgets },
      ...{ store: this.#options.store, noticeSender: this.#options.noticeSender },
      ...{ keys, host },
    });
    this.#control = control;
    await control.start();
    // Another process may have taken over meanwhile.
    if (this.#control === control) this.#removals?.start();
  }

  /** Never rejects: with the earlier key, the secrets can be used all the same. */
  async #reseal(): Promise<void> {
    const { log } = this.#options;
    this.registries.warnOfMissingKeys(log);
    try {
      await this.registries.reseal();
    } catch (error) {
      log.warn({ err: error }, 'encrypting secrets with the new key failed');
    }
  }

  /** What the scaler of this process knows of the endpoint's workers. */
  scalingOf(endpointId: string): KnownScaling {
    if (this.#control) return this.#control.scalingOf(endpointId);
    return this.endpoints.find(endpointId)?.deployment ? 'unknown' : 'none';
  }

  /** Pods may have become reachable or unreachable. */
  noteMachines(): void {
    this.#control?.noteMachines();
    // A node that is back may have volumes that were deleted meanwhile.
    void this.#removals?.noteMachines();
  }

  /** Another process manages pods and workers from now on. */
  async end(): Promise<void> {
    const control = this.#control;
    this.#control = undefined;
    this.#meters.stop();
    // A removal may wait for the engine: the pods are left alone at once.
    const stopped = this.#removals?.stop();
    await control?.close();
    await stopped;
  }

  /** The endpoints and worker pods that exist. */
  listUse(): FolderUse {
    const pods = this.#engineParts?.pods.all() ?? [];
    const known = this.endpoints.all().map(({ id }) => id);
    const ofWorkers = new Map<string, string>();
    for (const { endpointId, id } of pods) if (endpointId !== null) ofWorkers.set(id, endpointId);
    return { endpoints: new Set([...known, ...ofWorkers.values()]), pods: ofWorkers };
  }

  /** Removes state volumes of deleted endpoints, if the engine has volumes. */
  async tidyVolumes(): Promise<void> {
    await this.#engineParts?.workerVolumes?.tidy(() => this.listUse());
  }

  async #tidyState(): Promise<void> {
    await this.#options.workerFolders?.tidy(() => this.listUse());
    await this.tidyVolumes();
  }

  /** Answers every request that waits for a worker; running requests continue until `close`. */
  stop(): void {
    this.#engineParts?.balancer.stop();
  }

  /** Pods and workers keep running. */
  async close(): Promise<void> {
    await this.end();
    this.#engineParts?.balancer.close();
    await this.#engineParts?.engine.close();
    await this.#options.noticeSender?.close();
  }
}
