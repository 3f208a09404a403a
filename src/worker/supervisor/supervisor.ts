// The parent of worker processes, one for each device set. It owns the keepers and decides when all
// are done; payloads do not pass through it. addUpHealth combines the health of its workers.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Device, LeaseRef, WorkerBye, WorkerIdentity } from '../../wire/link/worker-link.ts';
import type { DeviceSet } from '../gpu/device-sets.ts';
import type { WorkerHealth } from '../worker.ts';
import { Keeper, type KeeperState } from './keeper.ts';
import { DEFAULT_RESTART_POLICY, type RestartPolicy } from './restart-policy.ts';
import type { SupervisedProcess } from './worker-process.ts';

export interface SupervisorOptions {
  /** Each set gets a worker of its own. */
  sets: readonly DeviceSet[];
  /**
   * Stable over restarts; with several sets, each adds its number. Default: the workers choose
   * theirs.
   */
  workerId: string | undefined;
  /** Starts a process for a set, with the worker ID of its predecessor. */
  launch: (set: DeviceSet, as: Partial<WorkerIdentity>) => SupervisedProcess;
  /** Tells the platform that a worker is gone. */
  sayBye: (bye: WorkerBye) => Promise<void>;
  /** Attempts whose outcome a dead process left on disk. */
  readUndelivered: (workerId: string) => Promise<LeaseRef[]>;
  /** Time after which a draining process is killed, ms. */
  killAfterMs: number;
  /** Start failures in a row after which a worker is given up. Default 5. */
  startAttempts?: number;
  clock: Clock;
  log: Log;
}

/**
 * `left`: as requested; clean if all finished outcomes are delivered. `gave_up`: no worker could be
 * started; final if another attempt would not help.
 */
type SupervisorEnd =
  | { readonly name: 'left'; readonly isClean: boolean }
  | {
      readonly name: 'gave_up';
      readonly reason: string;
      readonly isFinal: boolean;
      /** That the last process asked for. */
      readonly exitCode: number | undefined;
    };

export class Supervisor {
  readonly keepers: readonly Keeper[];
  /** Resolves when no process is left. */
  readonly ended: Promise<SupervisorEnd>;
  #end: (end: SupervisorEnd) => void = () => {};
  #isStopping = false;

