// Runs handlers in threads: keeps a thread running for each lane and gives each job to the thread
// with the most free slots. A piscina task is a whole lane here, not a job; jobs are sent over the
// lane's own port (see lane.ts).
import { getCompileCacheDir } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ResourceLimits } from 'node:worker_threads';
import { Piscina } from 'piscina';
import { backoffMs } from '../../base/backoff.ts';
import { type Clock, Standstill, systemClock } from '../../base/clock.ts';
import { addKnown, type ParkWay } from '../../base/process/parkables.ts';
import { createRandomId } from '../../base/random-id.ts';
import type { BatchEvent } from '../../handler/batch/settings.ts';
import type { LoadedConfig } from '../../handler/loading/load.ts';
import { findContextLoss } from '../../handler/thrown.ts';
import { LIMITS } from '../../wire/job/job.ts';
import type { Device, Lease } from '../../wire/link/worker-link.ts';
import { nameTempFolder, removeFolder } from '../leftovers.ts';
import {
  countSlots,
  type Execution,
  type ExecutionSink,
  type Executor,
  type ExecutorOptions,
  type ExecutorParking,
  type ExecutorStart,
  HandlerNotLoadedError,
  ManagedExecution,
  NoDeviceRoomError,
} from './executor.ts';
import { Lane } from './lane.ts';
import type { LaneTask, ParkingAct, ParkingAnswer } from './thread-messages.ts';

export interface ThreadExecutorOptions extends ExecutorOptions {
  handlerPath: string;
  /** Named in the spans of attempts. Default: not named. */
  endpointId?: string;
  /** Default 1. */
  threads?: number;
  /** Concurrent jobs in one thread. Default: the handler's `config.concurrency`, else 1. */
  concurrency?: number;
  devices: readonly Device[];
  /** Folder for files of attempts; created when one needs it, and removed by `stop`. Default: in the system's temporary folder. */
  tempFolder?: string;
  /**
   * Limit for loading the module and its setup, ms. Default: the handler's config, else 600,000.
   */
  setupTimeoutMs?: number;
  /** Limit for the handler's teardown in `stop`, ms; then the thread is killed. Default 5,000. */
  teardownMs?: number;
  /** Limit for examining a thread before it is killed, ms. Default 250. */
  examineMs?: number;
  /**
   * A thread that has not ended this long after its termination is stuck in native code, ms. Default
   * 5,000: on an overloaded machine, a sound thread was seen to take more than 1 s.
   */
  terminateMs?: number;
  resourceLimits?: ResourceLimits;
  /** Also receives all log lines of jobs and threads as NDJSON. */
  logDestination?: { write(lines: Uint8Array): unknown };
}

const DEFAULTS = {
  threads: 1,
  graceMs: 2_000,
  windowBytes: 4 * 1_048_576,
  teardownMs: 5_000,
  examineMs: 250,
  terminateMs: 5_000,
};

const RELAUNCH_BACKOFF = { baseMs: 500, maxMs: 30_000, jitter: 0.2 };

/** How long a surplus thread of piscina stays, ms. */
const SPARE_MS = 1_000;

/** How long `stop` waits for a thread that was terminated but does not end, ms. */
const DESTROY_MS = 1_000;

const entry = fileURLToPath(new URL(`./thread-entry${extname(import.meta.url)}`, import.meta.url));

