// What a load requires of an endpoint's workers: the workers by state, the number of them, and the order in which
// they are drained.
import type { ScaledWorker, ScalerCause, ScalerInput } from '../../wire/resources/scaling.ts';

/** The number of workers that the load alone requires. */
export interface Demand {
  /** Workers. */
  need: number;
  cause: ScalerCause;
}

/** The workers as the rules see them. */
export interface WorkerGroups {
  /** All except draining workers. */
  alive: readonly ScaledWorker[];
  starting: readonly ScaledWorker[];
  busy: readonly ScaledWorker[];
  /** Alive, with the endpoint's current template and GPU types. */
  current: readonly ScaledWorker[];
  /** Alive, but with an old template or GPU type: due for replacement. */
  stale: readonly ScaledWorker[];
  draining: readonly ScaledWorker[];
}

export function groupWorkers(workers: readonly ScaledWorker[]): WorkerGroups {
  const alive = workers.filter(({ state }) => state !== 'draining');
  return {
    alive,
    starting: alive.filter(({ state }) => state === 'starting'),
    busy: alive.filter(({ jobs }) => jobs > 0),
    current: alive.filter(({ isCurrent }) => isCurrent),
    stale: alive.filter(({ isCurrent }) => !isCurrent),
    draining: workers.filter(({ state }) => state === 'draining'),
  };
}

export function measureDemand(input: ScalerInput, groups: WorkerGroups): Demand {
  const { load, scaler } = input;
  if (scaler.type === 'REQUEST_COUNT') {
    const need = Math.ceil((load.waiting + load.running) / scaler.perWorker);
    return { need, cause: need > 0 && groups.alive.length === 0 ? 'first' : 'count' };
  }
  if (load.waiting === 0) return { need: 0, cause: 'enough' };
  if (groups.alive.length === 0) return { need: 1, cause: 'first' };
  const have = countStanding(input, groups);
  const waitedMs = input.now - (load.oldestQueuedAt ?? input.now);
  const isLate = waitedMs > scaler.seconds * 1_000;
  if (!isLate || !hasLastArrived(input, groups)) return { need: have, cause: 'enough' };
  // More workers than jobs would leave some of them idle.
  const useful = Math.min(2 * have, load.waiting + groups.busy.length);
  return { need: Math.max(have, useful), cause: useful > have ? 'delay' : 'enough' };
}

/** During a replacement the endpoint has more workers than the load has asked for. */
function countStanding({ lastWant }: ScalerInput, { alive, stale }: WorkerGroups): number {
  if (stale.length === 0 || lastWant === null) return alive.length;
  return Math.max(1, Math.min(lastWant, alive.length));
}

/** Starting workers may be enough, but the decision waits for them only `seconds`. */
function hasLastArrived(
  { lastStartAt, now, scaler }: ScalerInput,
  { starting }: WorkerGroups,
): boolean {
  if (starting.length === 0 || lastStartAt === null) return true;
  return scaler.type === 'QUEUE_DELAY' && now - lastStartAt >= scaler.seconds * 1_000;
}

/** One more than the maximum, so that a new worker is ready before an old one drains. */
export function maximumOf({ workers, workersMax }: ScalerInput): number {
  const isRolling = workers.some(({ isCurrent }) => !isCurrent);
  return isRolling && workersMax > 0 ? workersMax + 1 : workersMax;
}

/**
 * Picks those whose loss costs least: starting, then idle for longest, then with the fewest jobs.
 */
export function pick(workers: readonly ScaledWorker[], count: number): ScaledWorker[] {
  if (count <= 0) return [];
  return [...workers].sort(compareUse).slice(0, count);
}

function compareUse(one: ScaledWorker, other: ScaledWorker): number {
  const rank = ({ idleSince, isCurrent, state }: ScaledWorker) =>
    (isCurrent ? 4 : 0) + (state === 'starting' ? 0 : idleSince !== null ? 1 : 2);
  return (
    rank(one) - rank(other) ||
    (one.idleSince ?? 0) - (other.idleSince ?? 0) ||
    one.jobs - other.jobs ||
    (one.id < other.id ? -1 : 1)
  );
}

interface LoadSample {
  at: number;
  value: number;
}

/** Tracks the greatest load within a sliding time window. */
export class LoadPeak {
  /** Decreasing values: one that is followed by a greater one can never be the peak again. */
  #samples: LoadSample[] = [];

  /** @returns the greatest value of the last `windowMs`, this one included */
  note(value: number, now: number, windowMs: number): number {
    while ((this.#samples.at(-1)?.value ?? Number.POSITIVE_INFINITY) <= value) this.#samples.pop();
    this.#samples.push({ at: now, value });
    while ((this.#samples[0]?.at ?? now) < now - windowMs) this.#samples.shift();
    return this.#samples[0]?.value ?? value;
  }
}
