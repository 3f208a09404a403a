// Opens the records and services of the control plane, each after those that it asks; starts none of them.
import { statSync } from 'node:fs';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { PodTargets } from '../../control/balancing/balanced-worker.ts';
import { Balancer, type BalancerOptions } from '../../control/balancing/balancer.ts';
import { addToBill } from '../../control/billing/bill-rows.ts';
import { Billing } from '../../control/billing/billing.ts';
import type { NoticeSender } from '../../control/billing/billing-keeper.ts';
import { BudgetFindings } from '../../control/billing/budget-judge.ts';
import { Budgets } from '../../control/billing/budgets.ts';
import { CostTotals, Spending } from '../../control/billing/spending.ts';
import { VolumeMeters } from '../../control/billing/volume-meters.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import { describeVolumes } from '../../control/endpoints/endpoint-records.ts';
import { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Amounts, PodMachine } from '../../control/limits/capacity.ts';
import type { Quotas } from '../../control/limits/quotas.ts';
import type { LivePods } from '../../control/pods/live-pods.ts';
import type { Bill } from '../../control/pods/pod-meter.ts';
import { admitToPods, createPodRecords, type PodRecords, Pods } from '../../control/pods/pods.ts';
import type { SecretSealer } from '../../control/registries/sealed-secret.ts';
import { Decisions } from '../../control/scaling/decisions.ts';
import {
  listServed,
  openSpecResources,
  type ServedResource,
  type SpecResources,
} from '../../control/served-resources.ts';
import { inspectUpload } from '../../control/versions/version-archives.ts';
import { Versions } from '../../control/versions/versions.ts';
import { VolumeGrowth, VolumeRemovals } from '../../control/volumes/engine-volumes.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Store } from '../../store/store.ts';
import { EndpointRemains, WorkerVolumes } from './endpoint-remains.ts';
import type { WorkerFolders } from './worker-folders.ts';

