// Adds workers of later GPU types to a scaling decision, for jobs that ran out of memory on a GPU type of the endpoint and
// need a later one of its list. Pure.

import type { ScaledWorker, ScalerDecision, ScalerInput } from '../../wire/resources/scaling.ts';
import { groupWorkers, maximumOf, measureDemand, pick } from './scaler-demand.ts';
import { describeCause } from './scaler-reasons.ts';

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
 * The rules are those for all jobs, applied to the jobs and workers of each later type. When the endpoint has its maximum of
 * workers and none that may take the jobs, one of the others drains first.
 * @param plain the decision for all other jobs
 */
export function addNextGpus(input: ScalerInput, plain: ScalerDecision): ScalerDecision {
  const tiers = listTiers(input);
  const plan = planStarts(input, tiers);
  const limit = limitStarts(input);
  const types = plan.types.slice(0, Math.max(0, limit.places));
  const want = Math.min(input.workersMax, Math.max(plain.want, plan.need));
  const decision = { ...plain, want };
  const who = describeTiers(tiers);
  if (types.length > 0) {
    const start = Math.max(plain.start, types.length);
    const reason = `${who}: starting ${countWorkers(types.length)} of a later GPU type, ${types.join(', ')}`;
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
  if (plan.types.length > 0) return { ...decision, ...explainLimit(input, plan, limit.cause) };
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
  return input.workers.filter(
    ({ gpuType, state }) => state !== 'draining' && gpuType !== undefined && later.has(gpuType),
  );
}

/** Number of workers that may start now, and what limits it. */
function limitStarts(input: ScalerInput): {
  places: number;
  cause: 'at_maximum' | 'crashed' | 'no_capacity';
} {
  const { crashes, headroom, now, workers } = input;
  const isOnTrial = crashes.streak > 0;
  const isTried = isOnTrial && workers.some(({ state }) => state === 'starting');
  if (now < crashes.notBefore || isTried) return { places: 0, cause: 'crashed' };
  const left = maximumOf(input) - workers.length;
  if (left <= 0) return { places: 0, cause: 'at_maximum' };
  const fitting = headroom?.places ?? left;
  return { places: Math.min(left, fitting, isOnTrial ? 1 : left), cause: 'no_capacity' };
}

/** The worker that makes room for one of a later type; none while another one drains, or if a later one exists. */
function findExchange(input: ScalerInput, tiers: readonly Tier[]): ScaledWorker[] {
  const { workers } = input;
  if (workers.some(({ state }) => state === 'draining')) return [];
  // The first tier without any worker; those before it need even later types.
  const unserved = tiers.find(({ index }) => listAble(input, index).length === 0);
  return unserved ? pick(workers, 1) : [];
}

function explainLimit(
  input: ScalerInput,
  { need }: Plan,
  cause: 'at_maximum' | 'crashed' | 'no_capacity',
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

function countWorkers(count: number): string {
  return count === 1 ? '1 worker' : `${count} workers`;
}
