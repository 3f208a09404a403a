// Why a worker is ended: decides it from its pod and what was seen of it, and finds the reason of an exit in its log.
import type { EndpointType } from '../../wire/resources/fields.ts';
import { isParked, reasonOfUser } from '../pods/pod-lifecycle.ts';
import type { PodState } from '../pods/pod-state.ts';
import type { SeenWorker } from './work-view.ts';

/** A container that has run this long without a ready worker is given up, ms. */
const START_LIMIT_MS = 15 * 60_000;
/** A pod that has waited this long for a GPU is given up, ms: another type may have a free one. */
const GPU_LIMIT_MS = 10_000;
/** Time that a draining worker gets beyond the execution timeout of its jobs, ms. */
const DRAIN_SLACK_MS = 60_000;
/** A spare worker that has not said for so long that it can be parked cannot, ms. */
const SPARE_LIMIT_MS = 10_000;
/** A worker that has had its GPUs back for this long and is not ready is given up, ms. */
const WAKE_LIMIT_MS = 5 * 60_000;

export interface EndInput {
  now: number;
  type: EndpointType;
  executionTimeoutMs: number;
  /** Undefined: it is not connected. */
  worker: SeenWorker | undefined;
  /** A ready worker that was silent for this long is dead, ms. */
  silentMs: number;
  /** A worker whose node has been gone for this long is replaced, ms. Default: never. */
  replaceAfterMs?: number | undefined;
  /** No machine has capacity for it, and another GPU type may have some. Default: none waits for capacity. */
  isMovable?: (pod: PodState) => boolean;
}

/** All Unix ms; null: never. */
interface WorkerTimes {
  /** Time of the first pass that saw the pod. */
  since: number;
  /** When its worker was last connected. */
  seenAt: number | null;
  parkingSince: number | null;
  wakingSince: number | null;
  /** When its worker was first connected. */
  readySince: number | null;
}

export const CANNOT_PARK = 'it is a spare worker, and cannot be parked';

/** The reason to end a worker that is parked, or on the way to it or back. */
export function findParkingEnd(
  pod: PodState,
  { parkingSince, readySince, wakingSince }: Omit<WorkerTimes, 'since' | 'seenAt'>,
  { executionTimeoutMs, now, worker }: Omit<EndInput, 'silentMs'>,
): string | undefined {
  const state = worker?.parking?.state;
  if (isParked(pod) && !pod.unreachable) {
    return state === 'ready' || state === 'waking' ? 'it came back without its GPUs' : undefined;
  }
  if (pod.parked) {
    // Without its memory it starts anew.
    const limitMs = pod.parked.bytes === 0 ? START_LIMIT_MS : WAKE_LIMIT_MS;
    return now - (wakingSince ?? now) >= limitMs ? 'it did not wake in time' : undefined;
  }
  if (pod.spare && worker && !worker.parking) {
    // Workers of earlier versions take jobs meanwhile.
    if (worker.jobs > 0) return undefined;
    return now - (readySince ?? now) >= SPARE_LIMIT_MS ? CANNOT_PARK : undefined;
  }
  if (parkingSince === null) return undefined;
  const mayRunUntil = Math.max(parkingSince + executionTimeoutMs, worker?.busyUntil ?? 0);
  return now >= mayRunUntil + DRAIN_SLACK_MS ? 'it did not leave its GPUs in time' : undefined;
}