export class ThreadExecutor implements Executor {
  readonly #options: ThreadExecutorOptions & typeof DEFAULTS;
  readonly #tempFolder: string;
  #launched = 0;
  readonly #clock: Clock = systemClock;
  readonly standstill = new Standstill(() => this.#clock.now());
  readonly #lanes = new Set<Lane>();
  readonly #waiting = new Set<ManagedExecution>();
  readonly #running = new Set<ManagedExecution>();
  readonly #relaunches = new Set<() => void>();
  /** Lanes that are about to end and already have a successor. */
  readonly #replaced = new WeakSet<Lane>();
  readonly #listeners: (() => void)[] = [];
  readonly #batchListeners: ((event: BatchEvent) => void)[] = [];
  readonly #startListeners: ((start: ExecutorStart) => void)[] = [];
  #pool: Piscina<LaneTask, void> | undefined;
  #starting: PromiseWithResolvers<LoadedConfig> | undefined;
  #isStopping = false;
  /** Threads in a row that died before they completed a job. */
  #earlyDeaths = 0;
  #slots = 0;
  #isParked = false;
  /** Threads that ended while their models were parked. */
  #owedLaunches = 0;
  #trouble: string | undefined;
  #stuckThread: string | undefined;

  constructor(options: ThreadExecutorOptions) {
    this.#options = { ...DEFAULTS, ...options };
    this.#tempFolder = options.tempFolder ?? nameTempFolder(createRandomId());
  }

  get slots(): number {
    return this.#slots;
  }

  get free(): number {
    let free = -this.#waiting.size;
    for (const lane of this.#lanes) free += lane.free;
    return Math.max(0, free);
  }

  get freeForMs(): number | undefined {
    let freeForMs: number | undefined;
    for (const lane of this.#lanes) {
      const ms = lane.free > 0 ? lane.freeForMs : undefined;
      if (ms !== undefined) freeForMs = Math.min(ms, freeForMs ?? ms);
    }
    return freeForMs;
  }

  get trouble(): string | undefined {
    return this.#trouble;
  }

  get stuckThread(): string | undefined {
    return this.#stuckThread;
  }

  get parking(): ExecutorParking | undefined {
    const hasGpu = this.#options.devices.some(({ kind }) => kind === 'gpu');
    if (!hasGpu) return undefined;
    return {
      findWay: () => this.#findParkWay(),
      letGo: (how) => this.#letGo(how),
      canSuspend: () => this.#canSuspend(),
      suspend: () => this.#suspend(),
      wakeUp: (how) => this.#wakeUp(how),
    };
  }

  async #findParkWay(): Promise<ParkWay | undefined> {
    const ways = (await this.#askLanes('describe')).map((answer) => answer?.way);
    if (ways.length === 0 || ways.includes(undefined)) return undefined;
    return ways.includes('driver') ? 'driver' : 'hooks';
  }

  async #letGo(how: 'parked' | 'ended'): Promise<number | undefined> {
    this.#isParked = true;
    const { teardownMs } = this.#options;
    // A thread that starts would have its model on the device soon: another one starts at the wake.
    const others = [...this.#lanes].filter((lane) => !lane.isServing);
    const [answers] = await Promise.all([
      this.#askLanes(how === 'parked' ? 'park' : 'end'),
      ...others.map((lane) => lane.close(teardownMs)),
    ]);
    const freed = answers.map((answer) => (answer ? answer.bytes : 0));
    return freed.reduce((sum, bytes) => addKnown(sum, bytes), 0);
  }

  async #canSuspend(): Promise<boolean> {
    const answers = await this.#askLanes('probe');
    return answers.length > 0 && answers.every((answer) => answer?.canSuspend === true);
  }

  async #suspend(): Promise<{ bytes: number; failure?: string | undefined }> {
    this.#isParked = true;
    this.standstill.begin();
    if ([...this.#lanes].some((lane) => !lane.isServing)) {
      return { bytes: 0, failure: 'a thread of the worker is starting or ending' };
    }
    const answers = (await this.#askLanes('suspend')).flatMap((answer) => answer ?? []);
    return {
      bytes: answers.reduce((sum, { bytes = 0 }) => sum + bytes, 0),
      failure: answers.find(({ failure }) => failure)?.failure?.message,
    };
  }

  async #wakeUp(how: 'together' | 'in turn'): Promise<void> {
    const answers =
      how === 'together' ? await this.#askLanes('wake') : await this.#wakeLanesInTurn();
    const failures = answers.flatMap((answer) => answer?.failure ?? []);
    const [failure] = failures;
    if (failures.some(({ hasNoRoom }) => hasNoRoom)) {
      // Those that have woken would hold a part of the room that all wait for.
      await this.#askLanes(this.standstill.isOn ? 'suspend' : 'park');
      throw new NoDeviceRoomError(failure?.message);
    }
    this.standstill.end();
    this.#isParked = false;
    // A model process that does not start is tried again; until then, its calls return their jobs to the queue.
    for (; this.#owedLaunches > 0; this.#owedLaunches -= 1) this.#launch();
  }

  #askLanes(act: ParkingAct): Promise<(ParkingAnswer | undefined)[]> {
    return Promise.all([...this.#lanes].map((lane) => lane.askParking(act)));
  }

  async #wakeLanesInTurn(): Promise<(ParkingAnswer | undefined)[]> {
    const answers: (ParkingAnswer | undefined)[] = [];
    for (const lane of [...this.#lanes]) {
      const answer = await lane.askParking('wake');
      answers.push(answer);
      if (answer?.failure?.hasNoRoom) break;
    }
    return answers;
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  onBatch(listener: (event: BatchEvent) => void): void {
    this.#batchListeners.push(listener);
  }

  onStarted(listener: (start: ExecutorStart) => void): void {
    this.#startListeners.push(listener);
  }

  async start(): Promise<LoadedConfig> {
    this.#isStopping = false;
    this.#starting = Promise.withResolvers();
    this.#pool = this.#createPool();
    for (let index = 0; index < this.#options.threads; index += 1) this.#launch();
    try {
      return await this.#starting.promise;
    } catch (error) {
      await this.stop();
      throw error;
    } finally {
      this.#starting = undefined;
    }
  }

  execute(lease: Lease, timeoutMs: number, sink: ExecutionSink): Execution {
    const { graceMs } = this.#options;
    const clock = this.#clock;
    const onAbandoned = (abandoned: ManagedExecution) => this.#waiting.delete(abandoned);
    const { standstill } = this;
    const terms = { lease, timeoutMs, graceMs, sink, clock, standstill, onAbandoned };
    const job = new ManagedExecution(terms);
    this.#waiting.add(job);
    if (this.#isStopping) job.stop('shutdown');
    else this.#dispatch();
    return job;
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#starting?.reject(new HandlerNotLoadedError('stopped before it was ready'));
    for (const cancel of this.#relaunches) cancel();
    this.#relaunches.clear();
    for (const job of this.#waiting) job.stop('shutdown');
    for (const lane of this.#lanes) lane.stopJobs();
    await Promise.all([...this.#running].map((job) => job.end));
    const { teardownMs } = this.#options;
    await Promise.all([...this.#lanes].map((lane) => lane.close(teardownMs)));
    const pool = this.#pool;
    this.#pool = undefined;
    if (pool) await this.#destroy(pool);
    await removeFolder(this.#tempFolder);
  }

  #createPool(): Piscina<LaneTask, void> {
    const { threads, resourceLimits } = this.#options;
    const pool = new Piscina<LaneTask, void>({
      minThreads: threads,
      // A killed thread may take long to end; its successor runs beside it.
      maxThreads: 2 * threads,
      concurrentTasksPerWorker: 1,
      // Lanes never leave their thread idle, so surplus threads may end soon.
      idleTimeout: SPARE_MS,
      // The other modes freeze a thread's event loop while it has no task.
      atomics: 'disabled',
      recordTiming: false,
      ...(resourceLimits ? { resourceLimits } : {}),
    });
    // A thread died during its start: piscina keeps its lane in the queue.
    pool.on('error', (error: Error) => {
      for (const lane of this.#lanes) if (!lane.isUp) lane.abandon(error.message);
    });
    return pool;
  }

  #launch(): void {
    const pool = this.#pool;
    if (!pool || this.#isStopping) return;
    // Its setup would start a model on a device that is another one's.
    if (this.#isParked) {
      this.#owedLaunches += 1;
      return;
    }
    const { handlerPath, endpointId, devices, windowBytes, concurrency, setupTimeoutMs } =
      this.#options;
    const { outputBytes, chunkTotalBytes } = LIMITS;
    const limits = { outputBytes, chunkTotalBytes };
    const tempParent = join(this.#tempFolder, `${++this.#launched}`);
    const lane = new Lane({
      pool,
      entry,
      task: {
        handlerPath,
        endpointId,
        devices,
        windowBytes,
        limits,
        tempParent,
        describesInput: this.#starting !== undefined,
        codeCache: findCodeCache(),
      },
      concurrency,
      setupTimeoutMs,
      examineMs: this.#options.examineMs,
      terminateMs: this.#options.terminateMs,
      teardownMs: this.#options.teardownMs,
      memoryLimitMb: this.#options.resourceLimits?.maxOldGenerationSizeMb,
      writeLog: (lines) => this.#options.logDestination?.write(lines),
      events: {
        onReady: (ready, config) => this.#welcome(ready, config),
        onFree: () => this.#dispatch(),
        onBatch: (event) => {
          for (const listener of this.#batchListeners) listener(event);
        },
        onModelStart: (start) => this.#announceStart({ of: 'model', ...start }),
        onClosing: (closing) => this.#launchSuccessor(closing),
        onStuck: (stuck, reason) => this.#giveUp(stuck, reason),
        onGone: (gone, reason) => {
          // The attempts of a thread that died could not remove their files.
          void removeFolder(tempParent);
          this.#replace(gone, reason);
        },
      },
    });
    this.#lanes.add(lane);
  }

  #announceStart(start: ExecutorStart): void {
    for (const listener of this.#startListeners) listener(start);
  }

  #welcome(ready: Lane, config: LoadedConfig): void {
    const { threads, concurrency } = this.#options;
    this.#slots = threads * countSlots(config, concurrency);
    const serving = [...this.#lanes].filter((lane) => lane.isServing);
    if (serving.length === threads) {
      this.#trouble = undefined;
      if (this.#starting) this.#announceStart(ready.measureStart());
      else if (ready.modelStart) this.#announceStart({ of: 'model', ...ready.modelStart });
      this.#starting?.resolve(config);
    }
    this.#dispatch();
  }

  /**
   * The successor starts while the lane ends, so that slots are soon available again. On a GPU it
   * starts afterwards, because the memory may not hold two setups.
   */
  #launchSuccessor(lane: Lane): void {
    if (this.#isStopping || this.#options.devices.some(({ kind }) => kind === 'gpu')) return;
    this.#replaced.add(lane);
    this.#earlyDeaths = 0;
    this.#launch();
  }

  #giveUp(lane: Lane, reason: string): void {
    this.#stuckThread = reason;
    this.#starting?.reject(new HandlerNotLoadedError(reason, { stage: lane.stage }));
    this.#reportTrouble(reason);
  }

  #replace(lane: Lane, reason: string): void {
    this.#lanes.delete(lane);
    if (this.#isStopping || this.#replaced.has(lane)) return;
    this.#earlyDeaths = lane.wasUseful ? 0 : this.#earlyDeaths + 1;
    if (this.#starting) {
      const { failedCheck: check, stage } = lane;
      this.#starting.reject(new HandlerNotLoadedError(reason, { stage, check }));
    } else if (findContextLoss(reason) !== undefined) {
      // No thread of this process can use the device from now on.
      this.#giveUp(lane, reason);
    } else if (lane.wasReady && this.#earlyDeaths <= 1) {
      this.#launch();
      this.#notify();
    } else {
      this.#relaunchLater();
      this.#reportTrouble(reason);
    }
  }

  #relaunchLater(): void {
    const waitMs = backoffMs(this.#earlyDeaths, RELAUNCH_BACKOFF);
    const cancel = this.#clock.after(waitMs, () => {
      this.#relaunches.delete(cancel);
      this.#launch();
    });
    this.#relaunches.add(cancel);
  }

  #dispatch(): void {
    for (const job of this.#waiting) {
      const lane = this.#findLane();
      if (!lane) break;
      this.#waiting.delete(job);
      this.#running.add(job);
      void job.end.then(() => this.#running.delete(job));
      lane.run(job);
    }
    this.#notify();
  }

  /** The lane with most free slots; before it, one with a batch that is not full. */
  #findLane(): Lane | undefined {
    let freest: Lane | undefined;
    for (const lane of this.#lanes) {
      if (lane.isFilling && lane.free > 0) return lane;
      if (lane.free > (freest?.free ?? 0)) freest = lane;
    }
    return freest;
  }

  #reportTrouble(trouble: string): void {
    this.#trouble = trouble;
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  async #destroy(pool: Piscina<LaneTask, void>): Promise<void> {
    const destroyed = pool.destroy().catch(() => {
      // A thread may throw while it ends.
    });
    // destroy() waits for all threads, but a stuck thread does not end.
    if (this.#stuckThread !== undefined) return;
    let cancel: () => void = () => undefined;
    const patience = new Promise<void>((resolve) => {
      cancel = this.#clock.after(DESTROY_MS, resolve);
    });
    await Promise.race([destroyed, patience]);
    cancel();
  }
}

/** The folder that was given to Node, which keeps the code of each of its versions in a folder of its own. */
function findCodeCache(): string | undefined {
  const folder = getCompileCacheDir();
  return folder === undefined ? undefined : dirname(folder);
}
