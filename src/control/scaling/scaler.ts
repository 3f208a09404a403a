// Decides how many workers an endpoint should have, and which of them to drain. A pure function, so
// that a stored decision can be reproduced from its input; fleet.ts carries decisions out.
import type {
  ScaledWorker,
  ScalerCause,
  ScalerDecision,
  ScalerInput,
} from '../../wire/resources/scaling.ts';
import {
  countWorkers,
  type Demand,
  describeCause,
  groupWorkers,
  maximumOf,
  measureDemand,
  pick,
  type WorkerGroups,
} from './scaler-demand.ts';

/**
 * Never more than `workersMax` workers, draining ones included; one more is allowed while outdated
 * workers are replaced. Adds workers as soon as the load asks for it. Removes workers only if they
 * were idle for the idle timeout, or if fewer would have been enough for a balancer's requests
 * during that whole time.
 */
export function decide(input: ScalerInput): ScalerDecision {
  return addSuspensions(input, decideForLoad(input));
}

/** They change nothing else: a suspended worker counts towards the maximum, and takes no jobs. */
function addSuspensions(input: ScalerInput, decision: ScalerDecision): ScalerDecision {
  const { preempted = [], resumed = [], workers } = input;
  const isIn = (id: string, state: ScaledWorker['state']) =>
    workers.some((worker) => worker.id === id && worker.state === state);
  const leaving = [...decision.drain, ...(decision.park ?? [])];
  const suspend = preempted
    .map(({ worker }) => worker)
    .filter((id) => isIn(id, 'ready') && !leaving.includes(id));
  const resume = resumed.filter((id) => isIn(id, 'suspended'));
  if (suspend.length + resume.length === 0) return decision;
  const cause = suspend.length > 0 ? 'preempted' : 'resumed';
  const alive = groupWorkers(workers).alive.length;
  const facts = { input, alive, want: decision.want, start: 0, drains: 0 };
  return {
    ...decision,
    ...(suspend.length > 0 && { suspend }),
    ...(resume.length > 0 && { resume }),
    cause,
    reason: describeCause(cause, facts),
  };
}

function decideForLoad(input: ScalerInput): ScalerDecision {
  const { load } = input;
  const { outgrown = [] } = load;
  if (outgrown.length === 0) return decideForAny(input);
  const apart = outgrown.reduce((sum, { waiting }) => sum + waiting, 0);
  const waiting = Math.max(0, load.waiting - apart);
  return addNextGpus(input, decideForAny({ ...input, load: { ...load, waiting } }));
}

/** For jobs that any worker may take. */
function decideForAny(input: ScalerInput): ScalerDecision {
  const groups = groupWorkers(input.workers);
  const demand = measureDemand(input, groups);
  const want = Math.min(
    input.workersMax,
    Math.max(demand.need, groups.busy.length, input.workersMin),
  );
  const scaleUp = planScaleUp(input, groups, want);
  const terms = { want, hasNoCapacity: isOutOfCapacity(scaleUp), wake: scaleUp.wake };
  const drainPlan = planDrain(input, groups, terms);
  const spare = planSpare(input, groups, { scaleUp, drainPlan });
  const cause = pickCause({ input, groups, demand, scaleUp, drainPlan, spare });
  const [park, drain] = splitParked(input, groups, drainPlan);
  const wake = scaleUp.wake.map(({ id }) => id);
  const facts = { input, want, alive: groups.alive.length };
  const left = groups.alive.filter((worker) => !drainPlan.drain.includes(worker)).length;
  const moves = { start: scaleUp.start, drains: drain.length, left };
  const reason = describeCause(cause, {
    ...{ ...facts, ...moves },
    ...{ parks: park.length, wakes: wake.length },
  });
  const parking = {
    ...(cause === 'spare' && { startSpares: 1 }),
    ...(park.length > 0 && { park }),
    ...(wake.length > 0 && { wake }),
  };
  return { want, start: scaleUp.start, drain, ...parking, cause, reason };
}

/** Workers that are not needed now are parked instead of drained, if that is possible. Without `parkSeconds`, only as spare ones. */
function splitParked(
  input: ScalerInput,
  groups: WorkerGroups,
  { cause, drain }: DrainPlan,
): [string[], string[]] {
  const mayPark = cause === 'idle' || cause === 'surplus' || cause === 'gives_way';
  const { parkMs = 0 } = input;
  const most = parkMs > 0 ? drain.length : countMissingSpares(input, groups);
  const parkable = drain.filter(({ canPark, isCurrent }) => mayPark && canPark && isCurrent);
  const parked = parkable.slice(0, most);
  const drained = drain.filter((worker) => !parked.includes(worker));
  return [parked.map(({ id }) => id), drained.map(({ id }) => id)];
}

// --- scaling up ----------------------------------------------------------------------------------

