// The control plane of a platform: its records and services, which are there from the start (compute-parts.ts), and the
// management of pods, while this process does it (pod-control.ts).
import type { Balancer } from '../../control/balancing/balancer.ts';
import type { Billing } from '../../control/billing/billing.ts';
import type { Budgets } from '../../control/billing/budgets.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Templates } from '../../control/endpoints/templates.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { Amounts } from '../../control/limits/capacity.ts';
import type { SharedLimits } from '../../control/limits/shared-limits.ts';
import type { Pods } from '../../control/pods/pods.ts';
import type { Registries } from '../../control/registries/registries.ts';
import { resealVariables } from '../../control/registries/sealed-secret.ts';
import type { Decisions } from '../../control/scaling/decisions.ts';
import type { ServedResource } from '../../control/served-resources.ts';
import type { Versions } from '../../control/versions/versions.ts';
import type { NetworkVolumeService } from '../../control/volumes/network-volumes.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Queues } from '../../queue/queues.ts';
import { logLevelOf } from '../../store/store.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import {
  type ComputeOptions,
  type ComputeParts,
  type EngineParts,
  openParts,
} from './compute-parts.ts';
import type { EndpointRemains } from './endpoint-remains.ts';
import { PodControl, type WorkerHost } from './pod-control.ts';

interface StartOptions {
  queue: Queues;
  keys: Keys;
  /** URL at which the started workers reach the platform. */
  url: string;
}

export class Compute {
  readonly catalog: Catalog;
  /** Services of the API besides endpoints, pods and keys. */
  readonly served: readonly ServedResource[];
  readonly templates: Templates;
  readonly networkVolumes: NetworkVolumeService;
  readonly registries: Registries;
  readonly sharedLimits: SharedLimits;
  readonly endpoints: Endpoints;
  readonly decisions: Decisions;
  readonly versions: Versions;
  readonly billing: Billing;
  readonly budgets: Budgets;
  readonly remains: EndpointRemains;
  readonly #options: ComputeOptions;
  readonly #parts: ComputeParts;
  #control: PodControl | undefined;

  private constructor(options: ComputeOptions, parts: ComputeParts) {
    this.#options = options;
    this.#parts = parts;
    this.catalog = options.catalog;
    this.served = parts.served;
    this.templates = parts.templates;
    this.networkVolumes = parts.networkVolumes;
    this.registries = parts.registries;
    this.sharedLimits = parts.sharedLimits;
    this.endpoints = parts.endpoints;
    this.decisions = parts.decisions;
    this.versions = parts.versions;
    this.billing = parts.billing;
    this.budgets = parts.budgets;
    this.remains = parts.remains;
  }

  /** Loads the records; starts nothing yet. With several nodes, `load` reads the pods. */
  static async open(options: ComputeOptions): Promise<Compute> {
    const compute = new Compute(options, await openParts(options));
    if (!options.nodes) await compute.#readBudgets();
    return compute;
  }

  get #engineParts(): EngineParts | undefined {
    return this.#parts.engineParts;
  }

  /** Reads the records of the control plane again, without pods: another node has changed them. */
  async reload(): Promise<void> {
    const others = this.served.map(({ service }) => service);
    // Queues look for the shared limits that an endpoint names as soon as they have the endpoint.
    await this.sharedLimits.reload();
    const services = [this.endpoints, ...others.filter((each) => each !== this.sharedLimits)];
    await Promise.all(services.map((service) => service.reload()));
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
    const { meters, totals } = this.#parts;
    await Promise.all([this.pods?.live.load(), meters.load()]);
    this.pods?.meter.clear();
    totals.start();
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

  /** Takes over the pods and workers of an earlier run and manages them from now on. */
  async start({ keys, queue, url }: StartOptions): Promise<void> {
    const { workerFolders } = this.#options;
    const hasVolumes = this.#engineParts?.engine.stateVolumes !== undefined;
    await this.begin(keys, {
      urlOf: () => url,
      tidy: () => this.remains.tidyState(),
      ...(workerFolders && { stateDirOf: (id: string) => workerFolders.provide(id) }),
      endWorker: ({ endpointId, podId }) => {
        const readOutbox = async (workerId: string) =>
          (await workerFolders?.readLeft(endpointId, workerId)) ?? [];
        return queue.endPod(endpointId, podId, hasVolumes ? undefined : readOutbox);
      },
      listWorkers: () => queue.workerLoads.listPresent(),
      view: queue.workerLoads,
      onWork: (listener) => queue.workerLoads.onWork(listener),
      leaseMs: queue.settings.leaseMs,
    });
  }

  /** Like `start`, for workers on any machine. Does nothing without an engine. */
  async begin(keys: Keys, host: WorkerHost): Promise<void> {
    await this.#reseal();
    this.#parts.meters.start(() => this.networkVolumes.entries());
    if (!this.#engineParts) return;
    const { catalog, decisions, endpoints, templates } = this;
    const { clock, log } = this.#options;
    const { balancer, engine, pods } = this.#engineParts;
    const control = new PodControl({
      catalog,
      decisions,
      endpoints,
      templates,
      clock,
      log,
      balancer,
      engine,
      pods,
      billing: this.billing,
      budgets: this.budgets,
      store: this.#options.store,
      noticeSender: this.#options.noticeSender,
      userCatalog: this.#parts.userCatalog,
      keys,
      host,
    });
    this.#control = control;
    await control.start();
    // Another process may have taken over meanwhile.
    if (this.#control === control) this.#parts.removals?.start();
  }

  /** Never rejects: with the earlier key, the secrets can be used all the same. */
  async #reseal(): Promise<void> {
    const { log, sealer, store } = this.#options;
    this.registries.warnOfMissingKeys(log);
    try {
      await this.registries.reseal();
      const templates = await resealVariables(store, sealer, 'template');
      const pods = await resealVariables(this.#parts.podStore, sealer, 'pod');
      const keys = [...templates.keys.union(pods.keys)];
      if (keys.length === 0) return;
      const records = { templates: templates.records, pods: pods.records };
      log.warn({ keys, ...records }, 'secrets key of variables is missing');
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
    void this.#parts.removals?.noteMachines();
  }

  /** Another process manages pods and workers from now on. */
  async end(): Promise<void> {
    const control = this.#control;
    this.#control = undefined;
    this.#parts.meters.stop();
    // A removal may wait for the engine: the pods are left alone at once.
    const stopped = this.#parts.removals?.stop();
    await control?.close();
    await stopped;
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
