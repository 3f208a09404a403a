// The pod operations for users: create, find, update, act, list. Each stores the desired state;
// reconciler.ts realises it.
import type { Clock } from '../../base/clock.ts';
import { createUuidV7 } from '../../base/id.ts';
import type { Container, Engine } from '../../engine/engine.ts';
import { OWNER, type Store } from '../../store/store.ts';
import type { WorkerStart } from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { PodAction, PodCreation, PodRecord, PodUpdate } from '../../wire/resources/pod.ts';
import type { LiveTemplate } from '../endpoints/templates.ts';
import {
  type Amounts,
  Capacity,
  demandOf,
  type Headroom,
  holdingOf,
  MachineChoice,
  type PodMachine,
} from '../limits/capacity.ts';
import { DEFAULT_QUOTAS, type Quotas, ResourceCount, requireRecordSize } from '../limits/quotas.ts';
import type { SecretSealer } from '../registries/sealed-secret.ts';
import type { NamedRecords } from '../user-resources.ts';
import { LivePods, type PodListener } from './live-pods.ts';
import {
  act,
  createPod,
  parkPod,
  recreate,
  settleWake,
  terminate,
  useSpare,
} from './pod-lifecycle.ts';
import { type Bill, PodMeter } from './pod-meter.ts';
import { describePod, listPods, type PodListing, PodStats } from './pod-records.ts';
import {
  checkGpus,
  checkSpec,
  checkStop,
  composeSpec,
  keepsContainer,
  type PodCatalog,
  resolveNames,
  updateSpec,
  type WorkerOrigin,
} from './pod-spec.ts';
import type { PodSpec, PodState } from './pod-state.ts';
import { noteStart, type Parked } from './worker-timeline.ts';

export type { PodCatalog, WorkerOrigin } from './pod-spec.ts';
export type { PodSpec, PodState } from './pod-state.ts';

interface PodTemplates extends NamedRecords {
  /** Undefined if it does not exist or belongs to another user. */
  find(userId: string, id: string): LiveTemplate | undefined;
}

interface PodLog {
  /** The last bytes. */
  end: Uint8Array;
  isCut: boolean;
}

export interface PodsOptions {
  store: Store;
  clock: Clock;
  engine: Engine;
  catalog: PodCatalog;
  templates: PodTemplates;
  /**
   * Users whose pods the process engine runs as the platform's own user. Default: only the owner.
   */
  processUsers?: 'owner' | 'all';
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Why the user may start no pod, or no worker of the endpoint. Default: nothing keeps them from it. */
  findObstacle?: ((userId: string, endpointId: string | null) => string | undefined) | undefined;
  /** Resources of all pods together. Default: no limit. */
  limits?: Amounts | undefined;
  /** The machines of several nodes that take pods now. Default: the only one, with `limits`. */
  listMachines?: (() => readonly PodMachine[]) | undefined;
  /** UUIDs of the GPUs on the machine of a node. Default: the only machine has all of them. */
  gpusOfNode?: ((node: string) => ReadonlySet<string>) | undefined;
  /** Default: nothing is billed. */
  bill?: Bill | undefined;
  /** Seals the variables of stored pods. Default: no key, so they are stored in the clear. */
  sealer?: SecretSealer | undefined;
}

/** What was there before the operations: all pods, and the measure of their containers. */
export interface PodRecords {
  live: LivePods;
  meter: PodMeter;
}

/** Without the stored pods; `live.load` reads them. */
export function createPodRecords(
  options: Pick<PodsOptions, 'bill' | 'clock' | 'gpusOfNode' | 'sealer' | 'store'> & {
    catalog: Pick<PodCatalog, 'gpuDevices' | 'priceOf'>;
  },
): PodRecords {
  const { bill, catalog, clock, gpusOfNode, sealer, store } = options;
  const gpuDevices = (gpuTypeId: string, node: string | undefined) => {
    const own = node === undefined ? undefined : gpusOfNode?.(node);
    return catalog.gpuDevices(gpuTypeId).filter((uuid) => !own || own.has(uuid));
  };
  const live = new LivePods({ store, clock, gpuDevices, bill, sealer });
  return { live, meter: new PodMeter(options) };
}

