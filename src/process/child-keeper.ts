// Keeps one child running: starts it, replaces it with backoff when it has ended, and gives its
// slots to calls in the order of their arrival.
import { backoffMs } from '../base/backoff.ts';
import { Standstill } from '../base/clock.ts';
import { type ModelStart, noteModelStart } from '../base/process/model-starts.ts';
import type { ParkAbility, ParkResult } from '../base/process/parkables.ts';
import { beginHold } from '../handler/attempt/hold.ts';
import { ModelProcessError } from './calls.ts';
import { type ProcessLog, type StartMarks, silentProcessLog } from './messages.ts';
import type { Environment } from './options.ts';
import {
  NoRoomError,
  type ParkableChild,
  type ParkedChild,
  Parking,
  type ParkOptions,
  ParkRefusedError,
} from './parking.ts';
import type { ChildEnd } from './program.ts';
import { readWeights } from './weights.ts';
import { rememberWeights } from './weights-note.ts';

export interface KeptChild extends ParkableChild {
  /** Names of its functions, when it has loaded its model. Rejects if it ends before. */
  readonly ready: Promise<readonly string[]>;
  /** Resolves when the process is dead and everything that it sent has been received. */
  readonly ended: Promise<ChildEnd>;
  /** A new call would only share the end of this child, and perhaps the blame for it. */
  readonly isEnding: boolean;
  /** Known when it is ready. Default: it tells none. */
  readonly startMarks?: StartMarks;
  fail(reason: string, culprit?: number): void;
  stop(): Promise<void>;
  /** A child that is not active does not keep this process running. */
  setActive(isActive: boolean): void;
}

export interface KeptCalls {
  readonly size: number;
  /** The calls that have ended while the child lived. */
  readonly completed: number;
  /** The child has ended. `describe`: the message of each call's error. */
  settleAll(describe: string, culprit: number | undefined): void;
}

export interface KeeperOptions {
  command: string;
  args: readonly string[];
  env: Environment;
  inherited: Environment;
  maxConcurrent: number;
  maxWaiting: number;
  startTimeoutMs: number;
  maxBackoffMs: number;
  cwd: string | undefined;
  weights: readonly string[];
}

/** Starts a child. The log is for everything that belongs to no job. */
type StartChild<Child, Calls> = (log: ProcessLog) => { child: Child; calls: Calls };

/** A child that is ready, with its calls. */
export class SharedChild<Child = KeptChild, Calls = KeptCalls> {
  readonly child: Child;
  readonly calls: Calls;
  /** Slots that are taken: by calls that run, and by those that are about to. */
  taken = 0;
  /** While it is suspended in the middle of its calls. */
  readonly standstill = new Standstill(() => performance.now());
  #names: readonly string[] = [];

  constructor(child: Child, calls: Calls) {
    this.child = child;
    this.calls = calls;
  }

  setNames(names: readonly string[]): void {
    this.#names = names;
  }

