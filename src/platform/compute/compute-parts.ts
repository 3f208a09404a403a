// Opens the records and services of the control plane and connects them to each other; starts none of them.
import { statSync } from 'node:fs';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { PodTargets } from '../../control/balancing/balanced-worker.ts';
import { Balancer, type BalancerOptions } from '../../control/balancing/balancer.ts';
import { Billing } from '../../control/billing/billing.ts';
import type { NoticeSender } from '../../control/billing/billing-keeper.ts';
import type { Budgets } from '../../control/billing/budgets.ts';
import { CostTotals, Spending } from '../../control/billing/spending.ts';
import { VolumeMeters } from '../../control/billing/volume-meters.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import { describeVolumes } from '../../control/endpoints/deployment.ts';
import { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Templates } from '../../control/endpoints/templates.ts';
import type { Amounts, Place } from '../../control/limits/capacity.ts';
import type { Quotas } from '../../control/limits/quotas.ts';
import type { PodUse } from '../../control/pods/pod-state.ts';
import { Pods } from '../../control/pods/pods.ts';
import type { Registries } from '../../control/registries/registries.ts';
import type { SecretSealer } from '../../control/registries/sealed-secret.ts';
import { Decisions } from '../../control/scaling/decisions.ts';
import {
  type OpenResources,
  openResources,
  type ServedResource,
} from '../../control/served-resources.ts';
import { inspectUpload } from '../../control/versions/version-archives.ts';
import { Versions } from '../../control/versions/versions.ts';
import { VolumeGrowth, VolumeRemovals } from '../../control/volumes/engine-volumes.ts';
import type { NetworkVolumeService } from '../../control/volumes/network-volumes.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Store } from '../../store/store.ts';
import { WorkerVolumes } from './endpoint-remains.ts';
import type { WorkerFolders } from './worker-folders.ts';

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

interface ComputeOfNodes {
  /** Of pods and scaling decisions. Only the leader reads and writes it. */
  store: Store;
  /** The machines that take pods now. */
  listPlaces: () => readonly Place[];
  /** UUIDs of the GPUs on the machine of a node. */
  gpusOfNode: (node: string) => ReadonlySet<string>;
  /** How the balancer connects to workers on other machines. */
  connectorOf: BalancerOptions['connectorOf'];
}

/** The parts that need an engine. */
export interface EngineParts {
  engine: Engine;
  pods: Pods;
  balancer: Balancer;
  /** Only if the engine has state volumes. */
  workerVolumes: WorkerVolumes | undefined;
}

export interface ComputeParts {
  /** Services of the API besides endpoints, pods and keys. */
  served: readonly ServedResource[];
  templates: Templates;
  networkVolumes: NetworkVolumeService;
  registries: Registries;
  endpoints: Endpoints;
  decisions: Decisions;
  versions: Versions;
  billing: Billing;
  budgets: Budgets;
  /** Only with an engine. */
  engineParts: EngineParts | undefined;
  /** Only with an engine that has network volumes. */
  removals: VolumeRemovals | undefined;
  meters: VolumeMeters;
  totals: CostTotals;
}

/** Loads the records; starts nothing yet. With several nodes, the pods are read later. */
export async function openParts(options: ComputeOptions): Promise<ComputeParts> {
  const { clock, engine, log, nodes, store } = options;
  const later = new LaterParts();
  const bill = openBill(options, later);
  const { networkVolumes: volumes } = engine ?? {};
  const removals =
    volumes && new VolumeRemovals({ store, volumes, clock, log, hasCopies: nodes !== undefined });
  const resources = await openServed(options, { later, bill, removals });
  later.networkVolumes = resources.networkVolumes;
  const pods = createPods(options, { resources, bill });
  later.pods = pods;
  if (!nodes) await Promise.all([pods?.live.load(), bill.meters.load()]);
  const endpoints = await openEndpoints(options, { resources, pods });
  later.endpoints = endpoints;
  const podStore = podStoreOf(options);
  const decisions = await Decisions.open(podStore);
  const versions = new Versions({
    // Other nodes have no copies of versions.
    store: podStore,
    clock,
    log,
    endpoints,
    quotas: options.quotas,
    inspect: inspectUpload,
    admit: (userId: string) => pods?.admit(userId),
  });
  const engineParts = engine && pods && connectEngine(options, { engine, pods, endpoints });
  return { ...bill, ...resources, decisions, endpoints, engineParts, removals, versions };
}

export function podStoreOf({ nodes, store }: ComputeOptions): Store {
  return nodes?.store ?? store;
}

type Bill = Pick<ComputeParts, 'billing' | 'meters' | 'totals'>;

function openBill(options: ComputeOptions, later: LaterParts): Bill {
  const { catalog, clock, log } = options;
  const store = podStoreOf(options);
  const totals = new CostTotals(clock);
  const meters = new VolumeMeters({
    store,
    clock,
    log,
    onBilled: totals.add.bind(totals),
    priceOf: (dataCenterId) => catalog.volumePriceOf(dataCenterId),
    listVolumes: () => later.listVolumes(),
  });
  const billing = new Billing({
    store,
    clock,
    pods: () => later.pods,
    volumes: meters,
    totals,
    nameOf: (kind, id) => (kind === 'endpoint' ? later.nameOfEndpoint(id) : meters.nameOf(id)),
  });
  return { billing, meters, totals };
}

