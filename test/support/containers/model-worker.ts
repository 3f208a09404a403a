// A supervisor and its worker in a container of the simulation: a real worker with a model on a simulated GPU. The seed decides
// what fails: each step of a park and of a wake, the ledger, the processes and the link.
import { type Clock, callAfterRun, sleep } from '../../../src/base/clock.ts';
import type { ParkWay } from '../../../src/base/process/parkables.ts';
import type { ProcessIdentity } from '../../../src/base/process/process-table.ts';
import { readHandler } from '../../../src/handler/loading/load.ts';
import type { Device, WorkerBye, WorkerLink } from '../../../src/wire/link/worker-link.ts';
import { type ExecutorParking, NoDeviceRoomError } from '../../../src/worker/execution/executor.ts';
import { InlineExecutor } from '../../../src/worker/execution/inline-executor.ts';
import { LedgerMachine } from '../../../src/worker/parking/machine.ts';
import type { ShownParking } from '../../../src/worker/parking/worker-parking.ts';
import { createWorker, type Worker } from '../../../src/worker/worker.ts';
import { NO_OBSERVER } from '../../../src/worker/worker-options.ts';
import { FlakyLink, type Weather } from '../../simulation/flaky-link.ts';
import type { ModelMachine } from './model-machine.ts';

/** A kernel that never ends: the driver gives the lock up, and the model ends. */
const LOCK_MS = 10_000;
const MAX_RESTART_MS = 2_000;
const BYE_LIMIT_MS = 10_000;

export interface ModelHabits {
  way: ParkWay;
  /** Memory of the model on the GPU. */
  bytes: number;
  bootMs: number;
  moveMs: number;
  jobMs: number;
  hostLimitBytes: number;
}

export interface ModelWorld {
  clock: Clock;
  machine: ModelMachine;
  random: () => number;
  /** Share of steps that fail, 0 to 1. */
  faults: () => number;
  weather: () => Weather;
  /** Processes that died while they took jobs: each may lose one. */
  kills: { working: number };
}

export interface ModelWorkerOptions extends ModelHabits {
  world: ModelWorld;
  podId: string;
  workerId: string;
  gpu: string;
  gpuType: string;
  isSpare: boolean;
  openLink: () => WorkerLink | undefined;
  /** The supervisor exits. */
  onExit: () => void;
}

interface Process {
  identity: ProcessIdentity;
  incarnation: number;
  link: FlakyLink;
  worker: Worker;
  model: Model;
  state: ShownParking;
}

export class ModelWorker {
  readonly #options: ModelWorkerOptions;
  #process: Process | undefined;
  #incarnation = 0;
  #isOver = false;

  constructor(options: ModelWorkerOptions) {
    this.#options = options;
    this.#start();
  }

  get isResident(): boolean {
    return (
      this.#process !== undefined && this.#options.world.machine.isLoaded(this.#process.identity)
    );
  }

  /** The container ends, with all of its processes. */
  kill(): void {
    this.#isOver = true;
    this.#endProcess();
  }

  /** The worker's process dies; its supervisor lives on. */
  crash(): void {
    const dead = this.#endProcess();
    if (dead) void this.#replace(dead);
  }