  /** @throws TypeError if the child has told its functions, and this is none of them */
  checkName(name: string): void {
    if (this.#names.length === 0 || this.#names.includes(name)) return;
    throw new TypeError(
      `the model process has no function "${name}"; it has ${this.#names.join(', ')}`,
    );
  }
}

interface Waiter<Shared> {
  grant: (shared: Shared) => void;
  refuse: (error: Error) => void;
}

type State<Shared> =
  | { name: 'new' }
  | { name: 'starting'; shared: Shared }
  | { name: 'ready'; shared: Shared }
  /** The last child has ended; the next one starts when the timer fires. */
  | { name: 'down'; timer: NodeJS.Timeout }
  /** It lets go of its device or takes it back, or waits for its calls before that. Calls that arrive wait. */
  | { name: 'moving'; shared: Shared }
  /** `child`: undefined if it has ended: another one starts at the wake. */
  | { name: 'parked'; child: { shared: Shared; parked: ParkedChild } | undefined }
  | { name: 'stopped' };

/** How long a park waits for calls that run, ms. */
const WAIT_FOR_CALLS_MS = 10_000;

/** No call is to blame for an end. */
const NO_CALL = 0;

const COLD: ParkResult = { way: 'cold', bytes: 0 };

function describeParked(parked: ParkedChild | undefined): ParkResult {
  return parked ? { way: parked.way, bytes: parked.bytes } : COLD;
}

function findShared<Shared>(state: State<Shared>): Shared | undefined {
  if (state.name === 'parked') return state.child?.shared;
  return 'shared' in state ? state.shared : undefined;
}

/** `startedOn`: Unix ms. A launcher may have imported what the marks tell of, before the start. */
export function splitStart(
  startMs: number,
  startedOn: number,
  { importMs, upAt }: StartMarks = {},
): ModelStart {
  const bound = (ms: number, maxMs: number) => Math.min(Math.max(0, Math.round(ms) || 0), maxMs);
  const up = bound((upAt ?? startedOn) - startedOn, startMs);
  const imported = bound(importMs ?? 0, startMs - up);
  return {
    ...(upAt !== undefined && { interpreterMs: up }),
    ...(importMs !== undefined && { importMs: imported }),
    setupMs: startMs - up - imported,
  };
}

/** Wait before a restart; the first one after a useful child is immediate. */
const BASE_MS = 500;

export class ChildKeeper<Child extends KeptChild, Calls extends KeptCalls> {
  readonly #options: KeeperOptions;
  #hasStarted = false;
  readonly #startChild: StartChild<Child, Calls>;
  readonly #waiters = new Set<Waiter<SharedChild<Child, Calls>>>();
  #state: State<SharedChild<Child, Calls>> = { name: 'new' };
  #log: ProcessLog = silentProcessLog;
  /** Grows with each stop: what began before must not touch a child that has been started since. */
  #life = 0;
  readonly #parking: Parking;
  /** A park or a wake that goes on. */
  #move: Promise<unknown> = Promise.resolve();
  /** Called when the child has no calls. */
  #onIdle: (() => void) | undefined;
  /** Children in a row that have ended before they completed a call. */
  #uselessEnds = 0;

  constructor(options: KeeperOptions, startChild: StartChild<Child, Calls>) {
    this.#options = options;
    this.#startChild = startChild;
    this.#parking = new Parking(options);
  }

  /** The child while it is ready. */
  get child(): Child | undefined {
    return this.#state.name === 'ready' ? this.#state.shared.child : undefined;
  }

  /** No child takes calls; one will. */
  get #isStarting(): boolean {
    return ['starting', 'down', 'moving', 'parked'].includes(this.#state.name);
  }