export class Pods implements NamedRecords, PodRecords {
  /** For the reconciler: the pods of all users. */
  readonly live: LivePods;
  /** For the reconciler and the bill. */
  readonly meter: PodMeter;
  readonly #options: PodsOptions;
  readonly #stats: PodStats;
  readonly #quotas: Quotas;
  readonly #count: ResourceCount;
  readonly #capacity: Capacity;
  readonly #machineChoice: MachineChoice;

  constructor(options: PodsOptions, { live, meter }: PodRecords) {
    this.#options = options;
    this.live = live;
    this.meter = meter;
    this.#stats = new PodStats(options);
    this.#quotas = options.quotas ?? DEFAULT_QUOTAS;
    const countOf = (userId: string) => this.countOf(userId);
    const listHeld = () =>
      live.all().map((pod) => ({
        node: pod.node ?? null,
        amounts: holdingOf(pod, live.seen(pod.id)),
      }));
    const only = [{ node: null, limits: options.limits }];
    const { listMachines = () => only } = options;
    this.#capacity = new Capacity({ listMachines, listHeld });
    const hasNodes = options.gpusOfNode !== undefined;
    this.#machineChoice = new MachineChoice({ capacity: this.#capacity, live, hasNodes });
    this.#count = new ResourceCount({ quota: 'pods', limit: this.#quotas.pods, countOf });
  }

  static async open(options: PodsOptions): Promise<Pods> {
    const records = createPodRecords(options);
    await records.live.load();
    return new Pods(options, records);
  }

