// Opens the records and services of the control plane and connects them to each other; starts none of them.
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
import { describeVolumes } from '../../control/endpoints/endpoint-volumes.ts';
import { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Templates } from '../../control/endpoints/templates.ts';
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
import type { Store } from '../../store/store.ts';
import { findHandlerFault } from '../files/handler-fault.ts';
import type { WorkerFolders } from './worker-folders.ts';
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
  spending: Spending;
}

/** Loads the records; starts nothing yet. With several nodes, the pods are read later. */
export async function openParts(options: ComputeOptions): Promise<ComputeParts> {
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
    listEndpoints: () => found?.all() ?? [],
    listPods: () => opened?.live.allAndComing() ?? [],
    onVolumeRemoved: () => void removals?.run(),
    onVolumeGrown: (source, sizeGb) => void growth.grow(source, sizeGb),
    engine: kind,
    traits: engine,
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
  const versions = new Versions({
    // Other nodes have no copies of versions.
    ...{ store: podStore, clock, log, endpoints, quotas, inspect: inspectUpload, admit },
  });
  const engineParts = engine && pods && connectEngine(options, { engine, pods, endpoints });
  return {
    ...{ billing, budgets, decisions, endpoints, engineParts, meters, networkVolumes },
    ...{ registries, removals, served, spending, templates, totals, versions },
  };
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