export interface ComputeOptions {
  store: Store;
  clock: Clock;
  log: Log;
  catalog: Catalog;
  /** Undefined: pods cannot run. The engine of several nodes asks which pods live. Closed together with Compute. */
  engine: ((pods: LivePods) => Engine) | undefined;
  processUsers: 'owner' | 'all';
  /** Returns the shard of a new endpoint. Default: 0. */
  chooseShard?: ((endpointId: string) => number) | undefined;
  hasHistory?: boolean | undefined;
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
  listMachines: () => readonly PodMachine[];
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

/** What the records and services are made from. */
interface Base extends Omit<ComputeOptions, 'engine'> {
  /** Of pods and all that belongs to them. */
  podStore: Store;
  findings: BudgetFindings;
  totals: CostTotals;
  meters: VolumeMeters;
  /** Only with an engine. */
  runs: { engine: Engine; records: PodRecords } | undefined;
  /** Only with an engine that has network volumes. */
  removals: VolumeRemovals | undefined;
}

export interface ComputeParts extends SpecResources {
  /** Services of the API besides endpoints, pods and keys. */
  served: readonly ServedResource[];
  endpoints: Endpoints;
  decisions: Decisions;
  versions: Versions;
  billing: Billing;
  budgets: Budgets;
  remains: EndpointRemains;
  podStore: Store;
  engineParts: EngineParts | undefined;
  removals: VolumeRemovals | undefined;
  meters: VolumeMeters;
  totals: CostTotals;
}

/** Loads the records; starts nothing yet. With several nodes, the pods are read later. */
export async function openParts(options: ComputeOptions): Promise<ComputeParts> {
  const base = openBase(options);
  const { clock, log, meters, nodes, podStore, quotas, removals, runs, store, totals } = base;
  if (!nodes) await Promise.all([runs?.records.live.load(), meters.load()]);
  const resources = await openResources(base);
  const endpoints = await openEndpoints(base, resources);
  const billing = openBilling(base, endpoints);
  const budgets = await openBudgets(base, { billing, endpoints });
  const served = listServed(
    { ...resources, budgets },
    {
      listEndpoints: () => endpoints.all(),
      listPods: () => runs?.records.live.allAndComing() ?? [],
    },
  );
  const decisions = await Decisions.open(podStore);
  // Other nodes have no copies of versions.
  const ofVersions = { store: podStore, clock, log, endpoints, quotas, admit: admit(base) };
  const versions = new Versions({ ...ofVersions, inspect: inspectUpload });
  const engineParts = connectEngine(base, { endpoints, resources });
  const remains = new EndpointRemains({
    store,
    clock,
    log,
    endpoints,
    versions,
    workerFolders: options.workerFolders,
    pods: engineParts?.pods,
    workerVolumes: engineParts?.workerVolumes,
  });
  const ofUsers = { ...resources, endpoints, billing, budgets, served, decisions, versions };
  return { ...ofUsers, remains, podStore, engineParts, removals, meters, totals };
}

function openBase(options: ComputeOptions): Base {
  const { catalog, clock, engine: open, log, nodes, store } = options;
  const podStore = nodes?.store ?? store;
  const totals = new CostTotals(clock);
  const bill: Bill = { add: addToBill, added: totals.add.bind(totals) };
  const priceOf = (dataCenterId: string) => catalog.volumePriceOf(dataCenterId);
  const meters = new VolumeMeters({ store: podStore, clock, log, bill, priceOf });
  const gpusOfNode = nodes?.gpusOfNode;
  const records = createPodRecords({ ...options, store: podStore, gpusOfNode, bill });
  const engine = open?.(records.live);
  const volumes = engine?.networkVolumes;
  const hasCopies = nodes !== undefined;
  return {
    ...options,
    podStore,
    findings: new BudgetFindings(),
    totals,
    meters,
    runs: engine && { engine, records },
    removals: volumes && new VolumeRemovals({ store, volumes, clock, log, hasCopies }),
  };
}

function openResources(base: Base): Promise<SpecResources> {
  const { catalog, clock, findings, log, meters, quotas, removals, runs, sealer, store } = base;
  const engine = runs?.engine;
  const kind = engine?.kind ?? 'none';
  const growth = new VolumeGrowth({ volumes: engine?.networkVolumes, log });
  return openSpecResources({
    store,
    clock,
    catalog,
    quotas,
    sealer,
    findings,
    meters,
    listPods: () => runs?.records.live.allAndComing() ?? [],
    onRemoved: () => void removals?.run(),
    onGrown: (source, sizeGb) => void growth.grow(source, sizeGb),
    engine: kind,
    traits: engine,
    // Of several nodes, the one that runs the worker may have the file.
    ...(kind === 'process' && !base.nodes && { findHandlerFault }),
  });
}

function openEndpoints(
  base: Base,
  { networkVolumes: names, sharedLimits, templates, userCatalog }: SpecResources,
): Promise<Endpoints> {
  const { catalog, chooseShard, clock, hasHistory, quotas, runs, store } = base;
  const deploying = runs && {
    engine: runs.engine.kind,
    catalog,
    templates,
    admit: admit(base),
    volumes: describeVolumes({ catalog: userCatalog, engine: runs.engine, names }),
  };
  const given = { store, clock, quotas, chooseShard, hasHistory, sharedLimits };
  return Endpoints.open({ ...given, ...(deploying && { deploying }) });
}

function openBilling(
  { clock, meters, podStore, runs, totals }: Base,
  endpoints: Endpoints,
): Billing {
  return new Billing({
    store: podStore,
    clock,
    pods: runs?.records,
    volumes: meters,
    totals,
    nameOf: (kind, id) => (kind === 'endpoint' ? endpoints.nameOf(id) : meters.nameOf(id)),
  });
}

function openBudgets(
  { clock, findings, log, noticeSender, podStore, quotas, store }: Base,
  { billing, endpoints }: Pick<ComputeParts, 'billing' | 'endpoints'>,
): Promise<Budgets> {
  return Budgets.open({
    store,
    clock,
    log,
    quotas,
    findings,
    spending: new Spending({ store: podStore, billing }),
    judgeWebhook: (url) => noticeSender?.judge(url),
    nameOfEndpoint: (id) => endpoints.nameOf(id),
    findEndpoint(userId, idOrName) {
      const id = endpoints.resolve(userId, idOrName);
      return endpoints.find(id)?.userId === userId ? id : undefined;
    },
  });
}

function connectEngine(
  base: Base,
  { endpoints, resources }: { endpoints: Endpoints; resources: SpecResources },
): EngineParts | undefined {
  const { clock, findings, log, nodes, podStore: store, runs } = base;
  if (!runs) return undefined;
  const { engine, records } = runs;
  const { limits, processUsers, quotas, sealer } = base;
  const { templates, userCatalog: catalog } = resources;
  const given = { store, clock, engine, catalog, processUsers, quotas, limits, sealer };
  const pods = new Pods(
    {
      ...given,
      templates,
      listMachines: nodes?.listMachines,
      gpusOfNode: nodes?.gpusOfNode,
      findObstacle: (userId, endpointId) => findings.findObstacle(userId, endpointId),
    },
    records,
  );
  const targets = new PodTargets(pods.live);
  const connectorOf = nodes?.connectorOf;
  const balancer = new Balancer({ targets, endpoints, clock, log, connectorOf });
  const { stateVolumes: volumes } = engine;
  const workerVolumes = volumes && new WorkerVolumes({ volumes, log });
  return { engine, pods, balancer, workerVolumes };
}

function admit({ processUsers, runs }: Base): (userId: string) => void {
  return (userId) => runs && admitToPods(userId, { engine: runs.engine, processUsers });
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