  /** @throws ProblemError `invalid`, `rule_broken`, `forbidden`, `quota_exceeded`, `over_capacity` */
  async create(userId: string, creation: PodCreation, worker?: WorkerOrigin): Promise<PodState> {
    admitToPods(userId, this.#options);
    this.#requireBudget(userId, worker?.endpointId ?? null);
    const template = this.#findTemplate(userId, creation.template ?? null);
    // The settings of a worker have IDs already.
    const given = worker ? creation : resolveNames(userId, creation, this.#options.catalog);
    const spec = composeSpec(given, template, worker);
    this.#check(userId, spec);
    const dataCenterId = this.#options.catalog.dataCenterFor(userId, spec);
    const now = this.#options.clock.now();
    const demand = demandOf(spec);
    const { free: freeGpus, node } = this.#machineChoice.choose(spec);
    const made = {
      id: `pod_${createUuidV7(now)}`,
      endpointId: worker?.endpointId ?? null,
      ...(node !== null && { node }),
      ...(worker?.isSpare && { spare: true as const }),
    };
    const pod = createPod({ ...made, userId, spec: { ...spec, dataCenterId } }, now);
    // The size of a worker's record is bounded by its template.
    if (!worker) requireRecordSize(this.#quotas, JSON.stringify(pod));
    try {
      const free = this.#capacity.reserve({ node, after: demand });
      await this.#add(pod).finally(free);
    } finally {
      freeGpus();
    }
    return pod;
  }

  /** @throws ProblemError `over_budget` */
  #requireBudget(userId: string, endpointId: string | null): void {
    const obstacle = this.findObstacle(userId, endpointId);
    if (obstacle !== undefined) throw new ProblemError('over_budget', obstacle);
  }

  async #add(pod: PodState): Promise<void> {
    const release = pod.endpointId === null ? this.#count.reserve(pod.userId) : () => {};
    try {
      await this.live.add(pod);
    } finally {
      release();
    }
  }

  /** Why the user may start no pod, or no worker of the endpoint; undefined: they may. */
  findObstacle(userId: string, endpointId: string | null): string | undefined {
    return this.#options.findObstacle?.(userId, endpointId);
  }

  /** How many of `wanted` pods of the spec would fit now; undefined: all of them. */
  headroomFor(
    spec: Pick<PodSpec, 'cpu' | 'disk' | 'mounts'>,
    wanted: number,
  ): Headroom | undefined {
    return this.#capacity.headroomFor(demandOf(spec), wanted);
  }

  /** Those that the quota counts. */
  countOf(userId: string): number {
    return this.live.all().filter((pod) => isCounted(pod, userId)).length;
  }

  resolve(userId: string, idOrName: string): string {
    return this.live.resolve(userId, idOrName);
  }

  /** @throws ProblemError `not_found` */
  async find(userId: string, id: string): Promise<PodState> {
    const pod = this.live.get(id) ?? (await this.#findGone(id));
    if (pod?.userId === userId) return pod;
    throw new ProblemError('not_found', `pod ${id} not found`);
  }

  /** `next` is the position of the next page, if there is one. */
  list(listing: PodListing): Promise<{ pods: PodState[]; next?: number }> {
    return listPods(listing, { store: this.#options.store, live: this.live });
  }

  /** @throws ProblemError `not_found`, `conflict`, `invalid`, `rule_broken`, `quota_exceeded`, `over_capacity`, `unavailable` */
  async update(userId: string, id: string, update: PodUpdate): Promise<PodState> {
    const { spec } = await this.find(userId, id);
    if (update.disk !== undefined && update.disk > spec.disk) await this.#inspectOnce(id);
    const resolved = resolveNames(userId, update, this.#options.catalog);
    return this.#change(userId, id, (pod) => this.#updated(pod, resolved));
  }

  /** @throws ProblemError `not_found`, `conflict`, `over_capacity`, `invalid` */
  async act(userId: string, id: string, action: PodAction): Promise<PodState> {
    const { catalog, clock, engine } = this.#options;
    const now = clock.now();
    if (action === 'start') {
      const { endpointId } = await this.find(userId, id);
      this.#requireBudget(userId, endpointId);
    }
    return this.#change(userId, id, (pod) => {
      const acted = act(pod, action, now);
      if (action === 'start') checkGpus(pod.spec, catalog);
      if (action === 'stop') checkStop(pod, engine);
      return acted;
    });
  }

  /** For the platform itself: also ends a locked pod. Has no effect on a removed one. */
  async endWorker(id: string): Promise<void> {
    const now = this.#options.clock.now();
    await this.live.change(id, (pod) => terminate(pod, now));
  }

  /** The worker has left its GPUs. */
  async parkWorker(id: string, parked: Parked): Promise<void> {
    const now = this.#options.clock.now();
    await this.live.change(id, (pod) => parkPod(pod, parked, now));
  }

  /** A spare worker that still starts is needed: it keeps its GPUs. */
  async useSpare(id: string): Promise<void> {
    await this.live.change(id, useSpare);
  }

  /** Gives a parked worker its GPUs back. Returns false if they are not free. */
  returnGpus(id: string): Promise<boolean> {
    return this.live.returnGpus(id);
  }

  /** The worker is awake. */
  async settleWake(id: string): Promise<void> {
    const now = this.#options.clock.now();
    await this.live.change(id, (pod) => settleWake(pod, now));
  }

  /** The worker or one of its model processes has started. */
  async noteStart(id: string, start: WorkerStart): Promise<void> {
    await this.live.change(id, (pod) => noteStart(pod, start));
  }

  /** The workers of an endpoint, ending ones included. */
  ofEndpoint(endpointId: string): PodState[] {
    return this.live.all().filter((pod) => pod.endpointId === endpointId);
  }

  all(): PodState[] {
    return this.live.all();
  }

  seen(id: string): Container | undefined {
    return this.live.seen(id);
  }

  /** Calls the listener with each change when it is on disk. @returns the function that stops it */
  onChange(listener: PodListener): () => void {
    return this.live.onChange(listener);
  }

  /** UUIDs of the GPUs of all pods. */
  heldGpus(): Set<string> {
    return this.live.heldGpus();
  }

  /**
   * Differs whenever `show` returns something new for the user's pods, or for one of them. Undefined while one runs,
   * because its uptime and its use of resources change all the time.
   */
  numberOf(userId: string, id?: string): number | undefined {
    const shown = id === undefined ? this.live.all() : [this.live.get(id)];
    const runs = shown.some((pod) => pod?.userId === userId && pod.status === 'RUNNING');
    return runs ? undefined : this.live.changes.of(userId);
  }

  async show(pod: PodState): Promise<PodRecord> {
    const { catalog, clock, engine } = this.#options;
    const seen = this.live.seen(pod.id);
    const stats =
      pod.status === 'RUNNING' ? await this.#stats.read(pod.id, pod.startedAt) : undefined;
    const price = catalog.priceOf(pod.spec);
    return describePod({ pod, engine, seen, stats, price, now: clock.now() });
  }

  /** `isCut`: the log has more before its end. @throws ProblemError `not_found`, `unavailable` */
  async readLog(userId: string, id: string, maxBytes: number): Promise<PodLog> {
    await this.find(userId, id);
    const read = await this.#options.engine.readLog(id, maxBytes + 1).catch(refuseToAnswer);
    return { end: read.subarray(-maxBytes), isCut: read.length > maxBytes };
  }

  #updated(pod: PodState, update: PodUpdate): PodState {
    if (pod.status === 'TERMINATED') {
      throw new ProblemError('conflict', 'the pod is TERMINATED and cannot be changed');
    }
    const spec = updateSpec(pod.spec, update);
    requireRecordSize(this.#quotas, JSON.stringify({ ...pod, spec }));
    const disk = this.#isDiskLimited(pod) ? 'limited' : 'unlimited';
    if (keepsContainer({ before: pod.spec, after: spec, disk })) return { ...pod, spec };
    if (pod.endpointId !== null) {
      const owner = `it is a worker of the endpoint ${pod.endpointId}`;
      throw new ProblemError('conflict', `${owner}: change the template that it is made from`);
    }
    if (pod.spec.locked && spec.locked) {
      const detail = 'the pod is locked: only name and locked can be changed, all else resets it';
      throw new ProblemError('conflict', detail);
    }
    this.#check(pod.userId, spec);
    return recreate(pod, spec);
  }

  /** A container that was not inspected yet counts as limited. */
  #isDiskLimited({ generation, id }: PodState): boolean {
    if (this.#options.engine.capabilities.disk.limit === 'never') return false;
    const seen = this.live.seen(id);
    return seen?.generation !== generation || seen.hasDiskLimit;
  }

  /**
   * A platform that has just started may not have inspected it yet. @throws ProblemError
   * `unavailable`
   */
  async #inspectOnce(id: string): Promise<void> {
    if (!this.live.get(id) || this.live.seen(id)) return;
    const { engine } = this.#options;
    this.live.noteSeen(id, await engine.inspect(id).catch(refuseToAnswer));
  }

  #check(userId: string, spec: PodSpec): void {
    const { catalog, engine } = this.#options;
    checkSpec({ userId, spec, catalog, engine });
  }

  async #change(
    userId: string,
    id: string,
    decide: (pod: PodState) => PodState,
  ): Promise<PodState> {
    const found = await this.find(userId, id);
    const seen = this.live.seen(id);
    const free = this.#capacity.reserve({
      node: found.node ?? null,
      after: holdingOf(decide(found), seen),
      before: holdingOf(found, seen),
    });
    try {
      // A removed pod does not change; the decision gives the reason.
      return (await this.live.change(id, decide)) ?? decide(found);
    } finally {
      free();
    }
  }

  async #findGone(id: string): Promise<PodState | undefined> {
    const stored = await this.#options.store.read((tx) => tx.resource({ kind: 'pod', id }));
    return stored && this.live.read(stored);
  }

  #findTemplate(userId: string, id: string | null): LiveTemplate | undefined {
    if (id === null) return undefined;
    const { templates } = this.#options;
    const template = templates.find(userId, templates.resolve(userId, id));
    if (template) return template;
    const error = `template: template ${JSON.stringify(id)} not found`;
    throw new ProblemError('invalid', error, { errors: [error] });
  }
}

/** @throws ProblemError `forbidden` if the engine is not available to this user */
export function admitToPods(
  userId: string,
  { engine, processUsers = 'owner' }: Pick<PodsOptions, 'engine' | 'processUsers'>,
): void {
  if (engine.kind !== 'process' || processUsers === 'all' || userId === OWNER) return;
  throw new ProblemError(
    'forbidden',
    'pods are processes of the platform itself here, so they are for its owner alone; the operator may allow others with --trust-users',
  );
}

/** @throws ProblemError `unavailable` */
function refuseToAnswer(cause: unknown): never {
  const detail = 'the engine that runs the pods does not answer at the moment';
  throw new ProblemError('unavailable', detail, { cause, retryAfterMs: 1_000 });
}

function isCounted(pod: PodState, userId: string): boolean {
  return pod.userId === userId && pod.endpointId === null && pod.status !== 'TERMINATED';
}
