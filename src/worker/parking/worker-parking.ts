// Parks and wakes the models of one worker as the platform wishes. While it does not take jobs, its device may be another
// worker's: it takes the device back only after the ledger has reserved memory for it.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ParkWay } from '../../base/process/parkables.ts';
import type { ParkingState, RenewReply, WorkerParking } from '../../wire/link/worker-link.ts';
import { type Executor, NoDeviceRoomError } from '../execution/executor.ts';

/** Time between two requests for room, ms. */
const ROOM_RETRY_MS = 100;
/** Without room for this long, a new process starts the model anew, ms. */
const ROOM_MS = 60_000;

export interface RoomAnswer {
  isGranted: boolean;
  /** So much memory was seen free; false: nobody tells what is in use. */
  isMeasured: boolean;
  /** IDs of the workers that have the memory. */
  holders: string[];
}

/** Memory of the device and of the host, which workers share. */
export interface ParkingMachine {
  /** For all parked models. */
  readonly hostLimitBytes: number;
  /** Memory of the device in use by anyone, bytes; 0: not known. */
  readUsedBytes(): Promise<number>;
  /** `isMoved`: the memory is the host's already, so it is no longer among what is free. */
  hasHostRoom(bytes: number, isMoved: boolean): Promise<boolean>;
  /** False: others have the memory of the host by now, so the model must end. */
  noteParked(bytes: number): Promise<boolean>;
  /** Promises the memory that the model held, if it is free now. */
  reserve(): Promise<RoomAnswer>;
  noteResident(): Promise<void>;
}

/** `suspended`: parked in the middle of its jobs. */
export type ShownParking = ParkingState | 'suspended';

const NO_HOST_ROOM = { bytes: 0, failure: 'there is no room for it in the memory of the host' };

export type ParkingWish = NonNullable<RenewReply['parking']>;

interface WorkerParkingOptions {
  executor: Executor;
  machine: ParkingMachine | undefined;
  clock: Clock;
  log: Log;
  /** Resolves when no more leases arrive. */
  breakOff: () => Promise<void>;
  /** Breaks off the open take, and resolves when no job runs; see `isQuiet` then. */
  untilQuiet: () => Promise<void>;
  isQuiet: () => boolean;
  /** It is to be parked as soon as it is known how, before its first job. */
  isSpare: boolean;
  /** The worker cannot go on: a new process must replace it. `now`: its jobs stand still, and would never end. */
  onRecycle: (reason: string, pace: 'idle' | 'now') => void;
}

export class WorkerParker {
  readonly #options: WorkerParkingOptions;
  readonly #stopping = new AbortController();
  #way: ParkWay | undefined;
  #state: ParkingState = 'ready';
  #change = 0;
  /** The change that made it `parked` or `ready`. */
  #lastArrival = 0;
  #bytes = 0;
  /** Device memory in use by the worker, by the last sample while it was ready. */
  #usedBytes = 0;
  /** Its hooks do not tell what they have freed. Undefined: they have not run yet. */
  #isSilent: boolean | undefined;
  #wish: ParkingWish = 'ready';
  #wishes = Promise.withResolvers<void>();
  #isMoving = false;
  #canSuspend = false;
  /** It leaves, has left, or returns in the middle of its jobs. */
  #isSuspended = false;
  #refusals = 0;
  readonly #listeners: (() => void)[] = [];

  constructor(options: WorkerParkingOptions) {
    this.#options = options;
    if (options.isSpare) this.#wish = 'parked';
  }

  /** The worker takes no jobs. */
  get isHolding(): boolean {
    return this.#state !== 'ready' || this.#wish === 'parked';
  }

  /** Its jobs stand still. */
  get isSuspended(): boolean {
    return this.#isSuspended && this.#state === 'parked';
  }

  /** For health; undefined if it cannot be parked. */
  get state(): ShownParking | undefined {
    return this.isSuspended ? 'suspended' : this.#way && this.#state;
  }

