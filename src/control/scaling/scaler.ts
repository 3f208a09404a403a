// How many workers an endpoint is to have, and which of them go. A pure function of what is given, so
// that a recorded decision can be made again; what comes of it is done in fleet.ts.
import type {
  ScaledWorker,
  ScalerCause,
  ScalerDecision,
  ScalerInput,
} from '../../wire/resources/decision.ts';
import { describeCause } from './scaler-reasons.ts';

/** What the load alone asks for. */
interface Demand {
  /** Workers. */
  need: number;
  cause: ScalerCause;
}

/** The workers as the rules see them. */
interface Crew {
  /** All but the draining ones. */
  alive: readonly ScaledWorker[];
  starting: readonly ScaledWorker[];
  busy: readonly ScaledWorker[];
  /** Alive, and made as they would be made now. */
  current: readonly ScaledWorker[];
  /** Alive, and to be replaced. */
  stale: readonly ScaledWorker[];
  draining: readonly ScaledWorker[];
}

/**
 * At most `workersMax` workers, those that drain included, one more while old ones are replaced. More
 * as soon as the load asks for it; fewer only when some have had nothing to do for the idle timeout, or
 * when a balancer's requests would all that time have done with fewer.
 */
export function decide(input: ScalerInput): ScalerDecision {
  const crew = sortCrew(input.workers);
  const demand = measureDemand(input, crew);
  const want = Math.min(
    input.workersMax,
    Math.max(demand.need, crew.busy.length, input.workersMin),
  );
  const raise = planStart(input, crew, want);
  const leave = planDrain(input, crew, { want, isStuck: isWithoutPlace(raise) });
  const cause = pickCause({ input, crew, demand, raise, leave });
  const drain = leave.drain.map(({ id }) => id);
  const facts = { input, want, alive: crew.alive.length };
  const moves = { start: raise.start, drains: drain.length };
  const reason = describeCause(cause, { ...facts, ...moves });
  return { want, start: raise.start, drain, cause, reason };
}