/** The reason to end a worker that is not draining; undefined if it may stay. */
export function findEnd(
  pod: PodState,
  { seenAt, since }: Pick<WorkerTimes, 'seenAt' | 'since'>,
  {
    isMovable = () => false,
    now,
    replaceAfterMs = Number.POSITIVE_INFINITY,
    silentMs,
    worker,
  }: EndInput,
): string | undefined {
  if (pod.status === 'TERMINATED') return undefined;
  if (pod.unreachable) {
    const isLost = worker === undefined && now - pod.unreachable.since >= replaceAfterMs;
    return isLost ? pod.unreachable.why : undefined;
  }
  const fault = findPodFault(pod);
  if (fault !== undefined) return fault;
  if (isMovable(pod)) return 'no machine has capacity for its GPU type, and another type is free';
  if (isWithoutGpu(pod)) {
    return now - since >= GPU_LIMIT_MS ? 'no GPU became free in time' : undefined;
  }
  if (pod.startedAt === null) return undefined;
  if (seenAt !== null)
    return now - seenAt >= silentMs ? 'the worker stopped responding' : undefined;
  const runsSince = Math.max(pod.startedAt, since);
  return now - runsSince >= START_LIMIT_MS ? 'the worker did not become ready in time' : undefined;
}

/** Why the worker in the pod has ended or failed; undefined if it runs or may still start. */
export function findPodFault(pod: PodState): string | undefined {
  if (pod.status === 'TERMINATED') return reasonOfUser(pod) ?? 'the worker was removed';
  if (pod.status === 'EXITED') return reasonOfUser(pod) ?? 'the worker exited by itself';
  // The pod would restart a failed container without a pause; a new worker after a pause is better.
  return pod.status === 'ERROR' || pod.retryAt !== null ? describeFailure(pod) : undefined;
}

/** The reason to end a draining worker; undefined if it may continue to drain. */
export function findDrainEnd(
  { status }: PodState,
  { drainingSince, seenAt }: { drainingSince: number; seenAt: number | null },
  { executionTimeoutMs, now, silentMs, type, worker }: EndInput,
): string | undefined {
  if (status === 'TERMINATED') return undefined;
  if (status === 'EXITED' || status === 'ERROR') return 'the worker has drained';
  // A plain HTTP server does not exit by itself when it is drained.
  if (type === 'LOAD_BALANCER' && (worker?.jobs ?? 0) === 0) return 'its last request has ended';
  // It cannot be told to drain. SIGTERM lets it finish its jobs and save their outcomes.
  if (type === 'QUEUE' && seenAt !== null && now - seenAt >= silentMs) {
    return 'the worker stopped responding';
  }
  // The timeout of a job may be longer than the endpoint's.
  const mayRunUntil = Math.max(drainingSince + executionTimeoutMs, worker?.busyUntil ?? 0);
  const isOverdue = now >= mayRunUntil + DRAIN_SLACK_MS;
  return isOverdue ? 'the worker did not drain in time' : undefined;
}

export function isWithoutGpu({ gpus, spec, status }: PodState): boolean {
  return status === 'PROVISIONING' && spec.gpu !== undefined && gpus.length === 0;
}

export function isClean({ status }: PodState): boolean {
  return status === 'EXITED';
}

/** The pod's reason without its second part, the next step of the pod. */
function describeFailure({ reason }: PodState): string {
  return reason?.split(';')[0] ?? 'the worker ended';
}

const MAX_LENGTH = 300;
/** pino's level: lower lines do not explain an exit. */
const WARN = 40;

/**
 * Finds the reason of a worker's exit at the end of its log: the last line that may be the reason, skipping stack frames.
 * From a line of a Millrace worker's own log, returns its message and its cause if it is a warning or an error.
 */
export function findLastOutput(log: string): string | undefined {
  for (const line of log.split('\n').reverse()) {
    const text = readLine(line);
    if (text !== undefined) return text.slice(0, MAX_LENGTH);
  }
  return undefined;
}

function readLine(line: string): string | undefined {
  if (!/^\S.*\w/.test(line)) return undefined;
  const record = parseRecord(line);
  if (record === undefined) return line;
  const { err, level, msg, reason } = record;
  if (typeof level === 'number' && level < WARN) return undefined;
  const text = typeof msg === 'string' ? msg : line;
  const cause = isRecord(err) ? err['message'] : reason;
  return typeof cause !== 'string' || text.includes(cause) ? text : `${text}: ${cause}`;
}

function parseRecord(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith('{"level":')) return undefined;
  try {
    const parsed: unknown = JSON.parse(line);
    return isRecord(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
