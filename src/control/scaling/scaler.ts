// Decides how many workers an endpoint should have, and which of them to drain. A pure function, so
// that a stored decision can be reproduced from its input; fleet.ts carries decisions out.
import type {
  ScaledWorker,
  ScalerCause,
  ScalerDecision,
  ScalerInput,
} from '../../wire/resources/decision.ts';
import { describeCause } from './scaler-reasons.ts';

/** The number of workers that the load alone requires. */
interface Demand {
  /** Workers. */
  need: number;
  cause: ScalerCause;
}

/** The workers as the rules see them. */
interface WorkerGroups {
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

/**
 * Never more than `workersMax` workers, draining ones included; one more is allowed while outdated
 * workers are replaced. Adds workers as soon as the load asks for it. Removes workers only if they
 * were idle for the idle timeout, or if fewer would have been enough for a balancer's requests
 * during that whole time.
 */
export function decide(input: ScalerInput): ScalerDecision {
  const groups = groupWorkers(input.workers);
  const demand = measureDemand(input, groups);
  const want = Math.min(
    input.workersMax,
    Math.max(demand.need, groups.busy.length, input.workersMin),
  );
  const scaleUp = planScaleUp(input, groups, want);
  const drainPlan = planDrain(input, groups, { want, hasNoCapacity: isOutOfCapacity(scaleUp) });
  const cause = pickCause({ input, groups, demand, scaleUp, drainPlan });
  const drain = drainPlan.drain.map(({ id }) => id);
  const facts = { input, want, alive: groups.alive.length };
  const moves = { start: scaleUp.start, drains: drain.length };
  const reason = describeCause(cause, { ...facts, ...moves });
  return { want, start: scaleUp.start, drain, cause, reason };
}

function groupWorkers(workers: readonly ScaledWorker[]): WorkerGroups {
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

// --- demand --------------------------------------------------------------------------------------

function measureDemand(input: ScalerInput, groups: WorkerGroups): Demand {
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

// --- scaling up ----------------------------------------------------------------------------------

interface ScaleUp {
  start: number;
  /** Why no more workers start. */
  block: 'crashed' | 'no_gpu' | 'no_capacity' | 'at_maximum' | 'rolling' | undefined;
}

function planScaleUp(input: ScalerInput, groups: WorkerGroups, want: number): ScaleUp {
  const { crashes, now, places, headroom, workers } = input;
  const wanted = want - groups.current.length;
  if (wanted <= 0) return { start: 0, block: undefined };
  const missing = Math.min(wanted, maximumOf(input) - workers.length);
  if (missing <= 0) {
    return { start: 0, block: groups.stale.length > 0 ? 'rolling' : 'at_maximum' };
  }
  if (now < crashes.notBefore) return { start: 0, block: 'crashed' };
  // After a crash, a single worker shows whether the cause is gone.
  const isOnTrial = crashes.streak > 0;
  const arriving = groups.starting.filter(({ isCurrent }) => isCurrent).length;
  if (isOnTrial && arriving > 0) return { start: 0, block: 'crashed' };
  const wished = isOnTrial ? 1 : missing;
  const start = Math.min(wished, places ?? wished, headroom?.places ?? wished);
  if (start > 0) return { start, block: undefined };
  return { start, block: places === 0 ? 'no_gpu' : 'no_capacity' };
}

function isOutOfCapacity({ block }: ScaleUp): boolean {
  return block === 'no_gpu' || block === 'no_capacity';
}

/** One more than the maximum, so that a new worker is ready before an old one drains. */
function maximumOf({ workers, workersMax }: ScalerInput): number {
  const isRolling = workers.some(({ isCurrent }) => !isCurrent);
  return isRolling && workersMax > 0 ? workersMax + 1 : workersMax;
}

// --- draining ------------------------------------------------------------------------------------

interface DrainPlan {
  drain: ScaledWorker[];
  cause: ScalerCause;
}

interface DrainTerms {
  want: number;
  /** New workers are wanted, but the machine has no GPU or no capacity for any. */
  hasNoCapacity: boolean;
}

function planDrain(
  input: ScalerInput,
  groups: WorkerGroups,
  { hasNoCapacity, want }: DrainTerms,
): DrainPlan {
  const above = groups.alive.length - maximumOf(input);
  if (above > 0) return { drain: pick(groups.alive, above), cause: 'above_maximum' };
  if (groups.stale.length > 0) {
    const drain = replaceStale(groups, { hasNoCapacity, want });
    if (drain.length > 0) return { drain, cause: 'rolling' };
  }
  // Starting workers are not idle: they cannot do anything yet.
  const ready = groups.alive.filter(({ state }) => state === 'ready');
  const idle = pick(listIdle(input, ready), ready.length - want);
  if (idle.length > 0) return { drain: idle, cause: 'idle' };
  const surplus = ready.length - countKept(input, ready, want);
  return { drain: pick(ready, surplus), cause: 'surplus' };
}

/** Drains one outdated worker for each ready replacement, and those that the load does not need. */
function replaceStale(groups: WorkerGroups, { hasNoCapacity, want }: DrainTerms): ScaledWorker[] {
  const { current, draining, stale } = groups;
  const ready = current.filter(({ state }) => state === 'ready');
  const spare = ready.length + stale.length - want;
  // Without free capacity, a new worker can only start in the place of an outdated one.
  const isWaitingForNone =
    hasNoCapacity && draining.length === 0 && ready.length === current.length;
  return pick(stale, spare <= 0 && isWaitingForNone ? 1 : spare);
}

function listIdle(
  { idleTimeoutMs, now }: ScalerInput,
  ready: readonly ScaledWorker[],
): ScaledWorker[] {
  return ready.filter(({ idleSince }) => idleSince !== null && now - idleSince >= idleTimeoutMs);
}

/**
 * A balancer spreads requests over all workers, so under constant load none would ever be idle; the
 * peak counts instead. The remaining workers must cope with half of `perWorker` each, otherwise the
 * drained ones would be needed again at once. One worker stays while any requests arrive.
 */
function countKept(
  { load, scaler, type }: ScalerInput,
  ready: readonly ScaledWorker[],
  want: number,
): number {
  if (type !== 'LOAD_BALANCER' || scaler.type !== 'REQUEST_COUNT') return ready.length;
  return Math.max(1, want, Math.ceil((2 * load.peak) / scaler.perWorker));
}

/**
 * Picks those whose loss costs least: starting, then idle for longest, then with the fewest jobs.
 */
function pick(workers: readonly ScaledWorker[], count: number): ScaledWorker[] {
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

// --- cause ---------------------------------------------------------------------------------------

interface CauseInput {
  input: ScalerInput;
  groups: WorkerGroups;
  demand: Demand;
  scaleUp: ScaleUp;
  drainPlan: DrainPlan;
}

function pickCause({ groups, demand, input, drainPlan, scaleUp }: CauseInput): ScalerCause {
  const alive = groups.alive.length;
  if (scaleUp.start > 0) {
    if (demand.need > alive) return demand.cause;
    return groups.stale.length > 0 ? 'rolling' : 'minimum';
  }
  if (drainPlan.drain.length > 0) return drainPlan.cause;
  if (scaleUp.block) return scaleUp.block;
  const isAtMaximum = demand.need > input.workersMax && alive >= input.workersMax;
  return isAtMaximum ? 'at_maximum' : 'enough';
}
