// Reconciles the workers of one endpoint, one pass at a time: observes them, asks scaler.ts how many are
// desired, and starts, drains or ends workers. fleet.ts decides when the next pass is due.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type {
  DecisionRecord,
  ScaledWorker,
  ScalerDecision,
  ScalerInput,
  ScalingFacts,
} from '../../wire/resources/scaling.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';
import type { GpuUse } from '../billing/billing-keeper.ts';
import { type LiveEndpoint, listMounts } from '../endpoints/endpoint-records.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { Templates } from '../endpoints/templates.ts';
import type { PodState, Pods } from '../pods/pods.ts';
import { isNewStart } from '../pods/worker-timeline.ts';
import type { GpuContention, GpuTenants } from '../tenancy/gpu-tenants.ts';
import { listWishes } from '../tenancy/gpu-wishes.ts';
import { candidateOf } from '../versions/rollout.ts';
import { type Decisions, describeScaling } from './decisions.ts';
import { decide } from './scaler.ts';
import { LoadPeak } from './scaler-demand.ts';
import { Spares } from './spares.ts';
import { isCheckPod, reservePlace, VersionCheck } from './version-check.ts';
import type { WorkLoad, WorkView } from './work-view.ts';
import { findLastOutput } from './worker-ends.ts';
import { type EndedWorker, type Observation, type ParkingStep, WorkerList } from './worker-list.ts';
import {
  CrowdedGpus,
  chooseGpuTypes,
  type StartedWorker,
  type WorkerCatalog,
  WorkerStarter,
} from './worker-starter.ts';
import { findMinimum, type Minimum } from './worker-windows.ts';

/** Bytes at the end of a dead worker's log in which its exit reason is searched. */
const LAST_OUTPUT_BYTES = 2_000;

export interface WorkforceOptions {
  endpoints: Pick<Endpoints, 'changeDeployment'>;
  pods: Pick<
    Pods,
    | 'all'
    | 'create'
    | 'endWorker'
    | 'findObstacle'
    | 'headroomFor'
    | 'ofEndpoint'
    | 'noteStart'
    | 'parkWorker'
    | 'readLog'
    | 'returnGpus'
    | 'seen'
    | 'settleWake'
    | 'useSpare'
  >;
  templates: Pick<Templates, 'find'>;
  catalog: WorkerCatalog;
  /** Default: GPU time of attempts is not on the bill. */
  gpuUse?: Pick<GpuUse, 'note' | 'forget'> | undefined;
  tenants: Pick<GpuTenants, 'note' | 'contentionOf' | 'findHostBytes'>;
  views: Readonly<Record<EndpointDeployment['type'], WorkView>>;
  decisions: Decisions;
  clock: Clock;
  log: Log;
  /** A ready worker that was silent for this long is dead, ms. */
  silentMs: number;
  /** A worker whose node has been gone for this long is replaced, ms. Default: never. */
  replaceAfterMs?: number | undefined;
  /** Why workers of the user are not parked; undefined: they are. Default: all are. */
  findParkObstacle?: (userId: string) => string | undefined;
  /** Its container calls the platform at a URL that is out of date. Default: none does. */
  hasOldUrl?: (pod: PodState) => boolean;
}

/** An endpoint whose workers the platform starts. */
export interface DeployedEndpoint extends LiveEndpoint {
  deployment: EndpointDeployment;
}

/**
 * Whether the endpoint needs another pass. `busy`: at the next interval. `idle`: not before something
 * changes. `unserved`: the same, although jobs wait: the endpoint may have no workers, for example.
 */
type Outlook = 'busy' | 'idle' | 'unserved';

/** The inputs of one pass. */
interface ReconcileInput {
  load: WorkLoad;
  /** Those that can be counted on. */
  workers: Observation['workers'];
  template: TemplateRecord | undefined;
}

interface TenancyPass {
  input: ScalerInput;
  decision: ScalerDecision;
  load: WorkLoad;
  /** Pods of its workers, without those of a check. */
  workers: readonly PodState[];
  awaitsCheck: boolean;
}

const NO_CONTENTION: GpuContention = {
  kept: new Map(),
  giveWay: [],
  preempted: [],
  resumed: [],
  wakeable: new Set(),
  homeless: new Set(),
};

