// Combines the health of one supervisor's workers. Pure; the caller collects it.
import type { Device } from '../../wire/link/worker-link.ts';
import type { WorkerHealth } from '../worker.ts';
import type { KeeperState } from './keeper.ts';

export interface WorkerStatus {
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
