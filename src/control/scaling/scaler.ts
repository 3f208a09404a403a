// Decides how many workers an endpoint should have, and which of them to drain. A pure function, so
// that a stored decision can be reproduced from its input; fleet.ts carries decisions out.

import type {
  ScaledWorker,
  ScalerCause,
  ScalerDecision,
  ScalerInput,
} from '../../wire/resources/scaling.ts';
import { addNextGpus } from './next-gpu.ts';
import {
  type Demand,
  groupWorkers,
  maximumOf,
  measureDemand,
  pick,
  type WorkerGroups,
} from './scaler-demand.ts';
import { describeCause } from './scaler-reasons.ts';

/**
 * Never more than `workersMax` workers, draining ones included; one more is allowed while outdated
 * workers are replaced. Adds workers as soon as the load asks for it. Removes workers only if they
 * were idle for the idle timeout, or if fewer would have been enough for a balancer's requests
 * during that whole time.
 */
export function decide(input: ScalerInput): ScalerDecision {
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
  const drainPlan = planDrain(input, groups, { want, hasNoCapacity: isOutOfCapacity(scaleUp) });
  const cause = pickCause({ input, groups, demand, scaleUp, drainPlan });
  const drain = drainPlan.drain.map(({ id }) => id);
  const facts = { input, want, alive: groups.alive.length };
  const moves = { start: scaleUp.start, drains: drain.length };
  const reason = describeCause(cause, { ...facts, ...moves });
  return { want, start: scaleUp.start, drain, cause, reason };
}

// --- scaling up ----------------------------------------------------------------------------------

interface ScaleUp {
  start: number;
  /** Why no more workers start. */
  block: 'crashed' | 'no_gpu' | 'no_capacity' | 'budget' | 'at_maximum' | 'rolling' | undefined;
}

function planScaleUp(input: ScalerInput, groups: WorkerGroups, want: number): ScaleUp {
  const { crashes, now, places, headroom, workers } = input;
  const wanted = want - groups.current.length;
  if (wanted <= 0) return { start: 0, block: undefined };
  const missing = Math.min(wanted, maximumOf(input) - workers.length);
  if (missing <= 0) {
    return { start: 0, block: groups.stale.length > 0 ? 'rolling' : 'at_maximum' };
  }
  if (headroom?.budget) return { start: 0, block: 'budget' };
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
