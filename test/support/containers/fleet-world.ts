// Endpoints with workers in one process: real queue, pods and fleet on a store in memory,
// containers as entries in a map, and a clock that the test drives. In each container a simulated
// worker runs.

import { callAfterRun, ManualClock, Standstill, sleep } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { addToBill } from '../../../src/control/billing/bill-rows.ts';
import { GpuUse } from '../../../src/control/billing/billing-keeper.ts';
import { Catalog, UserCatalog } from '../../../src/control/endpoints/catalog.ts';
import { composeCatalog } from '../../../src/control/endpoints/catalog-contents.ts';
import { describeVolumes } from '../../../src/control/endpoints/endpoint-records.ts';
import { Endpoints } from '../../../src/control/endpoints/endpoints.ts';
import { openTemplates, type Templates } from '../../../src/control/endpoints/templates.ts';
import { Keys } from '../../../src/control/keys/keys.ts';
import type { Amounts } from '../../../src/control/limits/capacity.ts';
import { Pods } from '../../../src/control/pods/pods.ts';
import { Reconciler } from '../../../src/control/pods/reconciler.ts';
import { Decisions } from '../../../src/control/scaling/decisions.ts';
import { Fleet } from '../../../src/control/scaling/fleet.ts';
import type { ParkWish, SeenWorker, WorkView } from '../../../src/control/scaling/work-view.ts';
import { type GoneWorker, WorkerPods } from '../../../src/control/scaling/worker-pods.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { OWNER, type Store } from '../../../src/store/store.ts';
import type { JobPolicy } from '../../../src/wire/job/job.ts';
import type { JobRecord, WaitReason } from '../../../src/wire/job/job-records.ts';
import type {
  Device,
  Lease,
  Outcome,
  ParkingState,
  ReportReply,
  WorkerLink,
  WorkerParking,
} from '../../../src/wire/link/worker-link.ts';
import { type EndpointCreation, endpointCreation } from '../../../src/wire/resources/endpoint.ts';
import { templateCreation } from '../../../src/wire/resources/template.ts';
import { NO_NAMES, NOTHING_CREATED } from '../no-names.ts';
import { completed, Hand } from '../queue-platform.ts';
import { MemoryEngine, MemoryHost } from './memory-engine.ts';
import { type ModelHabits, ModelWorker, type ModelWorld } from './model-worker.ts';

const STEP_MS = 50;
const OUT_OF_MEMORY: Outcome = {
  ...{ kind: 'failed', executionMs: 1, retry: 'default' },
  error: { code: 'gpu_out_of_memory', message: 'CUDA out of memory' },
};
const GB = 2 ** 30;

export interface FleetWorldOptions {
  gpus?: readonly Device[];
  /** Resources that all pods together may request. Default: no limit. */
  limits?: Amounts;
  /** Default 300. */
  bootMs?: number;
  /** How long a job takes. Default 1,000. */
  jobMs?: number;
  /** How long it takes to park a worker and to wake it. Default: workers cannot be parked. */
  parkMs?: number;
  /** Host memory for parked workers, of which each has one byte. Default 10. */
  parkMemory?: number;
  /** Whether workers can be parked in the middle of a job; `never`: they find out that they cannot. Default false. */
  suspends?: boolean | 'never';
  /** Where workers keep their outboxes. Default: `folders`. */
  stateIn?: 'folders' | 'volumes';
  /** Containers have real workers with simulated models. Default: simulated workers. */
  models?: {
    open: (world: FleetWorld) => ModelWorld;
    habitsOf: (endpointId: string) => ModelHabits;
  };
}

/** Load of a load-balancing endpoint, set by the test. */
export interface Requests {
  open: number;
  workers: SeenWorker[];
  drained: string[];
}

interface Running {
  queue: Queue;
  keys: Keys;
  pods: Pods;
  templates: Templates;
  endpoints: Endpoints;
  decisions: Decisions;
  fleet: Fleet;
  close: () => Promise<void>;
}

