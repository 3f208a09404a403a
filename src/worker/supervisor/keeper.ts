// One device set's worker, kept running: a process at a time, another one when it ends, none while
// its device is bad. Payloads never come by here.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { LeaseRef, WorkerBye } from '../../wire/worker-link.ts';
import type { DeviceSet } from '../gpu/device-sets.ts';
import type { JobActivity } from '../gpu/memory-watch.ts';
import type { WatchedWorker } from './device-watch.ts';
import {
  judgeProcessEnd,
  NO_RESTARTS,
  type RestartPolicy,
  type RestartRecord,
} from './restart-policy.ts';
import {
  describeEnd,
  type ProcessAnswer,
  type ProcessEnd,
  type ProcessIdentity,
  type WorkerProcess,
} from './worker-process.ts';

/** Why a process is on its way out. */
interface Leaving {
  to: 'recycle' | 'quarantine' | 'stop';
  reason: string;
  cancelKill: () => void;
}

interface Running {
  readonly name: 'running';
  readonly process: WorkerProcess;
  readonly startedAt: number;
  isReady: boolean;
  leaving: Leaving | undefined;
}

/**
 * `running`: there is a process, which may be leaving. `waiting`: another one is started soon; where
 * that was given up, only once in a while. `quarantined`: none until the device is taken back.
 * `stopped`: none yet, or none any more.
 */
export type KeeperState =
  | Running
  | {
      readonly name: 'waiting';
      readonly reason: string;
      readonly until: number;
      readonly isGivenUp: boolean;
      /** The process said that no other one could do better. */
      readonly isFinal: boolean;
      readonly cancel: () => void;
    }
  | { readonly name: 'quarantined'; readonly reason: string }
  /** `isClean`: nothing of what it finished is undelivered. */
  | { readonly name: 'stopped'; readonly isClean: boolean };

export interface KeeperOptions {
  set: DeviceSet;
  /** Where it was given one; otherwise the first process finds its own, and the others keep that. */
  workerId: string | undefined;
  launch: (set: DeviceSet, as: Partial<ProcessIdentity>) => WorkerProcess;
  /** Tells the platform that a worker is no more. */
  sayBye: (bye: WorkerBye) => Promise<void>;
  /** Attempts whose outcome a dead process left on disk. */
  readSurvivors: (workerId: string) => Promise<LeaseRef[]>;
  policy: RestartPolicy;
  /** A process that was told to leave is killed after so long, ms. */
  leaveMs: number;
  clock: Clock;
  log: Log;
  onChange: () => void;
}

/** Signs of life that may fail to come, looked at every LOOK_MS, before the process is killed. */
const MAX_MISSED = 12;
const LOOK_MS = 5_000;
const BYE_RETRY_MS = [200, 1_000];

export class Keeper implements WatchedWorker {
  readonly set: DeviceSet;
  /** Processes started after the first. */
  restarts = 0;
  readonly #options: KeeperOptions;
  readonly #clock: Clock;
  readonly #log: Log;
  #state: KeeperState = { name: 'stopped', isClean: true };
  #record: RestartRecord = NO_RESTARTS;
  #identity: Partial<ProcessIdentity>;
  #isStopping = false;
  /** Kept while its process is on the way out and thereafter. */
  #quarantine: string | undefined;
  #cancelLook: () => void = () => {};
  readonly #farewells = new Set<Promise<void>>();

  constructor(options: KeeperOptions) {
    this.set = options.set;
    this.#options = options;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#identity = options.workerId === undefined ? {} : { workerId: options.workerId };
  }

  get state(): KeeperState {
    return this.#state;
  }

  /** Undefined as long as no process has found one. */
  get workerId(): string | undefined {
    return this.#identity.workerId;
  }