interface ServedParts {
  later: LaterParts;
  bill: Bill;
  removals: VolumeRemovals | undefined;
}

function openServed(
  options: ComputeOptions,
  { bill: { billing, meters }, later, removals }: ServedParts,
): Promise<OpenResources> {
  const { catalog, clock, engine, log, nodes, quotas, sealer, store } = options;
  const kind = engine?.kind ?? 'none';
  const spending = new Spending({ store: podStoreOf(options), billing: () => billing });
  const growth = new VolumeGrowth({ volumes: engine?.networkVolumes, log });
  return openResources({
    store,
    clock,
    log,
    catalog,
    quotas,
    sealer,
    meters,
    spending: () => spending,
    judgeWebhook: (url) => options.noticeSender?.judge(url),
    nameOfEndpoint: (id) => later.nameOfEndpoint(id),
    findEndpoint: (userId, idOrName) => later.findEndpoint(userId, idOrName),
    listEndpoints: () => later.listEndpoints(),
    listPods: () => later.listPods(),
    onVolumeRemoved: () => void removals?.run(),
    onVolumeGrown: (source, sizeGb) => void growth.grow(source, sizeGb),
    engine: kind,
    traits: engine,
    // Of several nodes, the one that runs the worker may have the file.
    ...(kind === 'process' && !nodes && { findHandlerFault }),
  });
}

function createPods(
  options: ComputeOptions,
  { bill: { totals }, resources }: { bill: Bill; resources: OpenResources },
): Pods | undefined {
  const { catalog, clock, engine, limits, nodes, processUsers, quotas, sealer } = options;
  const { budgets, templates } = resources;
  if (!engine) return undefined;
  return Pods.create({
    store: podStoreOf(options),
    clock,
    engine,
    catalog,
    templates,
    processUsers,
    quotas,
    limits,
    sealer,
    onBilled: totals.add.bind(totals),
    listPlaces: nodes?.listPlaces,
    gpusOfNode: nodes?.gpusOfNode,
    findObstacle: (userId, endpointId) => budgets.findObstacle(userId, endpointId),
  });
}

function openEndpoints(
  { catalog, chooseShard, clock, engine, quotas, store }: ComputeOptions,
  { pods, resources }: { pods: Pods | undefined; resources: OpenResources },
): Promise<Endpoints> {
  const { networkVolumes: names, templates } = resources;
  const deploying = engine && {
    engine: engine.kind,
    catalog,
    templates,
    admit: (userId: string) => pods?.admit(userId),
    volumes: describeVolumes({ catalog, engine, names }),
  };
  return Endpoints.open({ store, clock, quotas, chooseShard, ...(deploying && { deploying }) });
}

function connectEngine(
  { clock, log, nodes }: ComputeOptions,
  { endpoints, engine, pods }: Pick<EngineParts, 'engine' | 'pods'> & { endpoints: Endpoints },
): EngineParts {
  const targets = new PodTargets(pods.live);
  const { connectorOf } = nodes ?? {};
  const balancer = new Balancer({ targets, endpoints, clock, log, connectorOf });
  const { stateVolumes: volumes } = engine;
  const workerVolumes = volumes && new WorkerVolumes({ volumes, log });
  return { engine, pods, balancer, workerVolumes };
}

/**
 * Parts of the control plane that earlier ones ask, because they depend on each other: volumes, pods and endpoints. Until
 * a part is open, the answers are those of a platform that has none of its records.
 */
class LaterParts {
  networkVolumes: NetworkVolumeService | undefined;
  /** Stays undefined without an engine. */
  pods: Pods | undefined;
  endpoints: Endpoints | undefined;

  listVolumes(): ReturnType<NetworkVolumeService['entries']> {
    return this.networkVolumes?.entries() ?? [];
  }

  /** Those that are being created included. */
  listPods(): readonly PodUse[] {
    return this.pods?.live.allAndComing() ?? [];
  }

  listEndpoints(): ReturnType<Endpoints['all']> {
    return this.endpoints?.all() ?? [];
  }

  nameOfEndpoint(id: string): string | undefined {
    return this.endpoints?.nameOf(id);
  }

  /** Returns its ID; undefined if the user has none with this ID or name. */
  findEndpoint(userId: string, idOrName: string): string | undefined {
    const id = this.endpoints?.resolve(userId, idOrName) ?? idOrName;
    return this.endpoints?.find(id)?.userId === userId ? id : undefined;
  }
}

/**
 * Whether a handler that a template names by its path is on this machine.
 * `path`: absolute. The handler itself is loaded by workers only.
 */
function findHandlerFault(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found) return `handler: no file ${path} on the platform's machine`;
  return found.isFile() ? undefined : `handler: ${path} is not a file`;
}
