// What follows from a batch whose function threw, and from a device that is out of memory: pure
// functions. collector.ts applies them.

interface ThrownBatch<Member> {
  /** Jobs with which the function was called. */
  readonly size: number;
  /** Those of them that have not ended, in order. */
  readonly left: readonly Member[];
  /** The job has sent chunks, so it cannot run again in the same attempt. */
  readonly hasStreamed: (member: Member) => boolean;
}

interface RerunPlan<Member> {
  /** It ran alone: the error is its own. */
  readonly failed: readonly Member[];
  /** New attempts, not counted as failures. */
  readonly released: readonly Member[];
  /** Batches that run next, one after the other. */
  readonly reruns: readonly (readonly Member[])[];
}

/**
 * A job fails only if it ran alone. Otherwise the jobs run again in two halves, until the one that
 * throws is alone: at most 2n − 1 runs for a batch of n.
 */
export function planReruns<Member>(batch: ThrownBatch<Member>): RerunPlan<Member> {
  const { hasStreamed, left, size } = batch;
  if (size === 1) return { failed: left, released: [], reruns: [] };
  const released: Member[] = [];
  const again: Member[] = [];
  for (let index = 0; index < left.length; index += 1) {
    const member = left[index];
    if (member === undefined) continue;
    const list = hasStreamed(member) ? released : again;
    list[list.length] = member;
  }
  if (again.length === 0) return { failed: [], released, reruns: [] };
  if (again.length === 1) return { failed: [], released, reruns: [again] };
  const middle = (again.length + 1) >> 1;
  return { failed: [], released, reruns: [cut(again, 0, middle), cut(again, middle)] };
}

function cut<Item>(items: readonly Item[], start: number, end = items.length): Item[] {
  const part: Item[] = [];
  for (let index = start; index < end; index += 1) {
    const item = items[index];
    if (item !== undefined) part[part.length] = item;
  }
  return part;
}

/** How many jobs a batch may have at the moment. */
export interface SizeLimit {
  /** 1 to `maxSize`. */
  readonly jobs: number;
  /** Batches of that size that have succeeded since the last change. */
  readonly succeeded: number;
  /** Successes after which the limit grows. Doubles whenever memory runs out again. */
  readonly needed: number;
}

const FIRST_NEEDED = 32;
const MAX_NEEDED = 1_024;

export function startLimit(maxSize: number): SizeLimit {
  return { jobs: maxSize, succeeded: 0, needed: FIRST_NEEDED };
}

/** A batch of `size` jobs ran out of device memory: half of it may fit. */
export function lowerLimit(limit: SizeLimit, size: number): SizeLimit {
  const half = Math.max(1, Math.floor(size / 2));
  if (half >= limit.jobs) return { ...limit, succeeded: 0 };
  return { jobs: half, succeeded: 0, needed: Math.min(MAX_NEEDED, limit.needed * 2) };
}

/** A batch of `size` jobs has succeeded. After enough full ones, a quarter is added to the limit. */
export function raiseLimit(limit: SizeLimit, size: number, maxSize: number): SizeLimit {
  if (limit.jobs >= maxSize || size < limit.jobs) return limit;
  const succeeded = limit.succeeded + 1;
  if (succeeded < limit.needed) return { ...limit, succeeded };
  const jobs = Math.min(maxSize, limit.jobs + Math.ceil(limit.jobs / 4));
  return { jobs, succeeded: 0, needed: limit.needed };
}