  #endProcess(): Process | undefined {
    const { kills, machine } = this.#options.world;
    const dead = this.#process;
    if (!dead) return undefined;
    this.#process = undefined;
    if (dead.state === 'ready' || dead.model.running > 0) kills.working++;
    dead.link.kill();
    machine.endProcess(dead.identity);
    return dead;
  }

  async #replace({ incarnation, state }: Process): Promise<void> {
    const { onExit, workerId, world } = this.#options;
    const { clock, random } = world;
    const link = this.#createLink();
    const until = clock.now() + BYE_LIMIT_MS;
    const bye: WorkerBye = { workerId, incarnation, reason: 'crashed', outbox: [] };
    const hasSaid = async () => {
      for (; clock.now() < until && !this.#isOver; await sleep(clock, 500)) {
        try {
          return await link.bye(bye);
        } catch {
          // Again.
        }
      }
    };
    await hasSaid();
    if (this.#isOver) return;
    // The GPU may be another worker's by now.
    if (state === 'parked' || state === 'suspended') return onExit();
    await sleep(clock, Math.floor(random() * MAX_RESTART_MS));
    this.#start();
  }

  #createLink(): FlakyLink {
    const { openLink: platform, world } = this.#options;
    const { clock, random, weather } = world;
    return new FlakyLink({ clock, random, weather, platform, onReply: () => undefined });
  }

  #start(): void {
    if (this.#isOver) return;
    const { bytes, gpu, gpuType, hostLimitBytes, isSpare, workerId, world } = this.#options;
    const { clock, faults, machine, random } = world;
    const identity = machine.startProcess();
    // The successor of a spare worker is none.
    const isFirst = this.#incarnation === 0;
    const incarnation = Math.max(clock.now(), this.#incarnation + 1);
    this.#incarnation = incarnation;
    const link = this.#createLink();
    const model = new Model(this.#options, identity, () => {
      if (this.#process?.identity === identity) this.crash();
    });
    const ledger = machine.openLedger(identity, () => {
      if (random() < faults() / 4) throw new Error('no space left on device');
    });
    const readMemory = async () => {
      const memory = machine.readMemory(gpu);
      // nvidia-smi may be slow, and what it says is then old.
      if (random() < 0.3) await sleep(clock, Math.floor(random() * 2_000));
      return random() < 0.02 ? undefined : memory;
    };
    const parkingMachine = new LedgerMachine({
      ...{ ledger, workerId, device: gpu, hostLimitBytes, readMemory, process: identity, clock },
    });
    const device: Device = {
      ...{ kind: 'gpu', index: 0, uuid: gpu, name: gpuType, memoryBytes: 1, gpuTypeId: gpuType },
    };
    const worker = createWorker({
      ...{ link, executor: new ModelExecutor(model, clock), parkingMachine },
      ...{ workerId, incarnation, version: 'simulated', devices: [device], clock },
      isSpare: isSpare && isFirst,
      observer: {
        ...NO_OBSERVER,
        parkingChanged: (state) => {
          own.state = state;
        },
      },
    });
    const own: Process = { identity, incarnation, link, worker, model, state: 'ready' };
    this.#process = own;
    worker.start().then(
      () => worker.noteGpuFigures({ vramBytes: bytes, vramScope: 'process' }),
      () => undefined,
    );
    void worker.ended.then((state) => {
      if (this.#process !== own) return;
      const isOver = state.name === 'stopped' && !state.recycle;
      const dead = this.#endProcess();
      if (isOver) this.#options.onExit();
      else if (dead) void this.#replace(dead);
    });
  }
}

/** The model of one process. */
class Model implements ExecutorParking {
  running = 0;
  readonly #options: ModelWorkerOptions;
  readonly #identity: ProcessIdentity;
  readonly #die: () => void;
  /** It is not on the GPU, and its process has ended. */
  #isCold = false;
  /** Lets the jobs of its executor stand still. */
  executor: InlineExecutor | undefined;
  #goOn: (() => void) | undefined;

  constructor(options: ModelWorkerOptions, identity: ProcessIdentity, die: () => void) {
    this.#options = options;
    this.#identity = identity;
    this.#die = die;
  }

  async start(): Promise<void> {
    await this.#take(this.#options.bootMs);
  }

  stop(): void {
    this.#options.world.machine.free(String(this.#identity.pid));
  }

  /** A job of this worker. */
  async run(signal: AbortSignal): Promise<void> {
    const { jobMs, podId, world } = this.#options;
    if (!world.machine.isLoaded(this.#identity))
      this.#accuse(`${podId} runs a job without its model`);
    this.running += 1;
    await this.#compute(Math.ceil(jobMs * (0.5 + world.random())), signal);
    // One that is stopped may be suspended.
    const hasLost = !signal.aborted && !world.machine.isLoaded(this.#identity);
    if (hasLost) this.#accuse(`${podId} lost its model in a job`);
    this.running -= 1;
    signal.throwIfAborted();
  }

  /** Until it has had so much time on the GPU. */
  #compute(ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const standstill = this.executor?.standstill ?? { ms: 0 };
    const cancel = callAfterRun(this.#options.world.clock, ms, standstill, resolve);
    signal.addEventListener('abort', () => {
      cancel();
      resolve();
    });
    return promise;
  }

  async canSuspend(): Promise<boolean> {
    return this.#options.way === 'driver';
  }

  async suspend(): Promise<{ bytes: number; failure?: string }> {
    const { bytes, moveMs, world } = this.#options;
    const { clock } = world;
    this.#goOn ??= this.executor?.standStill();
    const fault = this.#chooseFault('lock', 'late', 'killed', 'thrown');
    if (fault === 'lock') {
      await sleep(clock, LOCK_MS);
      return { bytes: 0, failure: 'a kernel still runs' };
    }
    await sleep(clock, fault === 'late' ? 20 * moveMs : moveMs);
    if (fault === 'thrown') throw new Error('the thread has died');
    if (fault === 'killed') this.#die();
    this.stop();
    return { bytes };
  }

  async findWay(): Promise<ParkWay> {
    await sleep(this.#options.world.clock, 300);
    return this.#options.way;
  }

  async letGo(how: 'parked' | 'ended'): Promise<number | undefined> {
    const { bytes, moveMs, podId, way, world } = this.#options;
    const { clock, random } = world;
    if (this.running > 0) this.#accuse(`${podId} is parked while it runs a job`);
    if (this.#isCold) return 0;
    const fault =
      how === 'ended' ? 'ended' : this.#chooseFault('ended', 'late', 'lock', 'killed', 'thrown');
    if (fault === 'lock') await sleep(clock, LOCK_MS);
    await sleep(clock, fault === 'late' ? 20 * moveMs : moveMs);
    if (fault === 'thrown') throw new Error('the thread has died');
    if (fault === 'killed') this.#die();
    this.stop();
    if (fault === 'ended' || fault === 'lock') {
      this.#isCold = true;
      return 0;
    }
    return way === 'hooks' && random() < 0.2 ? undefined : bytes;
  }

  async wakeUp(): Promise<void> {
    const { bootMs, bytes, gpu, moveMs, world } = this.#options;
    const { clock, machine } = world;
    if (machine.isLoaded(this.#identity)) return this.#endStandstill();
    if (!machine.hasRoom(gpu, bytes)) throw new NoDeviceRoomError('full');
    const fault = this.#chooseFault('cold', 'late', 'killed', 'thrown', 'no room');
    if (fault === 'no room') throw new NoDeviceRoomError('full, they say');
    if (fault === 'late') await sleep(clock, 20 * moveMs);
    if (fault === 'thrown') throw new Error('the model does not start');
    if (fault === 'killed') {
      await sleep(clock, Math.ceil(moveMs / 2));
      return this.#die();
    }
    await this.#take(fault === 'cold' || this.#isCold ? bootMs : moveMs);
    this.#isCold = false;
    this.#endStandstill();
  }

  #endStandstill(): void {
    this.#goOn?.();
    this.#goOn = undefined;
  }

  /** Its memory is taken at once. */
  async #take(ms: number): Promise<void> {
    const { bytes, gpu, podId: owner, world } = this.#options;
    world.machine.load(this.#identity, { gpu, owner, bytes });
    await sleep(world.clock, ms);
  }

  #chooseFault<T extends string>(...faults: T[]): T | undefined {
    const { faults: share, random } = this.#options.world;
    return random() < share() ? faults[Math.floor(random() * faults.length)] : undefined;
  }

  #accuse(text: string): void {
    const { machine } = this.#options.world;
    if (!machine.isDead(this.#identity)) machine.violations.push(text);
  }
}

class ModelExecutor extends InlineExecutor {
  readonly parking: ExecutorParking;
  readonly #model: Model;

  constructor(model: Model, clock: Clock) {
    const handler = readHandler(async (_: unknown, { signal }: { signal: AbortSignal }) => {
      await model.run(signal);
      return 1;
    }, 'simulated');
    super({ handler, devices: [], slots: 1, clock });
    this.parking = model;
    model.executor = this;
    this.#model = model;
  }

  override async start() {
    await this.#model.start();
    return super.start();
  }

  override async stop() {
    await super.stop();
    this.#model.stop();
  }
}