export class Workforce {
  readonly #options: WorkforceOptions;
  readonly #workerList: WorkerList;
  readonly #starter: WorkerStarter;
  readonly #versionCheck: VersionCheck;
  readonly #peak = new LoadPeak();
  readonly #crowded = new CrowdedGpus();
  /** Template and GPU types at the last pass. */
  #origin: string | undefined;
  #last: Pick<DecisionRecord, 'cause' | 'want'> | undefined;
  #lastStartAt: number | null = null;
  /** What the last pass found; undefined before the first. */
  #facts: ScalingFacts | undefined;
  /** Before the decision of the pass. */
  #contention = NO_CONTENTION;
  readonly #spares = new Spares();
  /** Of a deployment, from a time on. */
  #minimum: (Minimum & { of: EndpointDeployment; at: number }) | undefined;

  private constructor(options: WorkforceOptions, last: DecisionRecord | undefined) {
    const { clock, replaceAfterMs, silentMs } = options;
    this.#options = options;
    this.#last = last;
    this.#workerList = new WorkerList({
      openedAt: clock.now(),
      silentMs,
      replaceAfterMs,
      crashes: last?.input.crashes,
    });
    this.#starter = new WorkerStarter(options);
    this.#versionCheck = new VersionCheck(options);
  }

  static async open(options: WorkforceOptions, endpointId: string): Promise<Workforce> {
    return new Workforce(options, await options.decisions.last(endpointId));
  }

  /** For the reason why jobs wait; undefined before the first pass. */
  get facts(): ScalingFacts | undefined {
    return this.#facts;
  }

  async reconcile(endpoint: DeployedEndpoint): Promise<Outlook> {
    const { clock, gpuUse, hasOldUrl = () => false, pods, views } = this.#options;
    const { deployment, id, userId } = endpoint;
    const template = this.#options.templates.find(userId, deployment.templateId);
    const load = await views[deployment.type].load(id);
    await gpuUse?.note(endpoint, load);
    const all = pods.ofEndpoint(id);
    // A check worker with an old URL could never connect: another one takes its place.
    const checkPods = all.filter((pod) => isCheckPod(pod, deployment) && !hasOldUrl(pod));
    const workers = all.filter((pod) => !checkPods.includes(pod));
    const isChecking = candidateOf(deployment) !== undefined;
    this.#noteOrigin(deployment, template);
    const movable = this.#findMovable(deployment, workers);
    const observation = this.#workerList.observe({
      isMovable: ({ id }) => movable.has(id),
      now: clock.now(),
      type: deployment.type,
      executionTimeoutMs: endpoint.settings.executionTimeoutMs,
      pods: workers,
      seen: load.workers,
      isCurrent: (pod) => isCurrent(pod, deployment, template) && !hasOldUrl(pod),
      mayPark: this.#mayPark(endpoint),
      gpuMemoryOf: ({ spec }) => this.#options.catalog.gpuMemoryOf(spec),
    });
    await this.#noteStarts(all, load);
    for (const step of observation.parking) await this.#followParking(endpoint, step);
    for (const ended of observation.ended) await this.#endWorker(endpoint, ended);
    this.#spares.learn({ now: clock.now(), observation, load, pods: workers });
    // After the steps: one that has left its GPU just now can come back for a job.
    this.#contention = this.#options.tenants.contentionOf(id);
    for (const podId of observation.undrained) views[deployment.type].drain(id, podId);
    const awaitsPlace = isChecking && checkPods.length === 0;
    // Others take their places at once, also beyond the maximum: their machine ends them soon.
    const leaving = new Set(workers.flatMap((pod) => (pod.leaving === undefined ? [] : pod.id)));
    const staying = observation.workers.filter(({ id }) => !leaving.has(id));
    const found = this.#describe(endpoint, { load, workers: staying, template });
    const input = awaitsPlace ? reservePlace(found) : found;
    const decision = decide(input);
    const started = await this.#start(endpoint, template, decision);
    for (const podId of decision.drain) await this.#drain(endpoint, podId, input);
    if (decision.cause === 'gives_way') this.#spares.learnOfDrain(input, decision.drain);
    await this.#moveParked(endpoint, decision);
    const awaitsCheck = awaitsPlace && found.places === 0 && workers.length === 0;
    this.#noteTenancy(endpoint, { input, decision, load, workers, awaitsCheck });
    this.#facts = describeScaling({
      deployment,
      decision,
      input,
      before: this.#facts,
      pods: pods.ofEndpoint(id),
      seen: (podId) => pods.seen(podId),
      catalog: this.#options.catalog,
    });
    await this.#record(endpoint, { input, decision, started });
    await this.#versionCheck.advance(endpoint, {
      checkPods,
      input: found,
      crashed: findCrashed(workers, observation),
      connected: new Set(load.workers.map(({ podId }) => podId)),
      start: () =>
        this.#starter.startCheck(endpoint, template, this.#countFree(deployment.gpuTypeIds)),
      drain: (podId) => this.#drain(endpoint, podId, input),
      readLastOutput: (podId) => this.#readLastOutput(endpoint, podId),
    });
    const lacksSpares = input.spares !== undefined && this.#mayHaveSpares(endpoint);
    if (all.length > 0 || decision.want > 0 || isChecking || lacksSpares) return 'busy';
    return load.waiting + load.running === 0 ? 'idle' : 'unserved';
  }

  #noteOrigin(deployment: EndpointDeployment, template?: TemplateRecord): void {
    const { gpuTypeIds, templateId, version } = deployment;
    const mounts = listMounts(deployment);
    const origin = JSON.stringify([templateId, template?.version, gpuTypeIds, version, mounts]);
    if (this.#origin !== undefined && this.#origin !== origin) {
      this.#workerList.forgiveCrashes();
      this.#spares.forget();
    }
    this.#origin = origin;
  }

  #describe(
    { deployment, id, userId }: DeployedEndpoint,
    { load, template, workers }: ReconcileInput,
  ): ScalerInput {
    const { oldestQueuedAt, outgrown, running, waiting } = load;
    const obstacle = this.#options.pods.findObstacle(userId, id);
    const headroom =
      obstacle === undefined
        ? this.#starter.findHeadroom(deployment, template)
        : ({ places: 0, shortage: obstacle, budget: true } as const);
    const { gpuTypeIds, scaler, type } = deployment;
    const { workersMax } = limitWorkers(deployment);
    const free = this.#countFree(gpuTypeIds);
    const now = this.#options.clock.now();
    const { isRaised, nextAt, workersMin } = this.#minimumAt(deployment, now);
    const idleTimeoutMs = deployment.idleTimeout * 1_000;
    const parkMs = deployment.parkSeconds * 1_000;
    const { giveWay, preempted, resumed } = this.#contention;
    return {
      now,
      type,
      workersMin,
      ...(isRaised && { raisedUntil: nextAt }),
      workersMax,
      idleTimeoutMs,
      scaler,
      ...(this.#mayPark({ deployment, userId }) && { parkMs }),
      ...this.#describeSpares({ deployment, userId }, workersMax),
      workers: workers.map((worker) => this.#describeParking(worker)),
      load: {
        waiting,
        running,
        oldestQueuedAt,
        ...(outgrown && { outgrown }),
        peak: this.#peak.note(waiting + running, now, idleTimeoutMs),
      },
      lastStartAt: this.#lastStartAt,
      lastWant: this.#last?.want ?? null,
      crashes: this.#workerList.crashes,
      places: gpuTypeIds.length === 0 ? null : sum(free.values()),
      ...(outgrown && { gpus: [...free].map(([id, count]) => ({ id, free: count })) }),
      ...(giveWay.length > 0 && { giveWay }),
      ...(preempted.length > 0 && { preempted }),
      ...(resumed.length > 0 && { resumed }),
      ...(headroom && { headroom }),
    };
  }

  /** When time alone may change the number of workers. */
  get minimumChangesAt(): number {
    return this.#minimum?.nextAt ?? Number.POSITIVE_INFINITY;
  }

  #minimumAt(deployment: EndpointDeployment, now: number): Minimum {
    const known = this.#minimum;
    if (known?.of === deployment && known.at <= now && now < known.nextAt) return known;
    const found = findMinimum({ ...deployment, ...limitWorkers(deployment) }, now);
    this.#minimum = { ...found, of: deployment, at: now };
    return found;
  }

  #mayPark({ deployment, userId }: Pick<DeployedEndpoint, 'deployment' | 'userId'>): boolean {
    const { parkSeconds, spareWorkers } = deployment;
    const isWanted = parkSeconds > 0 || spareWorkers > 0;
    return isWanted && this.#findParkObstacle(userId, deployment) === undefined;
  }

  #findParkObstacle(userId: string, { gpuTypeIds, type }: EndpointDeployment): string | undefined {
    const { findParkObstacle, views } = this.#options;
    if (!views[type].park) return 'workers of load-balancing endpoints are never parked';
    if (gpuTypeIds.length === 0) return 'workers without a GPU are never parked';
    return findParkObstacle?.(userId);
  }

  #describeSpares(
    { deployment, userId }: Pick<DeployedEndpoint, 'deployment' | 'userId'>,
    workersMax: number,
  ): Pick<ScalerInput, 'spares'> {
    const { spareWorkers: count } = deployment;
    if (count === 0 || workersMax === 0) return {};
    const isHostFull = this.#workerList.parkedBytes > this.#options.tenants.findHostBytes();
    const obstacle =
      this.#findParkObstacle(userId, deployment) ??
      this.#spares.obstacleAt(this.#options.clock.now()) ??
      (isHostFull ? 'the host has too little memory for one more parked model' : undefined);
    return { spares: { count, ...(obstacle !== undefined && { obstacle }) } };
  }

  /** Time alone may let them start. */
  #mayHaveSpares({ deployment, userId }: DeployedEndpoint): boolean {
    return !this.#spares.isFinal && this.#findParkObstacle(userId, deployment) === undefined;
  }

  #maySuspend({ deployment, userId }: Pick<DeployedEndpoint, 'deployment' | 'userId'>): boolean {
    return deployment.preemptible && this.#findParkObstacle(userId, deployment) === undefined;
  }

  #describeParking(worker: ScaledWorker): ScaledWorker {
    if (worker.state !== 'parked') return worker;
    const pod = this.#options.pods.all().find(({ id }) => id === worker.id);
    if (pod?.spare) {
      const given = { canWake: true, lacksMemory: false, isStarting: true as const };
      return { ...worker, parking: { since: pod.createdAt, ...given } };
    }
    const { homeless, wakeable } = this.#contention;
    const parking = {
      since: pod?.parked?.since ?? this.#options.clock.now(),
      canWake: wakeable.has(worker.id),
      lacksMemory: homeless.has(worker.id),
    };
    return { ...worker, parking };
  }

  async #noteStarts(all: readonly PodState[], { workers }: WorkLoad): Promise<void> {
    for (const { podId, start } of workers) {
      const pod = start && all.find(({ id }) => id === podId);
      if (pod && isNewStart(pod, start)) await this.#options.pods.noteStart(pod.id, start);
    }
  }

  async #followParking({ deployment, id }: DeployedEndpoint, follow: ParkingStep): Promise<void> {
    const { log, pods, views } = this.#options;
    const { podId } = follow;
    if (follow.step === 'wish') return views[deployment.type].park?.(id, podId, follow.wish);
    if (follow.step === 'left') await pods.parkWorker(podId, follow.parked);
    else await pods.settleWake(podId);
    const msg = follow.step === 'left' ? 'worker parked' : 'parked worker is ready again';
    log.info({ endpoint: id, pod: podId }, msg);
  }

  async #moveParked(
    { deployment, id }: DeployedEndpoint,
    { park = [], resume = [], suspend = [], wake = [] }: ScalerDecision,
  ): Promise<void> {
    const { clock, pods, views } = this.#options;
    const view = views[deployment.type];
    for (const podId of park) {
      this.#workerList.noteParking(podId, clock.now(), 'parked');
      view.park?.(id, podId, 'parked');
    }
    for (const podId of suspend) {
      this.#workerList.noteParking(podId, clock.now(), 'suspended');
      view.park?.(id, podId, 'suspended');
    }
    for (const podId of [...wake, ...resume]) {
      if (pods.all().some((pod) => pod.id === podId && pod.spare)) {
        await pods.useSpare(podId);
        this.#workerList.noteNeeded(podId);
        view.park?.(id, podId, 'ready');
      } else if (await pods.returnGpus(podId)) view.park?.(id, podId, 'ready');
    }
  }

  /** Without those that are kept for other endpoints. */
  #countFree(gpuTypeIds: readonly string[]): Map<string, number> {
    const { kept } = this.#contention;
    const open = [...this.#starter.countFree(gpuTypeIds)].map(
      ([type, count]) => [type, Math.max(0, count - (kept.get(type) ?? 0))] as const,
    );
    return this.#crowded.withoutCrowded(new Map(open), this.#options.clock.now());
  }

  #noteTenancy({ deployment, id, userId }: DeployedEndpoint, pass: TenancyPass): void {
    const { clock, pods, tenants } = this.#options;
    const { awaitsCheck, decision, input } = pass;
    const { load, workersMin } = input;
    const seen = new Map(pass.load.workers.map((worker) => [worker.podId, worker]));
    // What others say of their machine's memory is not to be relied on.
    const mayLeave =
      this.#mayPark({ deployment, userId }) || this.#maySuspend({ deployment, userId });
    const parkingOf = (podId: string) => (mayLeave ? seen.get(podId)?.parking : undefined);
    const gpuTypes = deployment.gpuTypeIds.filter((type) => !this.#crowded.has(type, clock.now()));
    const crowded = pass.workers.filter(
      (pod) => pod.desired === 'running' && pods.seen(pod.id)?.waiting?.cause === 'capacity',
    );
    const outgrown = (load.outgrown ?? []).reduce((sum, { waiting }) => sum + waiting, 0);
    tenants.note(id, {
      userId,
      name: deployment.name,
      deployment,
      workersMin,
      hasWork: load.waiting > outgrown,
      urgent: pass.load.urgent,
      lacking: listWishes({ input, decision, gpuTypes, crowded, awaitsCheck }),
      workers: input.workers.map((worker) => ({
        ...worker,
        state: findNextState(worker, decision),
        since: this.#workerList.sinceOf(worker.id),
        isNew: seen.get(worker.id)?.isNew ?? false,
        isSpare: (seen.get(worker.id)?.parking?.state ?? 'ready') === 'ready',
        hostLimitBytes: parkingOf(worker.id)?.hostLimitBytes ?? 0,
        seen: parkingOf(worker.id),
      })),
      startMs: this.#workerList.startMs,
      wakeMs: this.#workerList.wakeMs,
      parkedBytes: this.#workerList.parkedBytes,
    });
  }

  /** Workers for which the cluster has no capacity, while it may have some for another GPU type of the endpoint. */
  #findMovable({ gpuTypeIds }: EndpointDeployment, workers: readonly PodState[]): Set<string> {
    const { clock, pods } = this.#options;
    const now = clock.now();
    const waiting = workers.filter(
      ({ desired, id, spec }) =>
        desired === 'running' && spec.gpu && pods.seen(id)?.waiting?.cause === 'capacity',
    );
    for (const { spec } of waiting) if (spec.gpu) this.#crowded.note(spec.gpu.id, now);
    if (waiting.length === 0) return new Set();
    return this.#crowded.findMovable(waiting, this.#starter.countFree(gpuTypeIds), now);
  }

  async #start(
    endpoint: DeployedEndpoint,
    template: TemplateRecord | undefined,
    { start, startOn = [], startSpares = 0 }: ScalerDecision,
  ): Promise<StartedWorker[]> {
    const number = start + startSpares;
    if (number === 0) return [];
    const { clock, log } = this.#options;
    const { gpuTypeIds } = endpoint.deployment;
    this.#lastStartAt = clock.now();
    const places: (string | null)[] =
      gpuTypeIds.length === 0
        ? new Array<null>(number).fill(null)
        : chooseGpuTypes(this.#countFree(gpuTypeIds), number, startOn);
    const results = await Promise.allSettled(
      places.map((gpu) =>
        this.#starter.start(endpoint, template, { gpu, isSpare: startSpares > 0 }),
      ),
    );
    const failed = results.find(
      (result) => result.status === 'rejected' && !isOverCapacity(result.reason),
    );
    if (failed?.status === 'rejected') {
      log.warn({ endpoint: endpoint.id, err: failed.reason }, 'creating a worker failed');
      const why = failed.reason instanceof Error ? failed.reason.message : String(failed.reason);
      this.#workerList.noteCrash(`the worker could not be created: ${why}`, clock.now());
    }
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  }

  async #drain(endpoint: DeployedEndpoint, podId: string, { workers }: ScalerInput): Promise<void> {
    const { clock, pods, views } = this.#options;
    const runsJobs = workers.some(
      ({ id, jobs, state }) => id === podId && (state === 'ready' || jobs > 0),
    );
    this.#workerList.noteDrained(podId, clock.now());
    if (runsJobs) views[endpoint.deployment.type].drain(endpoint.id, podId);
    else await pods.endWorker(podId);
  }

  async #endWorker(endpoint: DeployedEndpoint, { isCrash, podId, reason }: EndedWorker) {
    const { clock, log, pods } = this.#options;
    const lastOutput = isCrash ? await this.#readLastOutput(endpoint, podId) : undefined;
    if (isCrash) {
      const { notBefore, streak } = this.#workerList.crashes;
      const detailed = lastOutput === undefined ? reason : `${reason}: ${lastOutput}`;
      const note = { endpoint: endpoint.id, pod: podId, streak, waitMs: notBefore - clock.now() };
      log.warn({ ...note, reason: detailed }, 'worker ended too early');
      this.#workerList.explainCrash(detailed);
    }
    await pods.endWorker(podId);
  }

  /** Must run before the pod is ended: the log is removed with the container. */
  async #readLastOutput({ userId }: DeployedEndpoint, podId: string): Promise<string | undefined> {
    try {
      const { end } = await this.#options.pods.readLog(userId, podId, LAST_OUTPUT_BYTES);
      return findLastOutput(new TextDecoder().decode(end));
    } catch {
      return undefined;
    }
  }

  /** Stores the decision unless it repeats the last one. */
  async #record(
    { id, userId }: DeployedEndpoint,
    {
      decision,
      input,
      started,
    }: { decision: ScalerDecision; input: ScalerInput; started: StartedWorker[] },
  ): Promise<void> {
    const { cause, drain, park = [], start, startSpares = 0, wake = [], want } = decision;
    const { resume = [], suspend = [] } = decision;
    const moved = [...drain, ...park, ...wake, ...suspend, ...resume];
    const hasMoves = start + startSpares > 0 || moved.length > 0;
    const isNews = hasMoves || cause !== (this.#last?.cause ?? 'enough');
    this.#last = { cause, want };
    if (!isNews) return;
    const at = new Date(input.now).toISOString();
    this.#options.log.debug({ endpoint: id, ...decision }, 'scaling decision');
    await this.#options.decisions.add(
      { endpointId: id, userId },
      { at, ...decision, started, input },
    );
  }
}