  constructor(options: SupervisorOptions) {
    const {
      clock,
      launch,
      killAfterMs,
      log,
      readUndelivered,
      sayBye,
      sets,
      startAttempts,
      workerId,
    } = options;
    const policy: RestartPolicy = {
      ...DEFAULT_RESTART_POLICY,
      ...(startAttempts !== undefined && { startAttempts }),
    };
    const onChange = () => this.#checkEnd();
    const common = { launch, sayBye, readUndelivered, policy, killAfterMs, clock, onChange };
    this.keepers = sets.map((set, index) => {
      const isAlone = sets.length === 1;
      const own = workerId === undefined || isAlone ? workerId : `${workerId}-${index}`;
      const devices = set.devices.map(({ uuid }) => uuid).join(',');
      return new Keeper({
        ...common,
        set,
        workerId: own,
        log: isAlone ? log : log.child({ devices }),
      });
    });
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  start(): void {
    for (const keeper of this.keepers) keeper.start();
  }

  /** Drains all workers. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.keepers.map((keeper) => keeper.stop()));
    const isClean = this.keepers.every(({ state }) => state.name === 'stopped' && state.isClean);
    this.#end({ name: 'left', isClean });
  }

  /** Ends the processes at once; their jobs return to the queue. */
  kill(): void {
    for (const keeper of this.keepers) keeper.kill();
  }

  /** Ends the supervisor when all workers have stopped, or when none can be started. */
  #checkEnd(): void {
    if (this.#isStopping) return;
    const states = this.keepers.map(({ state }) => state).filter(({ name }) => name !== 'stopped');
    if (states.length === 0) return void this.stop();
    const givenUp = states.filter((state) => state.name === 'waiting' && state.isGivenUp);
    const [first] = givenUp;
    if (givenUp.length < states.length || first?.name !== 'waiting') return;
    this.#isStopping = true;
    const { exitCode, isFinal, reason } = first;
    void Promise.all(this.keepers.map((keeper) => keeper.stop())).then(() => {
      this.#end({ name: 'gave_up', reason, isFinal, exitCode });
    });
  }
}

interface WorkerStatus {
  workerId?: string;
  devices: Device[];
  state:
    | 'starting'
    | 'ready'
    | 'not_ready'
    | 'draining'
    | 'restarting'
    | 'given_up'
    | 'quarantined'
    | 'stopped';
  /** Why it is not ready. */
  reason?: string;
  restarts: number;
  pid?: number;
  /** The worker's own report; absent if no process answers. */
  health?: WorkerHealth;
}

export interface FleetHealth {
  /** At least one worker exists, and every worker with a usable device can run jobs. */
  ready: boolean;
  /** Why it is not. */
  reason?: string;
  /** What is missing although it is ready. */
  degraded?: string;
  state: 'running' | 'draining';
  /** Sum over all workers. */
  slots: number;
  running: number;
  stuck: number;
  outboxDepth: number;
  workers: WorkerStatus[];
}

export interface KeeperView {
  workerId: string | undefined;
  devices: Device[];
  state: KeeperState;
  restarts: number;
  /** Undefined without a process, or if it does not answer. */
  health: WorkerHealth | undefined;
}

/** Pure; the caller collects the health of the workers. */
export function addUpHealth(views: readonly KeeperView[], isStopping: boolean): FleetHealth {
  const workers = views.map(describeWorker);
  const inService = workers.filter(({ state }) => state !== 'quarantined');
  const bad = inService.find(({ state }) => state !== 'ready');
  const reason = isStopping ? 'draining' : findReason(inService, bad);
  const out = workers.filter(({ state }) => state === 'quarantined');
  const degraded = out.map(({ reason: why, ...worker }) => `${nameWorker(worker)}: ${why}`);
  const sum = (name: 'slots' | 'running' | 'stuck' | 'outboxDepth') =>
    workers.reduce((total, { health }) => total + (health?.[name] ?? 0), 0);
  return {
    ready: reason === undefined,
    ...(reason !== undefined && { reason }),
    ...(degraded.length > 0 && { degraded: degraded.join('; ') }),
    state: isStopping ? 'draining' : 'running',
    slots: sum('slots'),
    running: sum('running'),
    stuck: sum('stuck'),
    outboxDepth: sum('outboxDepth'),
    workers,
  };
}

function findReason(
  inService: readonly WorkerStatus[],
  bad: WorkerStatus | undefined,
): string | undefined {
  if (inService.length === 0) return 'all devices are quarantined';
  if (!bad) return undefined;
  return inService.length === 1 ? bad.reason : `${nameWorker(bad)}: ${bad.reason}`;
}

function nameWorker({ devices, workerId }: Pick<WorkerStatus, 'devices' | 'workerId'>): string {
  return workerId ?? `the worker on ${devices.map(({ uuid }) => uuid).join(', ')}`;
}

function describeWorker({ devices, health, restarts, state, workerId }: KeeperView): WorkerStatus {
  return {
    ...(workerId !== undefined && { workerId }),
    devices,
    ...describeState(state, health),
    restarts,
    ...(state.name === 'running' && state.process.pid !== undefined && { pid: state.process.pid }),
    ...(health && { health }),
  };
}

function describeState(
  state: KeeperState,
  health: WorkerHealth | undefined,
): Pick<WorkerStatus, 'state' | 'reason'> {
  switch (state.name) {
    case 'waiting':
      return { state: state.isGivenUp ? 'given_up' : 'restarting', reason: state.reason };
    case 'quarantined':
      return { state: 'quarantined', reason: state.reason };
    case 'stopped':
      return { state: 'stopped', reason: 'stopped' };
    case 'running':
      if (state.ending?.to === 'quarantine') {
        return { state: 'quarantined', reason: state.ending.reason };
      }
      if (state.ending) return { state: 'draining', reason: state.ending.reason };
      if (health?.ready) return { state: 'ready' };
      return {
        state: state.isReady ? 'not_ready' : 'starting',
        reason: health?.reason ?? explainSilence(state.isReady),
      };
  }
}

function explainSilence(wasReady: boolean): string {
  return wasReady ? 'the worker process does not respond' : 'starting: waiting for the process';
}