  /** For the platform; undefined if it cannot be parked. */
  describe(): WorkerParking | undefined {
    const { machine } = this.#options;
    if (!this.#way || !machine) return undefined;
    return {
      way: this.#way,
      state: this.#state,
      change: this.#change,
      vramBytes: this.#bytes,
      hostLimitBytes: machine.hostLimitBytes,
      ...(this.#canSuspend && { suspendable: true }),
      ...(this.#isSuspended && { suspended: true }),
      ...(this.#refusals > 0 && { refusals: this.#refusals }),
    };
  }

  /** Finds out whether the models can be parked; call it when they run. */
  async findWay(): Promise<void> {
    const { executor, isSpare, log, machine } = this.#options;
    const way = machine && (await executor.parking?.findWay());
    if (this.#stopping.signal.aborted) return;
    if (!way) {
      if (isSpare) log.warn('spare worker cannot be parked, waiting for its end');
      // The log of each model process has its reason.
      else if (machine) log.debug('worker has no model that can be parked');
      return;
    }
    this.#way = way;
    log.info({ way }, 'worker can be parked');
    this.#notify();
    void this.#move();
    this.#canSuspend = (await executor.parking?.canSuspend()) ?? false;
    if (this.#canSuspend) this.#notify();
  }

  noteUsedBytes(bytes: number | undefined): void {
    // Without its model, the worker may be shown what others have on the device.
    if (bytes !== undefined && this.#state === 'ready') this.#usedBytes = bytes;
  }

  /**
   * The platform says it in each reply, and which change of the worker it knew: replies overtake each other, and one from before
   * must not wake a parked worker, whose GPU may be another's. @returns whether it is news
   */
  wish(wish: ParkingWish, knownChange = this.#change): boolean {
    if (wish === this.#wish || !this.#way || knownChange < this.#lastArrival) return false;
    this.#wish = wish;
    this.#wishes.resolve();
    this.#wishes = Promise.withResolvers();
    void this.#move();
    return true;
  }

  /** The platform says nothing. It may not know of a wish that the worker could not fulfil, and have the same one again. */
  noteNoWish(): void {
    if (this.#wish === 'suspended' && this.#state === 'ready') this.#wish = 'ready';
  }

  /** The listener is called when the worker may take jobs again, or has another state to report. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  stop(): void {
    this.#stopping.abort();
    this.#wishes.resolve();
  }

  async #move(): Promise<void> {
    if (this.#isMoving) return;
    this.#isMoving = true;
    const { signal } = this.#stopping;
    try {
      while (!signal.aborted) {
        if (this.#wish === 'parked' && this.#state === 'ready') await this.#park();
        else if (this.#wish === 'suspended' && this.#state === 'ready') {
          // After a refusal it stays ready until it is asked again.
          if (!(await this.#suspend())) return;
        } else if (this.#wish === 'ready' && this.#state === 'parked') await this.#wake();
        else return;
      }
    } catch (error) {
      if (signal.aborted) return;
      const reason = error instanceof Error ? error.message : String(error);
      const pace = this.#isSuspended ? 'now' : 'idle';
      this.#options.onRecycle(`the worker could not be parked or woken: ${reason}`, pace);
    } finally {
      this.#isMoving = false;
    }
  }

  async #park(): Promise<void> {
    const { executor, isQuiet, log, machine, untilQuiet } = this.#options;
    if (!machine || !executor.parking) return;
    this.#set('parking');
    while (!isQuiet()) {
      await Promise.race([untilQuiet(), this.#wishes.promise]);
      if (this.#wish === 'ready') return this.#set('ready');
      if (this.#stopping.signal.aborted) return;
    }
    const maySayNothing = this.#way === 'hooks' && this.#isSilent !== false;
    const isNeeded = maySayNothing || this.#usedBytes === 0;
    const before = isNeeded ? await machine.readUsedBytes() : 0;
    // A worker that has just started has no sample.
    if (this.#usedBytes === 0) this.#usedBytes = before;
    // Hooks have their memory in the host before they move.
    const fits = await this.#isTrue(machine.hasHostRoom(this.#usedBytes, this.#way === 'hooks'));
    const freed = await executor.parking.letGo(fits ? 'parked' : 'ended');
    if (this.#way === 'hooks') this.#isSilent = freed === undefined;
    let bytes = freed ?? (await this.#measureFreed(machine, before));
    // Nothing may have told the size before, and others may have come to the host meanwhile.
    if (!(await this.#isTrue(machine.noteParked(bytes))) && bytes > 0) {
      await executor.parking.letGo('ended');
      bytes = 0;
      await this.#isTrue(machine.noteParked(0));
    }
    this.#bytes = bytes;
    log.info({ way: this.#way, bytes }, 'worker parked');
    this.#set('parked');
  }

  /** Without CUDA's context, which stays on the device: at the wake it would be asked for twice. */
  async #measureFreed(machine: ParkingMachine, before: number): Promise<number> {
    const after = before > 0 ? await machine.readUsedBytes() : 0;
    const freed = after > 0 && after < before ? before - after : this.#usedBytes;
    // 0 would say that the model was ended.
    return Math.max(1, freed);
  }

  /** @returns false if its jobs run on */
  async #suspend(): Promise<boolean> {
    const { breakOff, executor, log, machine } = this.#options;
    if (!machine || !executor.parking || !this.#canSuspend) return false;
    this.#isSuspended = true;
    this.#set('parking');
    await breakOff();
    if (this.#stopping.signal.aborted) return false;
    if (this.#usedBytes === 0) this.#usedBytes = await machine.readUsedBytes();
    const fits = await this.#isTrue(machine.hasHostRoom(this.#usedBytes, false));
    const { bytes, failure } = fits ? await executor.parking.suspend() : NO_HOST_ROOM;
    const isNoted = bytes > 0 && (await this.#isTrue(machine.noteParked(bytes)));
    this.#bytes = bytes;
    if (failure === undefined && isNoted) {
      log.info({ bytes }, 'worker suspended in the middle of its jobs');
      this.#set('parked');
      return true;
    }
    const reason = failure ?? (bytes > 0 ? NO_HOST_ROOM.failure : 'its models hold no GPU memory');
    log.warn({ reason }, 'worker could not be suspended, its jobs run on');
    this.#refusals += 1;
    if (bytes > 0) await this.#wake();
    else await this.#goOn();
    return false;
  }

  /** No model has left the device. */
  async #goOn(): Promise<void> {
    await this.#options.executor.parking?.wakeUp('together');
    this.#isSuspended = false;
    this.#set('ready');
  }

  /** The worker leaves its device also without a ledger; then its model ends. */
  async #isTrue(answer: Promise<boolean>): Promise<boolean> {
    try {
      return await answer;
    } catch (error) {
      this.#options.log.warn({ err: error }, 'ledger of GPU memory not written');
      return false;
    }
  }

  async #wake(): Promise<void> {
    const { clock, executor, log, machine } = this.#options;
    if (!machine || !executor.parking) return;
    const hasLeft = this.#state === 'parked';
    this.#set('waking');
    const askedAt = clock.now();
    // A timer: the wall clock may be set forward meanwhile.
    const late = new AbortController();
    const cancel = clock.after(ROOM_MS, () => late.abort());
    using _ = { [Symbol.dispose]: cancel };
    for (let tries = 0; ; tries += 1) {
      const { holders, isGranted, isMeasured } = await machine.reserve();
      if (isGranted && (await this.#tryWake(isMeasured ? 'together' : 'in turn'))) break;
      if (late.signal.aborted) throw new Error(`the GPU has had no room for ${ROOM_MS} ms`);
      if (tries === 0) log.warn({ holders }, 'too little free memory on the GPU, waiting');
      const wait = new AbortController();
      await Promise.race([sleep(clock, ROOM_RETRY_MS, wait.signal), this.#wishes.promise]);
      wait.abort();
      if (this.#stopping.signal.aborted) return;
      // Halfway between a refusal and the device, it must get back.
      const mayStay = this.#wish === 'parked' || (this.#wish === 'suspended' && hasLeft);
      if (mayStay) return this.#set('parked');
    }
    await machine.noteResident();
    this.#bytes = 0;
    this.#isSuspended = false;
    log.info({ way: this.#way, wakeMs: clock.now() - askedAt }, 'worker woken');
    this.#set('ready');
  }

  /** False if the device has no room after all. */
  async #tryWake(how: 'together' | 'in turn'): Promise<boolean> {
    const { executor, machine } = this.#options;
    try {
      await executor.parking?.wakeUp(how);
      return true;
    } catch (error) {
      if (!(error instanceof NoDeviceRoomError)) throw error;
      await machine?.noteParked(this.#bytes);
      return false;
    }
  }

  #set(state: ParkingState): void {
    this.#state = state;
    this.#change += 1;
    if (state === 'parked' || state === 'ready') this.#lastArrival = this.#change;
    // A wish to turn back came too late: the platform wishes it anew when the GPU is the worker's.
    if (state === 'parked' && this.#wish === 'ready') {
      this.#wish = this.#isSuspended ? 'suspended' : 'parked';
    }
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