export class FleetWorld {
  readonly clock = new ManualClock();
  readonly host = new MemoryHost(this.clock);
  readonly store: Store = openSqliteStore({ path: ':memory:' });
  readonly requests: Requests = { open: 0, workers: [], drained: [] };
  /** URL of the platform for workers: new containers get it. */
  url = 'http://platform.test';
  /** URLs of earlier runs at which the platform still answers. */
  readonly oldUrls = new Set<string>();
  /** Behaviour of new workers; the test may change it. */
  readonly habits: {
    bootMs: number;
    jobMs: number;
    isMute: boolean;
    tooSmall: readonly string[];
    parkMs: number | undefined;
    parkMemory: number;
    suspends: boolean | 'never';
  };
  readonly catalog: Catalog;
  readonly #userCatalog: UserCatalog;
  /** Highest number of running pods at one time. */
  most = 0;
  readonly #limits: Amounts | undefined;
  readonly #stateIn: 'folders' | 'volumes';
  readonly #workers = new Map<string, ContainerWorker | ModelWorker>();
  readonly #models:
    | { world: ModelWorld; habitsOf: (endpointId: string) => ModelHabits }
    | undefined;
  #running: Running | undefined;

  constructor({
    bootMs = 300,
    gpus = [],
    jobMs = 1_000,
    limits,
    models,
    parkMemory = 10,
    parkMs,
    stateIn = 'folders',
    suspends = false,
  }: FleetWorldOptions = {}) {
    this.#stateIn = stateIn;
    this.#limits = limits;
    const parking = { parkMs, parkMemory, suspends };
    this.habits = { bootMs, jobMs, isMute: false, tooSmall: [], ...parking };
    const processors = { vcpus: 4, memoryBytes: 8 * GB };
    const sources = { file: undefined, devices: gpus, processors, readPassword: () => '' };
    this.catalog = new Catalog(composeCatalog(sources));
    this.#userCatalog = new UserCatalog(this.catalog, {
      ...NOTHING_CREATED,
      volume: (_userId, id) => ({ id, name: id, dataCenterId: 'local', source: `network-${id}` }),
    });
    this.host.watch((id) => this.#hear(id));
    this.#models = models && { world: models.open(this), habitsOf: models.habitsOf };
  }

  static async open(options?: FleetWorldOptions): Promise<FleetWorld> {
    const world = new FleetWorld(options);
    await world.start();
    return world;
  }

  get platform(): Running {
    if (!this.#running) throw new Error('the platform is not there');
    return this.#running;
  }

  async start(): Promise<void> {
    const { catalog, clock, host, store } = this;
    const log = silentLog;
    const engine = new MemoryEngine(host);
    const keys = await Keys.open({ store, clock });
    const ofUsers = { catalog: this.#userCatalog };
    const templates = await openTemplates({ store, clock, engine: engine.kind, ...ofUsers });
    const limits = this.#limits;
    const pods = await Pods.open({
      store,
      clock,
      engine,
      ...ofUsers,
      templates,
      limits,
      bill: { add: addToBill },
    });
    const volumes = describeVolumes({ ...ofUsers, engine, names: NO_NAMES });
    const deploying = { engine: engine.kind, catalog, templates, volumes, admit: () => {} };
    const endpoints = await Endpoints.open({ store, clock, deploying });
    const decisions = await Decisions.open(store);
    const findScaling = (id: string) => this.#running?.fleet.scalingOf(id) ?? 'unknown';
    const queue = new Queue({ store, clock, log, random: () => 0.5, findScaling });
    await queue.start();
    const url = () => this.url;
    const stateDirOf = async (endpointId: string) => `/workers/${endpointId}`;
    const stateIn = this.#stateIn;
    const readOutbox = stateIn === 'volumes' ? undefined : async () => [];
    const onGone = ({ endpointId, podId }: GoneWorker) =>
      queue.endPod(endpointId, podId, readOutbox);
    const reach = { url, stateDirOf, stateIn, onGone };
    const listWorkers = () => queue.workerLoads.listPresent();
    const workerPods = new WorkerPods({ ...reach, keys, endpoints, pods, clock, log, listWorkers });
    const environmentOf = workerPods.environmentOf.bind(workerPods);
    const stateVolumeOf = workerPods.stateVolumeOf.bind(workerPods);
    const hasEndpoint = (id: string) => endpoints.find(id) !== undefined;
    const seen = { pods: pods.live, meter: pods.meter };
    const parts = { ...seen, engine, clock, log, environmentOf, stateVolumeOf, hasEndpoint };
    const reconciler = new Reconciler({ ...parts, ...ofUsers });
    const views = { QUEUE: queue.workerLoads, LOAD_BALANCER: this.#balancedView() };
    const hasOldUrl = workerPods.hasOldUrl.bind(workerPods);
    const gpuUse = new GpuUse({ store, clock, log });
    const fleet = new Fleet({
      ...{ endpoints, pods, templates, decisions, views, gpuUse, hasOldUrl, catalog, clock, log },
    });
    queue.workerLoads.onWork((endpointId) => fleet.wake(endpointId));
    await workerPods.start();
    await reconciler.start();
    await workerPods.noteEnded();
    fleet.start();
    const close = async () => {
      workerPods.close();
      reconciler.close();
      await Promise.all([fleet.close(), queue.close()]);
    };
    this.#running = { queue, keys, pods, templates, endpoints, decisions, fleet, close };
  }

  /** Stops the platform; its containers and workers stay. */
  async leave(): Promise<void> {
    const { close } = this.platform;
    // Before the queue closes: it then answers takes at once, and workers would ask without a
    // pause.
    this.#running = undefined;
    await close();
  }

  async close(): Promise<void> {
    for (const worker of this.#workers.values()) worker.kill();
    if (this.#running) await this.leave();
    await this.store.close();
  }

  async createTemplate(changes: object = {}): Promise<string> {
    const creation = templateCreation.parse({ name: 't', image: 'worker', ...changes });
    return (await this.platform.templates.create(OWNER, creation)).id;
  }

  async createEndpoint(changes: Partial<EndpointCreation> = {}): Promise<string> {
    const templateId = changes.templateId ?? (await this.createTemplate());
    const creation = endpointCreation.parse({ name: 'e', templateId, ...changes });
    return (await this.platform.endpoints.create(OWNER, creation)).id;
  }

  async submit(endpointId: string, count = 1, policy: JobPolicy = {}): Promise<void> {
    const job = { endpointId, mode: 'run', policy, idempotency: undefined } as const;
    const input = Buffer.from('{}');
    const all = Array.from({ length: count }, () =>
      this.platform.queue.submissions.submit({ ...job, input }),
    );
    await Promise.all(all);
  }

  async run(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += STEP_MS) {
      await this.clock.advance(STEP_MS);
      this.#count();
    }
  }

  /** Advances time until the condition holds. */
  async until(isSo: () => boolean | Promise<boolean>, maxMs = 600_000): Promise<void> {
    for (let passed = 0; !(await isSo()); passed += STEP_MS) {
      if (passed >= maxMs) throw new Error(`it is not so after ${maxMs} ms`);
      await this.run(STEP_MS);
    }
  }

  /** Excludes pods that are being ended. */
  listPods(endpointId: string) {
    return this.platform.pods.ofEndpoint(endpointId).filter(({ desired }) => desired !== 'gone');
  }

  listRunning(): string[] {
    return [...this.host.containers.values()].flatMap(({ seen }) =>
      seen.state === 'running' ? [seen.id] : [],
    );
  }

  /** Pods whose models are on a GPU, by GPU. @throws Error if a GPU has two */
  listResidents(): Map<string, string> {
    const residents = new Map<string, string>();
    for (const [id, worker] of this.#workers) {
      for (const gpu of worker.isResident ? this.host.get(id).spec.gpus : []) {
        const other = residents.get(gpu);
        if (other !== undefined) throw new Error(`${id} and ${other} are on ${gpu}`);
        residents.set(gpu, id);
      }
    }
    return residents;
  }

  worker(podId: string): ContainerWorker {
    const worker = this.#workers.get(podId);
    if (worker instanceof ContainerWorker) return worker;
    throw new Error(`there is no worker in ${podId}`);
  }

  listModelWorkers(): ModelWorker[] {
    return [...this.#workers.values()].filter((each) => each instanceof ModelWorker);
  }

  /** Why the endpoint's newest job waits. */
  async explainWait(endpointId: string): Promise<Partial<WaitReason>> {
    const { jobs } = this.platform.queue;
    const listing = { endpointId, status: undefined, before: undefined, limit: 1 };
    const [job] = (await jobs.list(listing)).jobs;
    const { body } = await jobs.record({ endpointId, id: job?.id ?? '' });
    const { waitReason }: JobRecord = JSON.parse(body.toString());
    return waitReason ?? {};
  }

  async countJobs(endpointId: string) {
    return (await this.platform.queue.health(endpointId)).jobs;
  }

  async explain(endpointId: string) {
    const listing = { endpointId, before: undefined, limit: 1_000 };
    return (await this.platform.decisions.list(listing)).decisions;
  }

  #count(): void {
    this.most = Math.max(this.most, this.listRunning().length);
  }

  #hear(id: string): void {
    this.#count();
    const entry = this.host.containers.get(id);
    const isRunning = entry?.seen.state === 'running';
    const worker = this.#workers.get(id);
    if (isRunning && !worker && !this.habits.isMute) {
      this.#workers.set(id, this.#startWorker(id));
    } else if (!isRunning && worker) {
      this.#workers.delete(id);
      worker.kill();
    }
  }

  #startWorker(podId: string): ContainerWorker | ModelWorker {
    if (!this.#models) return new ContainerWorker(this, podId, { ...this.habits });
    const { habitsOf, world } = this.#models;
    const { env, gpus } = this.host.get(podId).spec;
    const endpointId = env['MILLRACE_ENDPOINT'] ?? '';
    let open: { queue: Queue; link: WorkerLink } | undefined;
    return new ModelWorker({
      ...{ ...habitsOf(endpointId), world, podId, gpu: gpus[0] ?? '' },
      ...{ workerId: env['MILLRACE_WORKER_ID'] ?? '', gpuType: env['MILLRACE_GPU_TYPE'] ?? '' },
      isSpare: env['MILLRACE_SPARE'] !== undefined,
      // One link for each run of the platform: an answer of the run before is lost.
      openLink: () => {
        if (this.#running === undefined || env['MILLRACE_URL'] !== this.url) return undefined;
        const { keys, queue } = this.#running;
        if (open?.queue === queue) return open.link;
        const link = queue.link(endpointId, keys.authenticate(env['MILLRACE_KEY'] ?? '')?.podId);
        open = { queue, link };
        return link;
      },
      onExit: () => this.host.end(podId, 0),
    });
  }

  #balancedView(): WorkView {
    const { requests } = this;
    return {
      load: async () => ({
        ...{ waiting: 0, running: requests.open, oldestQueuedAt: null },
        workers: requests.workers,
      }),
      drain: (_endpointId, podId) => void requests.drained.push(podId),
    };
  }
}

/** The worker in one container. */
export class ContainerWorker {
  finished = 0;
  /** How often it could not be suspended. */
  refusals = 0;
  readonly #world: FleetWorld;
  readonly #podId: string;
  readonly #habits: FleetWorld['habits'];
  readonly #hand: Hand;
  readonly #gpuType: string | undefined;
  readonly #isSpare: boolean;
  readonly #dead = new AbortController();
  readonly #takes = new AbortController();
  #lease: Lease | undefined;
  #isDraining = false;
  #hasLeft = false;
  #state: ParkingState = 'ready';
  #change = 0;
  #wish: ParkWish = 'ready';
  readonly #standstill: Standstill;
  #isMoving = false;

  constructor(world: FleetWorld, podId: string, habits: FleetWorld['habits']) {
    this.#world = world;
    this.#podId = podId;
    this.#habits = habits;
    this.#standstill = new Standstill(() => world.clock.now());
    const { env } = world.host.get(podId).spec;
    const { MILLRACE_ENDPOINT = '', MILLRACE_KEY = '', MILLRACE_WORKER_ID = '' } = env;
    const { MILLRACE_URL = '' } = env;
    this.#gpuType = env['MILLRACE_GPU_TYPE'];
    this.#isSpare = env['MILLRACE_SPARE'] !== undefined;
    if (this.#isSpare) this.#wish = 'parked';
    const openLink = () => {
      const { keys, queue } = world.platform;
      const isReached = MILLRACE_URL === world.url || world.oldUrls.has(MILLRACE_URL);
      if (!isReached) throw new Error(`nothing answers at ${MILLRACE_URL}`);
      return queue.link(MILLRACE_ENDPOINT, keys.authenticate(MILLRACE_KEY)?.podId);
    };
    this.#hand = new Hand(openLink, {
      ...{ id: MILLRACE_WORKER_ID, slots: 1, incarnation: world.clock.now() },
    });
    void this.#live();
  }

  /** Its model is on the GPU. */
  get isResident(): boolean {
    return this.#state !== 'parked';
  }

  /** Kills the worker's process without a bye. */
  kill(): void {
    this.#dead.abort();
    this.#takes.abort();
  }

  async #live(): Promise<void> {
    await sleep(this.#world.clock, this.#habits.bootMs, this.#dead.signal);
    const gpuTypeId = this.#gpuType;
    const gpu = { kind: 'gpu', index: 0, uuid: 'GPU', name: 'GPU', memoryBytes: 1, gpuTypeId };
    const devices = gpuTypeId === undefined ? [] : [gpu];
    await this.#persist(() => this.#hand.hello([], undefined, { devices }));
    void this.#renew();
    if (this.#isSpare && this.#habits.parkMs !== undefined) void this.#move();
    while (!this.#isDraining && !this.#dead.signal.aborted) {
      if (this.#state === 'ready' && this.#wish === 'ready') await this.#workOnce();
      else await sleep(this.#world.clock, 10, this.#dead.signal);
    }
    this.#hasLeft = true;
    await this.#persist(() => this.#hand.bye('drained'));
    if (!this.#dead.signal.aborted) this.#world.host.end(this.#podId, 0);
  }

  async #workOnce(): Promise<void> {
    const { signal } = this.#takes;
    const leases = await this.#persist(() => this.#hand.take({ waitMs: 20_000, signal }));
    for (const lease of leases ?? []) {
      this.#lease = lease;
      await this.#compute(this.#habits.jobMs);
      const isTooSmall = this.#habits.tooSmall.includes(this.#gpuType ?? '');
      const reply = await this.#persist(() =>
        isTooSmall ? this.#hand.finish(lease, OUT_OF_MEMORY) : this.#complete(lease),
      );
      this.#lease = undefined;
      if (isTooSmall) continue;
      if (reply?.answer === 'applied') this.finished++;
    }
  }

  /** For so long; time in which it stands still does not count. */
  #compute(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = callAfterRun(this.#world.clock, ms, this.#standstill, resolve);
    this.#dead.signal.addEventListener('abort', () => {
      cancel();
      resolve();
    });
    return promise;
  }

  /** A worker on a GPU reports for how long it used it. */
  #complete(lease: Lease): Promise<ReportReply> {
    const gpu = { seconds: this.#habits.jobMs / 1_000, shared: false };
    const used = this.#gpuType !== undefined && { usage: { gpu } };
    return this.#hand.finish(lease, completed, { body: '1', ...used });
  }

  /** Renews while it drains too, until its job has ended. */
  async #renew(): Promise<void> {
    const { signal } = this.#dead;
    while (!signal.aborted && !this.#hasLeft) {
      const leases = this.#lease ? [this.#lease] : [];
      const parking = this.#describeParking();
      const asked = { waitMs: 5_000, signal, parking };
      const reply = await this.#persist(() => this.#hand.renew(leases, asked));
      if (reply?.parking) this.#follow(reply.parking);
      if (!reply?.drain) continue;
      this.#isDraining = true;
      this.#takes.abort();
    }
  }

  #describeParking(): WorkerParking | undefined {
    const { parkMemory, parkMs, suspends } = this.#habits;
    if (parkMs === undefined) return undefined;
    const vramBytes = this.#state === 'parked' ? 1 : 0;
    const [state, change] = [this.#state, this.#change];
    const about = { vramBytes, hostLimitBytes: parkMemory };
    const suspended = this.#standstill.isOn && { suspended: true };
    const able = suspends !== false && { suspendable: true, refusals: this.refusals };
    return { way: 'driver', state, change, ...about, ...able, ...suspended };
  }

  /** Lets its job end, then goes to the host or back. */
  async #move(): Promise<void> {
    if (this.#isMoving) return;
    this.#isMoving = true;
    const { clock } = this.#world;
    const { signal } = this.#dead;
    while (!signal.aborted && (this.#wish === 'ready') !== (this.#state === 'ready')) {
      const to = this.#wish;
      if (to === 'suspended') this.#standstill.begin();
      this.#enter(to === 'ready' ? 'waking' : 'parking');
      while (to === 'parked' && this.#lease && !signal.aborted) await sleep(clock, 10, signal);
      await sleep(clock, this.#habits.parkMs ?? 0, signal);
      const isRefused = to === 'suspended' && this.#habits.suspends === 'never';
      if (isRefused) this.refusals++;
      if (to === 'ready' || isRefused) this.#standstill.end();
      this.#enter(to === 'ready' || isRefused ? 'ready' : 'parked');
      if (isRefused) break;
    }
    this.#isMoving = false;
  }

  #enter(state: ParkingState): void {
    this.#state = state;
    this.#change++;
    const parking = this.#describeParking();
    void this.#persist(() => this.#hand.renew([], { parking })).then((reply) => {
      if (reply?.parking) this.#follow(reply.parking);
    });
  }

  #follow(wish: ParkWish): void {
    if (wish === this.#wish) return;
    this.#wish = wish;
    void this.#move();
  }

  /** Retries the call until the platform answers; undefined if the worker dies before. */
  async #persist<T>(call: () => Promise<T>): Promise<T | undefined> {
    while (!this.#dead.signal.aborted) {
      try {
        return await call();
      } catch {
        await sleep(this.#world.clock, 500, this.#dead.signal);
      }
    }
    return undefined;
  }
}