function findCrashed(pods: readonly PodState[], { ended }: Observation): PodState[] {
  return pods.filter(({ id }) => ended.some(({ isCrash, podId }) => isCrash && podId === id));
}

function findNextState({ id, state }: ScaledWorker, decision: ScalerDecision) {
  if (decision.drain.includes(id)) return 'draining';
  if (decision.suspend?.includes(id)) return 'suspended';
  return decision.park?.includes(id) ? 'parked' : state;
}

/** Another pod took the capacity meanwhile; the next pass reports it. */
function isOverCapacity(reason: unknown): boolean {
  return reason instanceof ProblemError && reason.code === 'over_capacity';
}

/** Before the first deployment, no handler exists that workers could run. */
function limitWorkers({ source, version, workersMax, workersMin }: EndpointDeployment) {
  const hasHandler = source !== 'VERSION' || version !== undefined;
  return hasHandler ? { workersMax, workersMin } : { workersMax: 0, workersMin: 0 };
}

/** Whether a new worker would get the same version, template version, network volume and GPU type. */
function isCurrent(
  { spec }: PodState,
  deployment: EndpointDeployment,
  template: TemplateRecord | undefined,
): boolean {
  const { gpuTypeIds, templateId, version } = deployment;
  if (!template || spec.template !== templateId || spec.version !== version) return false;
  const isOfType = spec.gpu ? gpuTypeIds.includes(spec.gpu.id) : gpuTypeIds.length === 0;
  if (!isDeepStrictEqual(spec.mounts, listMounts(deployment))) return false;
  return isOfType && spec.templateVersion === template.version;
}

function sum(numbers: Iterable<number>): number {
  return [...numbers].reduce((total, number) => total + number, 0);
}
