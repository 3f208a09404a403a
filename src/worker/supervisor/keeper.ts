// Keeps one device set's worker running: one process at a time, a new one when it ends, none while
// its device is bad. It sees no payloads.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { DeviceSet } from '../gpu/device-sets.ts';
import type { JobActivity } from '../gpu/memory-watch.ts';
import { CrashReports, type CrashReportsOptions } from './crash-reports.ts';
import type { WatchedWorker } from './device-watch.ts';
import {
  judgeProcessEnd,
  NO_RESTARTS,
  type RestartPolicy,
  type RestartRecord,
} from './restart-policy.ts';
import {
  describeEnd,
  type KeptProcess,
  type ProcessAnswer,
  type ProcessEnd,
  type ProcessIdentity,
} from './worker-process.ts';

/** Why a process is being ended. */
interface Leaving {
  to: 'recycle' | 'quarantine' | 'stop';
  reason: string;
  cancelKill: () => void;
}

interface Running {
  readonly name: 'running';
  readonly process: KeptProcess;
  readonly startedAt: number;
  isReady: boolean;
  leaving: Leaving | undefined;
}

/**
 * `running`: there is a process, which may be ending. `waiting`: another one starts soon; after
 * giving up, only rarely. `quarantined`: none until the device is healthy again. `stopped`: none
 * yet, or none any more.
 */
export type KeeperState =
  | Running
  | {
      readonly name: 'waiting';
      readonly reason: string;
      readonly until: number;
      readonly isGivenUp: boolean;
      /** The process said that another attempt would not help. */
      readonly isFinal: boolean;
      /** A check failed: this machine is unfit. */
      readonly isUnfit: boolean;
      readonly cancel: () => void;
    }
  | { readonly name: 'quarantined'; readonly reason: string }
  /** `isClean`: all finished outcomes are delivered. */
  | { readonly name: 'stopped'; readonly isClean: boolean };

export interface KeeperOptions extends CrashReportsOptions {
  set: DeviceSet;
  /** Undefined: the first process chooses an ID, and its successors keep it. */
  workerId: string | undefined;
  launch: (set: DeviceSet, as: Partial<ProcessIdentity>) => KeptProcess;
  policy: RestartPolicy;
  /** Time after which a draining process is killed, ms. */
  leaveMs: number;
  onChange: () => void;
}

/** Missed signs of life, checked every LOOK_MS, before the process is killed. */
const MAX_MISSED = 12;
const LOOK_MS = 5_000;

export class Keeper implements WatchedWorker {
  readonly set: DeviceSet;
  readonly #options: KeeperOptions;
  readonly #clock: Clock;
  readonly #log: Log;
  #state: KeeperState = { name: 'stopped', isClean: true };
  #record: RestartRecord = NO_RESTARTS;
  #identity: Partial<ProcessIdentity>;
  #launches = 0;
  /** No process is started any more. */
  #isOver = false;
  /** Kept while its process is ending and afterwards. */
  #quarantine: string | undefined;
  #cancelLook: () => void = () => {};
  readonly #crashReports: CrashReports;

  constructor(options: KeeperOptions) {
    this.set = options.set;
    this.#options = options;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#crashReports = new CrashReports(options);
    this.#identity = options.workerId === undefined ? {} : { workerId: options.workerId };
  }

  get state(): KeeperState {
    return this.#state;
  }

  /** Undefined until a process has chosen one. */
  get workerId(): string | undefined {
    return this.#identity.workerId;
  }

  /** Processes started after the first. */
  get restarts(): number {
    return Math.max(0, this.#launches - 1);
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

  /** Resolves when the process, if any, has ended and the platform knows. */
  async stop(): Promise<void> {
    this.#isOver = true;
    this.#cancelLook();
    const state = this.#state;
    if (state.name === 'running') {
      this.#leave(state, 'stop', 'the supervisor exits');
      state.process.drain();
      await state.process.ended;
      // It ended before it had an identity: undelivered outcomes are its predecessor's.
      if (!state.process.identity) await this.#leaveBehind();
    } else {
      if (state.name === 'waiting') state.cancel();
      if (state.name !== 'stopped') await this.#leaveBehind();
    }
    await this.#crashReports.end();
  }

  /** Without a process, nobody delivers what the last one left. */
  async #leaveBehind(): Promise<void> {
    const { workerId } = this.#identity;
    const left = workerId === undefined ? [] : await this.#options.readSurvivors(workerId);
    this.#change({ name: 'stopped', isClean: left.length === 0 });
  }

  /**
   * Ends the process at once: its jobs return to the queue by the bye, or when their leases expire.
   */
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
      if (!this.#isOver) this.#change({ name: 'quarantined', reason });
    } else if (this.#leave(state, 'quarantine', reason)) {
      state.process.tell({ type: 'release' });
    }
  }