interface ScaleUp {
  start: number;
  /** Parked workers that come back instead. */
  wake: ScaledWorker[];
  /** Why no more workers start. */
  block: 'crashed' | 'no_gpu' | 'no_capacity' | 'budget' | 'at_maximum' | 'rolling' | undefined;
}

function planScaleUp(input: ScalerInput, groups: WorkerGroups, want: number): ScaleUp {
  const { crashes, now, places, headroom, workers } = input;
  const wanted = want - groups.current.length;
  if (wanted <= 0) return { start: 0, wake: [], block: undefined };
  const missing = Math.min(wanted, maximumOf(input) - countWorkers(workers));
  if (missing <= 0) {
    return { start: 0, wake: [], block: groups.stale.length > 0 ? 'rolling' : 'at_maximum' };
  }
  if (headroom?.budget) return { start: 0, wake: [], block: 'budget' };
  const wakeable = groups.parked.filter(({ isCurrent, parking }) => isCurrent && parking?.canWake);
  // The one that was parked last: its model is the one that was used last. One that still starts is the last choice.
  const byUse = wakeable.toSorted((one, other) => rankStarting(other) - rankStarting(one));
  const wake = byUse.slice(-missing);
  const fresh = missing - wake.length;
  if (fresh === 0) return { start: 0, wake, block: undefined };
  if (now < crashes.notBefore) return { start: 0, wake, block: 'crashed' };
  // After a crash, a single worker shows whether the cause is gone.
  const isOnTrial = crashes.streak > 0;
  const arriving = groups.starting.filter(({ isCurrent }) => isCurrent).length;
  if (isOnTrial && arriving > 0) return { start: 0, wake, block: 'crashed' };
  const wished = isOnTrial ? 1 : fresh;
  // Those that wake take free GPUs, too, unless they have theirs.
  const returning = wake.length - wake.filter(({ parking }) => parking?.isStarting).length;
  const open = places === null ? wished : Math.max(0, places - returning);
  const start = Math.min(wished, open, headroom?.places ?? wished);
  if (start > 0) return { start, wake, block: undefined };
  return { start, wake, block: open === 0 ? 'no_gpu' : 'no_capacity' };
}

function isOutOfCapacity({ block }: ScaleUp): boolean {
  return block === 'no_gpu' || block === 'no_capacity';
}

function rankStarting({ parking }: ScaledWorker): number {
  return parking?.isStarting ? 1 : 0;
}

// --- spare workers -------------------------------------------------------------------------------

type SpareMove = 'start' | 'blocked' | 'none';

/**
 * One at a time, while nothing else is to be done for the endpoint: so the size of the first one is known before the next one starts,
 * and load has the free GPUs first.
 */
function planSpare(
  input: ScalerInput,
  groups: WorkerGroups,
  { drainPlan, scaleUp }: { scaleUp: ScaleUp; drainPlan: DrainPlan },
): SpareMove {
  const { crashes, headroom, load, now, places, spares } = input;
  if (countMissingSpares(input, groups) === 0) return 'none';
  const isMoving = scaleUp.start + scaleUp.wake.length + drainPlan.drain.length > 0;
  const isBehind = scaleUp.block !== undefined || (load.outgrown ?? []).length > 0;
  const isStarting = [...groups.parked, ...groups.starting].some(
    ({ parking, state }) => state === 'starting' || parking?.isStarting,
  );
  if (isMoving || isBehind || isStarting || groups.stale.length > 0) return 'none';
  if (now < crashes.notBefore) return 'none';
  const isFull = places === 0 || headroom?.places === 0 || headroom?.budget === true;
  return isFull || spares?.obstacle !== undefined ? 'blocked' : 'start';
}

function countMissingSpares({ spares }: ScalerInput, { parked }: WorkerGroups): number {
  const there = parked.filter(({ isCurrent }) => isCurrent);
  return Math.max(0, (spares?.count ?? 0) - there.length);
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
  /** Parked workers that are needed now. */
  wake: readonly ScaledWorker[];
}