  get activity(): JobActivity | undefined {
    if (this.#state.name !== 'running') return undefined;
    const { running = 0, ended = 0 } = this.#state.process.activity ?? {};
    return { incarnation: this.restarts, running, ended };
  }

  start(): void {
    if (this.#state.name !== 'quarantined') this.#launch();
    this.#watchLife();
  }

  /** Resolves when its process, if there is one, has ended and the platform knows. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#cancelLook();
    const state = this.#state;
    if (state.name === 'running') {
      this.#leave(state, 'stop', 'the supervisor leaves');
      state.process.drain();
      await state.process.ended;
    } else {
      if (state.name === 'waiting') state.cancel();
      if (state.name !== 'stopped') await this.#leaveBehind();
    }
    await Promise.all(this.#farewells);
  }

  /** Without a process there is nobody to deliver what the last one left. */
  async #leaveBehind(): Promise<void> {
    const { workerId } = this.#identity;
    const left = workerId === undefined ? [] : await this.#options.readSurvivors(workerId);
    this.#change({ name: 'stopped', isClean: left.length === 0 });
  }

  /** The process is to end now: what it runs comes back when its lease does, or by the bye. */
  kill(): void {
    if (this.#state.name === 'running') this.#state.process.kill();
  }

  ask(): Promise<ProcessAnswer | undefined> {
    return this.#state.name === 'running' ? this.#state.process.ask() : Promise.resolve(undefined);
  }

  quarantine(reason: string): void {
    this.#quarantine = reason;
    const state = this.#state;
    if (state.name === 'waiting') {
      state.cancel();
      this.#change({ name: 'quarantined', reason });
    } else if (state.name !== 'running') {
      if (!this.#isStopping) this.#change({ name: 'quarantined', reason });
    } else if (this.#leave(state, 'quarantine', reason)) {
      state.process.tell({ type: 'release' });
    }
  }

  readmit(): void {
    this.#quarantine = undefined;
    if (this.#state.name === 'quarantined' && !this.#isStopping) this.#launch();
  }

  recycle(reason: string): void {
    const state = this.#state;
    if (state.name !== 'running' || !this.#leave(state, 'recycle', reason)) return;
    this.#log.warn({ reason }, 'the worker process is replaced');
    state.process.tell({ type: 'recycle', reason });
  }

  /** False if it is leaving for as good a reason. */
  #leave(state: Running, to: Leaving['to'], reason: string): boolean {
    if (state.leaving?.to === to || state.leaving?.to === 'stop') return false;
    state.leaving?.cancelKill();
    const { process } = state;
    const cancelKill = this.#clock.after(this.#options.leaveMs, () => {
      this.#log.error({ pid: process.pid }, 'the worker process does not leave: it is killed');
      process.kill();
    });
    state.leaving = { to, reason, cancelKill };
    this.#options.onChange();
    return true;
  }

  #launch(): void {
    const process = this.#options.launch(this.set, this.#identity);
    const startedAt = this.#clock.now();
    const state: Running = {
      name: 'running',
      process,
      startedAt,
      isReady: false,
      leaving: undefined,
    };
    this.#change(state);
    void process.ready.then((isReady) => {
      state.isReady = isReady;
      this.#options.onChange();
    });
    void process.ended.then((end) => this.#takeLeave(state, end));
  }

  #takeLeave(state: Running, end: ProcessEnd): void {
    const { leaving, process } = state;
    leaving?.cancelKill();
    this.#remember(process);
    const isAsked = leaving?.to === 'quarantine' || leaving?.to === 'stop';
    if (end.code !== 0) this.#bury(process, end, isAsked ? 'drained' : 'crashed');
    const reason = this.#quarantine;
    if (this.#isStopping || (end.code === 0 && process.isDismissed)) {
      this.#change({ name: 'stopped', isClean: end.code === 0 });
    } else if (reason === undefined) this.#replace(state, end);
    else this.#change({ name: 'quarantined', reason });
  }

  #replace({ isReady, leaving, process, startedAt }: Running, end: ProcessEnd): void {
    const { failure, recycling } = process;
    const isFinal = failure?.isFinal ?? false;
    const life = { wasReady: isReady, livedMs: this.#clock.now() - startedAt, isFinal };
    const verdict = judgeProcessEnd(this.#record, life, this.#options.policy);
    this.#record = verdict.record;
    const { isGivenUp, waitMs } = verdict;
    const wanted = recycling ?? (leaving?.to === 'recycle' ? leaving.reason : undefined);
    const reason = wanted ?? failure?.reason ?? describeEnd(end);
    const note = { ...end, reason };
    if (isGivenUp) {
      const { startFailures } = verdict.record;
      this.#log.fatal({ ...note, startFailures }, 'the worker cannot be started: given up');
    } else {
      const level = wanted === undefined ? 'error' : 'info';
      const told = wanted === undefined ? 'the worker process ended unasked' : 'replaced';
      this.#log[level]({ ...note, restartInMs: waitMs }, told);
    }
    if (waitMs === 0) {
      this.#launchAgain();
      return;
    }
    const until = this.#clock.now() + waitMs;
    const cancel = this.#clock.after(waitMs, () => this.#launchAgain());
    this.#change({ name: 'waiting', reason, until, isGivenUp, isFinal, cancel });
  }

  #launchAgain(): void {
    this.restarts += 1;
    this.#launch();
  }

  /** The successor goes on under the same name. */
  #remember({ identity }: WorkerProcess): void {
    if (!identity) return;
    const incarnation = Math.max(this.#clock.now(), identity.incarnation + 1);
    this.#identity = { workerId: identity.workerId, incarnation };
  }

  /** Its jobs go back to the queue now, not when their leases run out. */
  #bury(process: WorkerProcess, end: ProcessEnd, reason: WorkerBye['reason']): void {
    const farewell = this.#sayBye(process, end, reason).finally(() => {
      this.#farewells.delete(farewell);
    });
    this.#farewells.add(farewell);
  }

  async #sayBye(
    process: WorkerProcess,
    end: ProcessEnd,
    reason: WorkerBye['reason'],
  ): Promise<void> {
    const { identity, failure } = process;
    if (!identity) return;
    const outbox = await this.#options.readSurvivors(identity.workerId);
    const detail = (failure?.reason ?? describeEnd(end)).slice(0, 4_000);
    for (const waitMs of [...BYE_RETRY_MS, undefined]) {
      try {
        return await this.#options.sayBye({ ...identity, reason, outbox, detail });
      } catch (error) {
        this.#log.debug({ err: error }, 'the platform did not take the bye of a dead worker');
        // Its leases run out by themselves, and the hello of its successor says the same.
        if (waitMs === undefined) return;
        await sleep(this.#clock, waitMs);
      }
    }
  }

  /**
   * A worker's event loop runs no code of handlers, so one that stands still is broken. Looks are
   * counted and not time: after a pause of the whole machine everything is late.
   */
  #watchLife(): void {
    let seen = { process: undefined as WorkerProcess | undefined, beats: 0, missed: 0 };
    const look = () => {
      this.#cancelLook = this.#clock.after(LOOK_MS, look);
      const state = this.#state;
      if (state.name !== 'running' || !state.isReady) return;
      const { process } = state;
      const isAlive = seen.process !== process || seen.beats !== process.beats;
      seen = { process, beats: process.beats, missed: isAlive ? 0 : seen.missed + 1 };
      if (seen.missed !== MAX_MISSED) return;
      this.#log.error({ pid: process.pid }, 'the worker process stands still: it is killed');
      process.kill();
    };
    this.#cancelLook = this.#clock.after(LOOK_MS, look);
  }

  #change(state: KeeperState): void {
    this.#state = state;
    this.#options.onChange();
  }
}
