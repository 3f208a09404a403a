// Keeps one device set's worker running: one process at a time, a new one when it ends, none while
// its device is bad. It sees no payloads.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { EXIT_REFUSED, type WorkerIdentity } from '../../wire/link/worker-link.ts';
import type { BreakerState } from '../circuit-breaker.ts';
import type { DeviceSet } from '../gpu/device-sets.ts';
import type { GpuFigures } from '../gpu/gpu-accounts.ts';
import type { FedWorker } from '../gpu/gpu-usage-feed.ts';
import type { JobActivity } from '../gpu/memory-watch.ts';
import type { WatchedWorker } from './device-watch.ts';
import {
  judgeProcessEnd,
  NO_RESTARTS,
  type RestartPolicy,
  type RestartRecord,
} from './restart-policy.ts';
import {
  CrashReports,
  type CrashReportsOptions,
  describeEnd,
  HeartbeatCheck,
  type ProcessAnswer,
  type ProcessEnd,
  type SupervisedProcess,
} from './worker-process.ts';

/** Why a process is being ended. */
interface PlannedEnd {
  to: 'recycle' | 'quarantine' | 'stop';
  reason: string;
  cancelKill: () => void;
}

interface Running {
  readonly name: 'running';
  readonly process: SupervisedProcess;
  readonly startedAt: number;
  isReady: boolean;
  ending: PlannedEnd | undefined;
}

/**
 * `running`: a process runs or is ending. `waiting`: the next process starts after a wait, a long one
 * after giving up. `quarantined`: no process until the device is healthy again. `stopped`: not
 * started yet, or stopped permanently.
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
      readonly exitCode: number | undefined;
      readonly cancel: () => void;
    }
  | { readonly name: 'quarantined'; readonly reason: string }
  /** `isClean`: all finished outcomes are delivered. */
  | { readonly name: 'stopped'; readonly isClean: boolean };

/** State that a process takes over from the previous one. */
export interface LaunchTerms extends Partial<WorkerIdentity> {
  breaker?: BreakerState | undefined;
}

interface KeeperOptions extends CrashReportsOptions {
  set: DeviceSet;
  /** Undefined: the first process chooses an ID, and its successors keep it. */
  workerId: string | undefined;
  launch: (set: DeviceSet, as: LaunchTerms) => SupervisedProcess;
  policy: RestartPolicy;
  /** Time after which a draining process is killed, ms. */
  killAfterMs: number;
  onChange: () => void;
}

export class Keeper implements WatchedWorker, FedWorker {
  readonly set: DeviceSet;
  readonly #options: KeeperOptions;
  readonly #clock: Clock;
  readonly #log: Log;
  #state: KeeperState = { name: 'stopped', isClean: true };
  #record: RestartRecord = NO_RESTARTS;
  #identity: Partial<WorkerIdentity>;
  #breaker: BreakerState | undefined;
  #launches = 0;
  /** The keeper starts no more processes. */
  #isOver = false;
  /** Why the device is quarantined; set until `readmit`. */
  #quarantine: string | undefined;
  readonly #heartbeat: HeartbeatCheck;
  readonly #crashReports: CrashReports;