  /** Starts the child, or waits for the one that starts or runs. A stopped one can start again. */
  async start(log: ProcessLog | undefined, signal: AbortSignal | undefined): Promise<void> {
    if (this.#state.name !== 'new' && this.#state.name !== 'stopped') {
      // A harness that replaces its worker runs `setup` again in the same module.
      this.release(await this.acquire(signal));
      return;
    }
    this.#log = log ?? silentProcessLog;
    signal?.throwIfAborted();
    const life = this.#life;
    const abort = () => {
      if (life === this.#life) void this.stop();
    };
    signal?.addEventListener('abort', abort);
    try {
      await this.#launch();
    } catch (error) {
      if (life === this.#life) await this.stop();
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  /**
   * Takes a slot of the child; waits for a free one, and for the next child if there is none.
   *
   * @throws ModelProcessError that returns the job to the queue, if the next child does not start
   */
  acquire(signal: AbortSignal | undefined): Promise<SharedChild<Child, Calls>> {
    const state = this.#state;
    if (state.name === 'new' || state.name === 'stopped') {
      const hint =
        state.name === 'new' ? 'call start() in setup' : 'start() failed or stop() was called';
      return Promise.reject(new Error(`the model process does not run; ${hint}`));
    }
    if (state.name === 'ready' && this.#waiters.size === 0 && this.#hasSlot(state.shared)) {
      return Promise.resolve(this.#take(state.shared));
    }
    const { maxWaiting } = this.#options;
    if (this.#waiters.size >= maxWaiting) {
      const message = `${maxWaiting} calls wait for the model process already (maxWaiting)`;
      return Promise.reject(new Error(message));
    }
    return new Promise((resolve, reject) => {
      const settle = () => {
        this.#waiters.delete(waiter);
        signal?.removeEventListener('abort', abort);
      };
      const refuse = (error: unknown) => {
        settle();
        reject(error);
      };
      const abort = () => refuse(signal?.reason);
      const grant = (shared: SharedChild<Child, Calls>) => {
        settle();
        resolve(shared);
      };
      const waiter = { grant, refuse };
      this.#waiters.add(waiter);
      signal?.addEventListener('abort', abort);
    });
  }

  /** As `acquire`; the wait for the next child does not count as time of the job whose `ctx` is given. */
  async acquireFor(options: {
    signal?: AbortSignal;
    log?: ProcessLog;
  }): Promise<SharedChild<Child, Calls>> {
    const { log, signal } = options;
    signal?.throwIfAborted();
    if (!this.#isStarting) return this.acquire(signal);
    const endHold = beginHold(options);
    const since = performance.now();
    try {
      return await this.acquire(signal);
    } finally {
      endHold();
      const waitMs = Math.round(performance.now() - since);
      log?.info({ waitMs }, 'waited for the start of the model process');
    }
  }

  release(shared: SharedChild<Child, Calls>): void {
    shared.taken -= 1;
    if (shared.taken === 0) {
      shared.child.setActive(false);
      this.#onIdle?.();
    }
    this.#admit();
  }

  findWay(): Promise<ParkAbility> {
    return this.#parking.findWay(findShared(this.#state)?.child);
  }

  /**
   * Lets go of the device, after the calls that run have ended. A child that starts, or whose state is not known afterwards,
   * is ended instead.
   *
   * @throws ParkRefusedError if calls or kernels run for too long, or there is no way to park; it takes calls then
   */
  park(options: ParkOptions): Promise<ParkResult> {
    const life = this.#life;
    return this.#inTurn(() => this.#park(options, life));
  }

  /** As `park`, but ends a child that cannot be parked or is to end, with its calls. */
  async letGo(how: 'parked' | 'ended'): Promise<ParkResult> {
    let reason = 'there is no room for it in the memory of the host';
    try {
      if (how === 'parked') return await this.park({});
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error);
    }
    return this.#inTurn(() => this.#endParked(reason));
  }

  /** @returns whether `suspend` may work; true without a child */
  async canSuspend(): Promise<boolean> {
    const child = findShared(this.#state)?.child;
    return child === undefined || this.#parking.canSuspend(child);
  }

  /**
   * As `park`, but does not wait for calls: they stand still until `wake`, and go on there. If the child is lost on the way,
   * none of its calls is to blame.
   *
   * @throws ParkRefusedError if kernels run for too long, the child starts, or the driver cannot do it; calls go on then
   */
  suspend(): Promise<ParkResult> {
    const life = this.#life;
    return this.#inTurn(async () => {
      this.#checkLife(life);
      const state = this.#state;
      if (state.name === 'new' || state.name === 'stopped') return COLD;
      if (state.name === 'parked') return describeParked(state.child?.parked);
      if (state.name !== 'ready') throw new ParkRefusedError('the model process is starting');
      return await this.#leave(state.shared, { calls: 'stand still' }, life);
    });
  }

  /** Resolves when calls run again. @throws NoRoomError, or Error if the next child does not start */
  wake(): Promise<ParkResult> {
    const life = this.#life;
    return this.#inTurn(() => this.#wake(life));
  }

  async #park(options: ParkOptions, life: number): Promise<ParkResult> {
    this.#checkLife(life);
    const state = this.#state;
    if (state.name === 'parked') return describeParked(state.child?.parked);
    if (state.name === 'new' || state.name === 'stopped') {
      throw new ParkRefusedError('the model process does not run');
    }
    if (state.name !== 'ready') return this.#endParked('it was still starting');
    return this.#leave(state.shared, { calls: 'end', ...options }, life);
  }

  async #leave(
    shared: SharedChild<Child, Calls>,
    { calls, log, waitMs = WAIT_FOR_CALLS_MS }: ParkOptions & { calls: 'end' | 'stand still' },
    life: number,
  ): Promise<ParkResult> {
    const { child } = shared;
    this.#state = { name: 'moving', shared };
    child.setActive(true);
    const startedAt = performance.now();
    const isSuspension = calls === 'stand still';
    try {
      if (isSuspension) shared.standstill.begin();
      else if (!(await this.#waitForCalls(shared, waitMs))) {
        const text = `${shared.taken} calls of the model process still run after ${waitMs} ms`;
        throw new ParkRefusedError(text);
      }
      if (!this.#has(shared)) throw new Error('the model process ended');
      const parked = await (isSuspension
        ? this.#parking.suspend(child)
        : this.#parking.park(child));
      if (!this.#has(shared)) throw new Error('the model process ended while it was parked');
      this.#state = { name: 'parked', child: { shared, parked } };
      const { bytes, way } = parked;
      const parkMs = Math.round(performance.now() - startedAt);
      const fields = { pid: child.pid, way, bytes, parkMs };
      if (isSuspension)
        this.#log.info({ ...fields, calls: shared.taken }, 'model process suspended');
      else (log ?? this.#log).info(fields, 'model process parked');
      return describeParked(parked);
    } catch (error) {
      this.#checkLife(life);
      if (error instanceof ParkRefusedError && this.#has(shared)) {
        shared.standstill.end();
        this.#state = { name: 'ready', shared };
        this.#admit();
        throw error;
      }
      return await this.#endParked(error instanceof Error ? error.message : String(error));
    } finally {
      if (shared.taken === 0) child.setActive(false);
    }
  }

  /** The child is not to be relied on, or cannot be parked: the next one starts at the wake. */
  async #endParked(reason: string): Promise<ParkResult> {
    const state = this.#state;
    if (state.name === 'new' || state.name === 'stopped') return COLD;
    if (state.name === 'down') clearTimeout(state.timer);
    const shared = findShared(state);
    this.#state = { name: 'parked', child: undefined };
    if (shared) {
      shared.child.fail('could not be parked', NO_CALL);
      await shared.child.ended;
    }
    this.#log.warn({ reason }, 'model process ended, because it could not be parked');
    return COLD;
  }

  async #wake(life: number): Promise<ParkResult> {
    this.#checkLife(life);
    const state = this.#state;
    if (state.name === 'new' || state.name === 'stopped') {
      throw new Error('the model process does not run');
    }
    if (state.name === 'ready') return { way: 'cold', bytes: 0 };
    if (state.name !== 'parked' || !state.child) return this.#startParked(state.name === 'parked');
    const { parked, shared } = state.child;
    const { child } = shared;
    this.#state = { name: 'moving', shared };
    child.setActive(true);
    const startedAt = performance.now();
    try {
      await this.#parking.wake(child, parked);
      if (!this.#has(shared)) throw new Error('the model process ended while it woke up');
      shared.standstill.end();
      this.#state = { name: 'ready', shared };
      const { bytes, way } = parked;
      const wakeMs = Math.round(performance.now() - startedAt);
      this.#log.info({ pid: child.pid, way, bytes, wakeMs }, 'model process woken');
      if (shared.taken === 0) child.setActive(false);
      this.#admit();
      return describeParked(parked);
    } catch (error) {
      if (shared.taken === 0) child.setActive(false);
      this.#checkLife(life);
      if (error instanceof NoRoomError && this.#has(shared)) {
        this.#state = state;
        throw error;
      }
      const reason = error instanceof Error ? error.message : String(error);
      this.#log.warn({ pid: child.pid, reason }, 'model process did not wake up, starting anew');
      this.#state = { name: 'parked', child: undefined };
      child.fail('did not wake up', NO_CALL);
      await child.ended;
      this.#checkLife(life);
      return await this.#startParked(true);
    }
  }

  /** @throws ModelProcessError if the child does not start */
  async #startParked(isParked: boolean): Promise<ParkResult> {
    if (isParked) {
      this.#uselessEnds = 0;
      this.#restartLater();
    }
    this.release(await this.acquire(undefined));
    return COLD;
  }

  /** False if calls still run after this time. */
  async #waitForCalls(shared: SharedChild<Child, Calls>, waitMs: number): Promise<boolean> {
    if (shared.taken === 0) return true;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#onIdle = undefined;
    return shared.taken === 0;
  }

  #checkLife(life: number): void {
    if (life !== this.#life) throw new Error('the model process was stopped');
  }

  /** One park or wake after the other. */
  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.#move.then(act);
    this.#move = turn.catch(() => undefined);
    return turn;
  }

  async stop(): Promise<void> {
    const state = this.#state;
    this.#state = { name: 'stopped' };
    this.#life += 1;
    const error = new ModelProcessError('the model process was stopped', 'neighbour');
    for (const waiter of this.#waiters) waiter.refuse(error);
    this.#parking.stop();
    if (state.name === 'down') clearTimeout(state.timer);
    const child = findShared(state)?.child;
    if (!child) return;
    // A child that starts, moves or is suspended does not read that it should stop.
    const canStop = state.name === 'ready' || (state.name === 'parked' && !child.isSuspended);
    if (canStop) return child.stop();
    child.fail('was stopped');
    await child.ended;
  }

  /** Resolves when the new child is ready. */
  async #launch(): Promise<void> {
    const { startTimeoutMs } = this.#options;
    const { calls, child } = this.#startChild(this.#log);
    const shared = new SharedChild(child, calls);
    this.#state = { name: 'starting', shared };
    if (child.pid !== undefined) this.#log.info({ pid: child.pid }, 'model process started');
    const startedAt = performance.now();
    const startedOn = Date.now();
    const endOfStart = new AbortController();
    this.#readWeights(endOfStart.signal);
    const timer = setTimeout(() => {
      child.fail(`was not ready after ${startTimeoutMs} ms (startTimeoutMs)`);
    }, startTimeoutMs);
    try {
      shared.setNames(await child.ready);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new Error(`${this.#describe(child)} ${reason}`);
    } finally {
      clearTimeout(timer);
      endOfStart.abort();
    }
    const startMs = Math.round(performance.now() - startedAt);
    const parts = splitStart(startMs, startedOn, child.startMarks);
    this.#log.info({ pid: child.pid, startMs, ...parts }, 'model process ready');
    noteModelStart(parts);
    child.setActive(false);
    if (!this.#has(shared)) return child.fail('was stopped');
    this.#state = { name: 'ready', shared };
    void child.ended.then((end) => this.#replace(shared, end));
    this.#admit();
  }

  #readWeights(signal: AbortSignal): void {
    const { cwd, inherited, weights: all } = this.#options;
    if (all.length === 0) return;
    // At the first start, the supervisor may read them already.
    const unread = rememberWeights(all, { cwd, inherited });
    const weights = this.#hasStarted ? all : unread;
    this.#hasStarted = true;
    if (weights.length > 0) void readWeights({ cwd, weights, signal, log: this.#log });
  }

  #replace(shared: SharedChild<Child, Calls>, { culprit, reason }: ChildEnd): void {
    const { calls, child } = shared;
    this.#uselessEnds = calls.completed > 0 ? 0 : this.#uselessEnds + 1;
    const running = calls.size;
    // A call that stands still ends nothing.
    calls.settleAll(
      `${this.#describe(child)} ${reason}`,
      shared.standstill.isOn ? NO_CALL : culprit,
    );
    if (!this.#has(shared)) return;
    const pid = child.pid;
    if (this.#state.name === 'moving' || this.#state.name === 'parked') {
      this.#state = { name: 'parked', child: undefined };
      this.#log.warn({ pid, reason }, 'parked model process ended, it starts anew when it wakes');
      return;
    }
    const waitMs = this.#restartLater();
    this.#log.error({ pid, reason, calls: running, waitMs }, 'model process ended, restarting');
  }

  /** @returns the wait, ms */
  #restartLater(): number {
    const { maxBackoffMs } = this.#options;
    const backoff = { baseMs: BASE_MS, maxMs: maxBackoffMs, jitter: 0.2 };
    const waitMs = this.#uselessEnds === 0 ? 0 : backoffMs(this.#uselessEnds, backoff);
    this.#state = { name: 'down', timer: setTimeout(() => void this.#restart(), waitMs) };
    return waitMs;
  }

  async #restart(): Promise<void> {
    const life = this.#life;
    try {
      await this.#launch();
    } catch (error) {
      if (life !== this.#life) return;
      // `down`: the system did not let the child start at all.
      if (this.#state.name !== 'starting' && this.#state.name !== 'down') return;
      const reason = error instanceof Error ? error.message : String(error);
      // Another worker may have a model that starts; here, the job would only wait on.
      const refusal = new ModelProcessError(reason, 'neighbour');
      for (const waiter of this.#waiters) waiter.refuse(refusal);
      this.#uselessEnds += 1;
      const waitMs = this.#restartLater();
      this.#log.error({ reason, waitMs }, 'model process did not start, retrying');
    }
  }

  #admit(): void {
    const state = this.#state;
    if (state.name !== 'ready') return;
    for (const waiter of this.#waiters) {
      if (!this.#hasSlot(state.shared)) return;
      waiter.grant(this.#take(state.shared));
    }
  }

  /** False after `stop`, even if another child has been started since. */
  #has(shared: SharedChild<Child, Calls>): boolean {
    return findShared(this.#state) === shared;
  }

  #hasSlot({ child, taken }: SharedChild<Child, Calls>): boolean {
    return taken < this.#options.maxConcurrent && !child.isEnding;
  }

  #take(shared: SharedChild<Child, Calls>): SharedChild<Child, Calls> {
    if (shared.taken === 0) shared.child.setActive(true);
    shared.taken += 1;
    return shared;
  }

  #describe({ pid }: Child): string {
    const { args, command } = this.#options;
    const line = [command, ...args].join(' ').slice(0, 200);
    return `the model process (${line}${pid === undefined ? '' : `, PID ${pid}`})`;
  }
}