  readmit(): void {
    this.#quarantine = undefined;
    if (this.#state.name === 'quarantined' && !this.#isOver) this.#launch();
  }

  recycle(reason: string): void {
    const state = this.#state;
    // A process that is already ending frees the device anyway.
    if (state.name !== 'running' || state.leaving) return;
    this.#leave(state, 'recycle', reason);
    state.process.tell({ type: 'recycle', reason });
  }

  /** Returns false if the process is already ending for an equally strong reason. */
  #leave(state: Running, to: Leaving['to'], reason: string): boolean {
    if (state.leaving?.to === to || state.leaving?.to === 'stop') return false;
    state.leaving?.cancelKill();
    const { process } = state;
    const cancelKill = this.#clock.after(this.#options.leaveMs, () => {
      this.#log.error(this.#name(process), 'worker process did not exit, killing it');
      process.kill();
    });
    state.leaving = { to, reason, cancelKill };
    this.#options.onChange();
    return true;
  }

  #launch(): void {
    this.#launches += 1;
    const process = this.#options.launch(this.set, this.#nextIdentity());
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
    this.#identity = process.identity ?? this.#identity;
    const isAsked = leaving?.to === 'quarantine' || leaving?.to === 'stop';
    if (end.code !== 0) this.#crashReports.report(process, end, isAsked ? 'drained' : 'crashed');
    if (end.code === 0 && process.isDismissed) this.#isOver = true;
    const reason = this.#quarantine;
    if (!this.#isOver && reason === undefined) {
      this.#replace(state, end);
      return;
    }
    if (end.code !== 0) {
      const cause = process.failure?.reason ?? describeEnd(end);
      this.#log.warn({ ...this.#name(process), cause }, 'worker process exited during shutdown');
    }
    if (reason === undefined || this.#isOver) {
      this.#change({ name: 'stopped', isClean: end.code === 0 });
    } else this.#change({ name: 'quarantined', reason });
  }

  #name({ pid }: KeptProcess): { worker: string | undefined; pid: number | undefined } {
    return { worker: this.workerId, pid };
  }

  #replace({ isReady, leaving, process, startedAt }: Running, end: ProcessEnd): void {
    const { failure, recycling } = process;
    const isFinal = failure?.isFinal ?? false;
    const wanted = recycling ?? (leaving?.to === 'recycle' ? leaving.reason : undefined);
    const isWorn = wanted !== undefined && end.code === 0 && (process.activity?.ended ?? 0) > 0;
    const livedMs = this.#clock.now() - startedAt;
    const life = { wasReady: isReady, livedMs, isFinal, isWorn };
    const verdict = judgeProcessEnd(this.#record, life, this.#options.policy);
    this.#record = verdict.record;
    const { isGivenUp, waitMs } = verdict;
    const reason = wanted ?? failure?.reason ?? describeEnd(end);
    const note = { ...this.#name(process), ...end, reason };
    if (isGivenUp) {
      const { startFailures } = verdict.record;
      this.#log.fatal({ ...note, startFailures }, 'worker process given up');
    } else {
      const level = wanted === undefined ? 'error' : 'info';
      const told = wanted === undefined ? 'ended unasked' : 'is replaced';
      this.#log[level]({ ...note, restartInMs: waitMs }, `the worker process ${told}`);
    }
    if (waitMs === 0) {
      this.#launch();
      return;
    }
    const until = this.#clock.now() + waitMs;
    const cancel = this.#clock.after(waitMs, () => this.#launch());
    const isUnfit = failure?.isUnfit ?? false;
    this.#change({ name: 'waiting', reason, until, isGivenUp, isFinal, isUnfit, cancel });
  }

  /**
   * The successor keeps the name. Its incarnation is the time of its start, not of the death before
   * it: meanwhile another process may have delivered in its name.
   */
  #nextIdentity(): Partial<ProcessIdentity> {
    const { incarnation: last, workerId } = this.#identity;
    if (workerId === undefined || last === undefined) return this.#identity;
    return { workerId, incarnation: Math.max(this.#clock.now(), last + 1) };
  }

  /**
   * A worker's event loop runs no handler code, so a blocked one is broken. Checks are counted
   * rather than time: after a pause of the whole machine everything is late.
   */
  #watchLife(): void {
    let seen = { process: undefined as KeptProcess | undefined, beats: 0, missed: 0 };
    const look = () => {
      this.#cancelLook = this.#clock.after(LOOK_MS, look);
      const state = this.#state;
      if (state.name !== 'running' || !state.isReady) return;
      const { process } = state;
      const isAlive = seen.process !== process || seen.beats !== process.beats;
      seen = { process, beats: process.beats, missed: isAlive ? 0 : seen.missed + 1 };
      if (seen.missed !== MAX_MISSED) return;
      this.#log.error(this.#name(process), 'worker process stopped responding, killing it');
      process.kill();
    };
    this.#cancelLook = this.#clock.after(LOOK_MS, look);
  }

  #change(state: KeeperState): void {
    this.#state = state;
    this.#options.onChange();
  }
}