  constructor(options: KeeperOptions) {
    this.set = options.set;
    this.#options = options;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#crashReports = new CrashReports(options);
    this.#heartbeat = new HeartbeatCheck({
      clock: options.clock,
      findProcess: () => {
        const state = this.#state;
        return state.name === 'running' && state.isReady ? state.process : undefined;
      },
      onSilent: (process) => {
        this.#log.error(this.#name(process), 'worker process stopped responding, killing it');
        process.kill();
      },
    });
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

  get uuids(): string[] {
    return this.set.devices.map(({ uuid }) => uuid);
  }

  get pid(): number | undefined {
    return this.#state.name === 'running' ? this.#state.process.pid : undefined;
  }

  /** Passes the figures on to the process, once it takes jobs. */
  noteGpuFigures(figures: GpuFigures): void {
    const state = this.#state;
    if (state.name === 'running' && state.isReady) state.process.send({ type: 'gpu', figures });
  }

  start(): void {
    if (this.#state.name !== 'quarantined') this.#launch();
    this.#heartbeat.start();
  }

  /** Ends the process, if any. Resolves when it has ended and the platform knows. */
  async stop(): Promise<void> {
    this.#isOver = true;
    this.#heartbeat.stop();
    const state = this.#state;
    if (state.name === 'running') {
      this.#beginEnding(state, 'stop', 'the supervisor exits');
      state.process.drain();
      await state.process.ended;
      // The process ended before it had an identity, so undelivered outcomes are its predecessor's.
      if (!state.process.identity) await this.#stopWithoutProcess();
    } else {
      if (state.name === 'waiting') state.cancel();
      if (state.name !== 'stopped') await this.#stopWithoutProcess();
    }
    await this.#crashReports.end();
  }

  /**
   * Nobody delivers the outcomes that the last process left. If some exist, the stop is not clean.
   */
  async #stopWithoutProcess(): Promise<void> {
    const { workerId } = this.#identity;
    const left = workerId === undefined ? [] : await this.#options.readUndelivered(workerId);
    this.#change({ name: 'stopped', isClean: left.length === 0 });
  }

  /**
   * Kills the process. Its jobs return to the queue with the crash report or when their leases expire.
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
    } else if (this.#beginEnding(state, 'quarantine', reason)) {
      state.process.send({ type: 'release' });
    }
  }

  readmit(): void {
    this.#quarantine = undefined;
    if (this.#state.name === 'quarantined' && !this.#isOver) this.#launch();
  }

  recycle(reason: string): void {
    const state = this.#state;
    // A process that is already ending frees the device anyway.
    if (state.name !== 'running' || state.ending) return;
    this.#beginEnding(state, 'recycle', reason);
    state.process.send({ type: 'recycle', reason });
  }

  /** Returns false if the process is already ending for an equally strong reason. */
  #beginEnding(state: Running, to: PlannedEnd['to'], reason: string): boolean {
    if (state.ending?.to === to || state.ending?.to === 'stop') return false;
    state.ending?.cancelKill();
    const { process } = state;
    const cancelKill = this.#clock.after(this.#options.killAfterMs, () => {
      this.#log.error(this.#name(process), 'worker process did not exit, killing it');
      process.kill();
    });
    state.ending = { to, reason, cancelKill };
    this.#options.onChange();
    return true;
  }

  #launch(): void {
    this.#launches += 1;
    const terms = { ...this.#nextIdentity(), breaker: this.#breaker };
    const process = this.#options.launch(this.set, terms);
    const startedAt = this.#clock.now();
    const state: Running = {
      name: 'running',
      process,
      startedAt,
      isReady: false,
      ending: undefined,
    };
    this.#change(state);
    void process.ready.then((isReady) => {
      state.isReady = isReady;
      this.#options.onChange();
    });
    void process.ended.then((end) => this.#onEnded(state, end));
  }

  #onEnded(state: Running, end: ProcessEnd): void {
    const { ending, process } = state;
    ending?.cancelKill();
    this.#identity = process.identity ?? this.#identity;
    this.#breaker = process.breaker ?? this.#breaker;
    const isIntended = ending?.to === 'quarantine' || ending?.to === 'stop';
    if (end.code !== 0) this.#crashReports.report(process, end, isIntended ? 'drained' : 'crashed');
    if (end.code === 0 && process.isDismissed) this.#isOver = true;
    // The platform that parked it starts another worker when a GPU is free.
    if (process.isParked) this.#isOver = true;
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
      this.#change({ name: 'stopped', isClean: end.code === 0 || process.isParked });
    } else this.#change({ name: 'quarantined', reason });
  }

  #name({ pid }: SupervisedProcess): { worker: string | undefined; pid: number | undefined } {
    return { worker: this.workerId, pid };
  }

  #replace({ isReady, ending, process, startedAt }: Running, end: ProcessEnd): void {
    const { failure, recycling } = process;
    const isFinal = failure?.isFinal ?? false;
    const wanted = recycling ?? (ending?.to === 'recycle' ? ending.reason : undefined);
    const isRecycled = wanted !== undefined && end.code === 0 && (process.activity?.ended ?? 0) > 0;
    const livedMs = this.#clock.now() - startedAt;
    const isRefused = failure?.exitCode === EXIT_REFUSED;
    const { hasCompleted, runsSolo: ranSolo } = process;
    const life = {
      wasReady: isReady,
      livedMs,
      hasCompleted,
      ranSolo,
      isFinal,
      isRefused,
      isRecycled,
    };
    const verdict = judgeProcessEnd(this.#record, life, this.#options.policy);
    this.#record = verdict.record;
    const { isGivenUp, waitMs } = verdict;
    const reason = wanted ?? failure?.reason ?? describeEnd(end);
    const note = { ...this.#name(process), ...end, reason };
    if (isGivenUp) {
      const { startFailures } = verdict.record;
      this.#log.fatal({ ...note, startFailures }, 'worker process given up');
    } else {
      const fields = { ...note, restartInMs: waitMs };
      if (wanted === undefined) this.#log.error(fields, 'worker process exited unexpectedly');
      else this.#log.info(fields, 'replacing the worker process');
    }
    if (waitMs === 0) {
      this.#launch();
      return;
    }
    const until = this.#clock.now() + waitMs;
    const cancel = this.#clock.after(waitMs, () => this.#launch());
    const exitCode = failure?.exitCode;
    this.#change({ name: 'waiting', reason, until, isGivenUp, isFinal, exitCode, cancel });
  }

  /**
   * The successor keeps the worker ID. Its incarnation is the time of its start, not of the death
   * before it, because another process may have used the worker ID in between.
   */
  #nextIdentity(): Partial<WorkerIdentity> {
    const { incarnation: last, workerId } = this.#identity;
    if (workerId === undefined || last === undefined) return this.#identity;
    return { workerId, incarnation: Math.max(this.#clock.now(), last + 1) };
  }

  #change(state: KeeperState): void {
    this.#state = state;
    this.#options.onChange();
  }
}