function planDrain(
  input: ScalerInput,
  groups: WorkerGroups,
  { hasNoCapacity, wake, want }: DrainTerms,
): DrainPlan {
  const above = groups.alive.length - maximumOf(input);
  if (above > 0) return { drain: pick(groups.alive, above), cause: 'above_maximum' };
  const isStaying = (worker: ScaledWorker) => wake.includes(worker);
  const giving = listGivingWay(input, groups).filter((worker) => !isStaying(worker));
  if (giving.length > 0) return { drain: giving, cause: 'gives_way' };
  const ending = listParkedEnds(input, groups).filter((worker) => !isStaying(worker));
  if (ending.length > 0) return { drain: ending, cause: 'parked_ends' };
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

/** Parked workers whose time is over, that are outdated, or for which there is no more memory or no place any more. */
function listParkedEnds(input: ScalerInput, groups: WorkerGroups): ScaledWorker[] {
  const { now, parkMs = 0, spares } = input;
  const { alive } = groups;
  // One that is still to be parked has its last jobs.
  const parked = groups.parked.filter(({ jobs }) => jobs === 0);
  const fit = parked.filter(({ isCurrent, parking }) => isCurrent && !parking?.lacksMemory);
  const { count = 0 } = spares ?? {};
  const spare = fit.slice(Math.max(0, fit.length - count));
  const staying = fit.filter((worker) => {
    const isOver = now - (worker.parking?.since ?? now) >= parkMs;
    return !isOver || spare.includes(worker);
  });
  const above = Math.max(0, alive.length + staying.length - maximumOf(input) - count);
  const kept = staying.slice(above);
  return parked.filter((worker) => !kept.includes(worker));
}

/** One that was idle may have got a job meanwhile: then it is not its turn to go. */
function listGivingWay({ giveWay = [], load }: ScalerInput, groups: WorkerGroups): ScaledWorker[] {
  return [...groups.alive, ...groups.parked].filter(({ id, idleSince, parking, state }) => {
    const asked = giveWay.find(({ worker }) => worker === id);
    if (!asked) return false;
    if (state !== 'ready') return parking?.isStarting ?? false;
    return asked.isTurnOver || (idleSince !== null && load.waiting === 0);
  });
}

/** Drains one outdated worker for each ready replacement, and those that the load does not need. */
function replaceStale(
  groups: WorkerGroups,
  { hasNoCapacity, want }: Omit<DrainTerms, 'wake'>,
): ScaledWorker[] {
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

// --- cause ---------------------------------------------------------------------------------------

interface CauseInput {
  input: ScalerInput;
  groups: WorkerGroups;
  demand: Demand;
  scaleUp: ScaleUp;
  drainPlan: DrainPlan;
  spare: SpareMove;
}

function pickCause(found: CauseInput): ScalerCause {
  const { groups, demand, input, drainPlan, scaleUp, spare } = found;
  const alive = groups.alive.length;
  if (scaleUp.start > 0 || scaleUp.wake.length > 0) {
    if (demand.need > alive) return demand.cause;
    return groups.stale.length > 0 ? 'rolling' : 'minimum';
  }
  if (drainPlan.drain.length > 0) return drainPlan.cause;
  if (scaleUp.block) return scaleUp.block;
  if (spare === 'start') return 'spare';
  const isAtMaximum = demand.need > input.workersMax && alive >= input.workersMax;
  if (isAtMaximum) return 'at_maximum';
  return spare === 'blocked' ? 'no_spare' : 'enough';
}

// --- later GPU types -----------------------------------------------------------------------------

/** Jobs that need a type behind `index` in the endpoint's list: those that have outgrown this type or a later one. */
interface Tier {
  index: number;
  gpuType: string;
  waiting: number;
  oldestQueuedAt: number;
}

interface Plan {
  /** Types of the workers to start, those for the last types of the list first. */
  types: string[];
  /** Number of workers of later types that the jobs need in all. */
  need: number;
  /** The jobs for which a worker is missing that none of the free GPUs can be; undefined: none. */
  lacking: Tier | undefined;
}

/**
 * Adds workers of later GPU types to a decision, for jobs that ran out of memory on a GPU type of the endpoint and need a
 * later one of its list.
 *
 * The rules are those for all jobs, applied to the jobs and workers of each later type. When the endpoint has its maximum of
 * workers and none that may take the jobs, one of the others drains first.
 * @param plain the decision for all other jobs
 */
function addNextGpus(input: ScalerInput, plain: ScalerDecision): ScalerDecision {
  const tiers = listTiers(input);
  const plan = planStarts(input, tiers);
  const limit = limitStarts(input);
  const types = plan.types.slice(0, Math.max(0, limit.places));
  const want = Math.min(input.workersMax, Math.max(plain.want, plan.need));
  const decision = { ...plain, want };
  const who = describeTiers(tiers);
  if (types.length > 0) {
    const start = Math.max(plain.start, types.length);
    const reason = `${who}: starting ${nameWorkers(types.length)} of a later GPU type, ${types.join(', ')}`;
    return { ...decision, start, startOn: types, cause: 'next_gpu', reason };
  }
  if (plain.start > 0 || plain.drain.length > 0) return decision;
  if (plan.types.length > 0 && limit.cause === 'at_maximum') {
    const [drained] = findExchange(input, tiers);
    const reason = `${who}, and the endpoint has its maximum of workers`;
    if (!drained) return { ...decision, cause: 'at_maximum', reason };
    const drains = `${reason}: draining one of an earlier GPU type`;
    return { ...decision, drain: [drained.id], cause: 'next_gpu', reason: drains };
  }
  const isBarred = limit.cause === 'crashed' || limit.cause === 'budget';
  if (plan.types.length > 0 || (plan.lacking && isBarred)) {
    return { ...decision, ...explainLimit(input, plan, limit.cause) };
  }
  if (!plan.lacking) return decision;
  const later = listLater(input, plan.lacking.index).join(', ');
  return {
    ...decision,
    cause: 'no_gpu',
    reason: `${who}, but no GPU of a later type is free: ${later}`,
  };
}

/** Those for the last types first. */
function listTiers({ gpus = [], load }: ScalerInput): Tier[] {
  const tiers = gpus.flatMap(({ id }, index) => {
    const jobs = load.outgrown?.find(({ gpuType }) => gpuType === id);
    return jobs ? [{ ...jobs, index }] : [];
  });
  return tiers.reverse();
}

function planStarts(input: ScalerInput, tiers: readonly Tier[]): Plan {
  const free = new Map((input.gpus ?? []).map((gpu) => [gpu.id, gpu.free]));
  const plan: Plan = { types: [], need: 0, lacking: undefined };
  let waiting = 0;
  let oldestQueuedAt = Number.POSITIVE_INFINITY;
  for (const tier of tiers) {
    waiting += tier.waiting;
    oldestQueuedAt = Math.min(oldestQueuedAt, tier.oldestQueuedAt);
    const able = listAble(input, tier.index);
    const running = able.reduce((sum, { jobs }) => sum + jobs, 0);
    const load = { waiting, running, oldestQueuedAt, peak: 0 };
    const { need } = measureDemand({ ...input, load, workers: able }, groupWorkers(able));
    plan.need = Math.max(plan.need, need);
    const later = listLater(input, tier.index);
    const planned = plan.types.filter((type) => later.includes(type)).length;
    for (let missing = need - able.length - planned; missing > 0; missing--) {
      const type = later.find((id) => (free.get(id) ?? 0) > 0);
      if (type === undefined) {
        plan.lacking ??= tier;
        break;
      }
      free.set(type, (free.get(type) ?? 0) - 1);
      plan.types.push(type);
    }
  }
  return plan;
}

function listLater({ gpus = [] }: ScalerInput, index: number): string[] {
  return gpus.slice(index + 1).map(({ id }) => id);
}

/** Workers that may take jobs of the tier. */
function listAble(input: ScalerInput, index: number): ScaledWorker[] {
  const later = new Set(listLater(input, index));
  return groupWorkers(input.workers).alive.filter(
    ({ gpuType }) => gpuType !== undefined && later.has(gpuType),
  );
}

type LimitCause = Extract<ScalerCause, 'at_maximum' | 'budget' | 'crashed' | 'no_capacity'>;

/** Number of workers that may start now, and what limits it. */
function limitStarts(input: ScalerInput): {
  places: number;
  cause: LimitCause;
} {
  const { crashes, headroom, now, workers } = input;
  const isOnTrial = crashes.streak > 0;
  const isTried = isOnTrial && workers.some(({ state }) => state === 'starting');
  if (now < crashes.notBefore || isTried) return { places: 0, cause: 'crashed' };
  const left = maximumOf(input) - countWorkers(workers);
  if (left <= 0) return { places: 0, cause: 'at_maximum' };
  if (headroom?.budget) return { places: 0, cause: 'budget' };
  const fitting = headroom?.places ?? left;
  return { places: Math.min(left, fitting, isOnTrial ? 1 : left), cause: 'no_capacity' };
}

/** Picks one worker to end, so that a worker of a later GPU type can start. Picks none while a worker drains, or once each type has one. */
function findExchange(input: ScalerInput, tiers: readonly Tier[]): ScaledWorker[] {
  const { workers } = input;
  if (workers.some(({ state }) => state === 'draining')) return [];
  // The first tier without any worker; those before it need even later types.
  const unserved = tiers.find(({ index }) => listAble(input, index).length === 0);
  return unserved ? pick(groupWorkers(workers).alive, 1) : [];
}

function explainLimit(
  input: ScalerInput,
  { need }: Plan,
  cause: LimitCause,
): Pick<ScalerDecision, 'cause' | 'reason'> {
  const alive = groupWorkers(input.workers).alive.length;
  const facts = { input, alive, want: alive + need, start: 0, drains: 0 };
  return { cause, reason: describeCause(cause, facts) };
}

function describeTiers(tiers: readonly Tier[]): string {
  return tiers
    .map(
      ({ gpuType, waiting }) =>
        `${waiting} ${waiting === 1 ? 'job' : 'jobs'} ran out of memory on ${gpuType}`,
    )
    .join(', ');
}

function nameWorkers(count: number): string {
  return count === 1 ? '1 worker' : `${count} workers`;
}