function sortCrew(workers: readonly ScaledWorker[]): Crew {
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

// --- what the load asks for ----------------------------------------------------------------------

function measureDemand(input: ScalerInput, crew: Crew): Demand {
  const { load, scaler } = input;
  if (scaler.type === 'REQUEST_COUNT') {
    const need = Math.ceil((load.waiting + load.running) / scaler.perWorker);
    return { need, cause: need > 0 && crew.alive.length === 0 ? 'first' : 'count' };
  }
  if (load.waiting === 0) return { need: 0, cause: 'enough' };
  if (crew.alive.length === 0) return { need: 1, cause: 'first' };
  const have = countStanding(input, crew);
  const waitedMs = input.now - (load.oldestQueuedAt ?? input.now);
  const isLate = waitedMs > scaler.seconds * 1_000;
  if (!isLate || !hasLastArrived(input, crew)) return { need: have, cause: 'enough' };
  // More than one for each job there is would have nothing to do.
  const useful = Math.min(2 * have, load.waiting + crew.busy.length);
  return { need: Math.max(have, useful), cause: useful > have ? 'delay' : 'enough' };
}

/** While workers are replaced there are more of them than the load has asked for. */
function countStanding({ lastWant }: ScalerInput, { alive, stale }: Crew): number {
  if (stale.length === 0 || lastWant === null) return alive.length;
  return Math.max(1, Math.min(lastWant, alive.length));
}

/** Those that are on their way may be enough; but only for so long. */
function hasLastArrived({ lastStartAt, now, scaler }: ScalerInput, { starting }: Crew): boolean {
  if (starting.length === 0 || lastStartAt === null) return true;
  return scaler.type === 'QUEUE_DELAY' && now - lastStartAt >= scaler.seconds * 1_000;
}

// --- who comes -----------------------------------------------------------------------------------

interface Raise {
  start: number;
  /** What keeps more from being started. */
  block: 'crashed' | 'no_gpu' | 'no_room' | 'at_maximum' | 'rolling' | undefined;
}

function planStart(input: ScalerInput, crew: Crew, want: number): Raise {
  const { crashes, now, places, room, workers } = input;
  const wanted = want - crew.current.length;
  if (wanted <= 0) return { start: 0, block: undefined };
  const missing = Math.min(wanted, maximumOf(input) - workers.length);
  if (missing <= 0) {
    return { start: 0, block: crew.stale.length > 0 ? 'rolling' : 'at_maximum' };
  }
  if (now < crashes.notBefore) return { start: 0, block: 'crashed' };
  // One shows whether it is any better now.
  const isOnTrial = crashes.streak > 0;
  const arriving = crew.starting.filter(({ isCurrent }) => isCurrent).length;
  if (isOnTrial && arriving > 0) return { start: 0, block: 'crashed' };
  const wished = isOnTrial ? 1 : missing;
  const start = Math.min(wished, places ?? wished, room?.places ?? wished);
  if (start > 0) return { start, block: undefined };
  return { start, block: places === 0 ? 'no_gpu' : 'no_room' };
}

function isWithoutPlace({ block }: Raise): boolean {
  return block === 'no_gpu' || block === 'no_room';
}

/** One more than the maximum, so that a new worker can be ready before an old one goes. */
function maximumOf({ workers, workersMax }: ScalerInput): number {
  const isRolling = workers.some(({ isCurrent }) => !isCurrent);
  return isRolling && workersMax > 0 ? workersMax + 1 : workersMax;
}

// --- who goes ------------------------------------------------------------------------------------

interface Leave {
  drain: ScaledWorker[];
  cause: ScalerCause;
}

interface DrainTerms {
  want: number;
  /** New workers are wanted, and there is no GPU or no room for any. */
  isStuck: boolean;
}

function planDrain(input: ScalerInput, crew: Crew, { isStuck, want }: DrainTerms): Leave {
  const above = crew.alive.length - maximumOf(input);
  if (above > 0) return { drain: pick(crew.alive, above), cause: 'above_maximum' };
  if (crew.stale.length > 0) {
    const drain = replaceStale(crew, { isStuck, want });
    if (drain.length > 0) return { drain, cause: 'rolling' };
  }
  // Those that are on their way do not do anything yet.
  const ready = crew.alive.filter(({ state }) => state === 'ready');
  const idle = pick(listIdle(input, ready), ready.length - want);
  if (idle.length > 0) return { drain: idle, cause: 'idle' };
  const surplus = ready.length - countKept(input, ready, want);
  return { drain: pick(ready, surplus), cause: 'surplus' };
}

/** As many as those that are ready in their place, and those that nobody would miss. */
function replaceStale(crew: Crew, { isStuck, want }: DrainTerms): ScaledWorker[] {
  const { current, draining, stale } = crew;
  const ready = current.filter(({ state }) => state === 'ready');
  const spare = ready.length + stale.length - want;
  // Only the place of an old one can be that of a new one.
  const isWaitingForNone = isStuck && draining.length === 0 && ready.length === current.length;
  return pick(stale, spare <= 0 && isWaitingForNone ? 1 : spare);
}

function listIdle(
  { idleTimeoutMs, now }: ScalerInput,
  ready: readonly ScaledWorker[],
): ScaledWorker[] {
  return ready.filter(({ idleSince }) => idleSince !== null && now - idleSince >= idleTimeoutMs);
}

/**
 * A balancer spreads requests over all workers, so that with some always coming none would ever be
 * idle: what counts is the most that there were. Fewer workers have to do with half of what one of them
 * is to have, or the others would be missed at once. One stays as long as there are any requests.
 */
function countKept(
  { load, scaler, type }: ScalerInput,
  ready: readonly ScaledWorker[],
  want: number,
): number {
  if (type !== 'LOAD_BALANCER' || scaler.type !== 'REQUEST_COUNT') return ready.length;
  return Math.max(1, want, Math.ceil((2 * load.peak) / scaler.perWorker));
}

/** Those that are missed least: not ready yet, then idle the longest, then with the fewest jobs. */
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

// --- why -----------------------------------------------------------------------------------------

interface Outcome {
  input: ScalerInput;
  crew: Crew;
  demand: Demand;
  raise: Raise;
  leave: Leave;
}

function pickCause({ crew, demand, input, leave, raise }: Outcome): ScalerCause {
  const alive = crew.alive.length;
  if (raise.start > 0) {
    if (demand.need > alive) return demand.cause;
    return crew.stale.length > 0 ? 'rolling' : 'minimum';
  }
  if (leave.drain.length > 0) return leave.cause;
  if (raise.block) return raise.block;
  const isAtMaximum = demand.need > input.workersMax && alive >= input.workersMax;
  return isAtMaximum ? 'at_maximum' : 'enough';
}
