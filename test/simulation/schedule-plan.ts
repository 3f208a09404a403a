// The schedule of a simulated world, and what must hold of it whenever it is read: each tick before the next one has made
// exactly one job, or is counted as skipped.
import {
  type ScheduleCreation,
  type StoredSchedule,
  scheduleCreation,
} from '../../src/wire/resources/schedule.ts';
import { choosePlan, TIMEOUT_MS } from './job-plan.ts';
import type { Ledger } from './ledger.ts';

const EVERY_MS = 5_000;
const MAX_JOBS = 12;

export function planSchedule(
  { endpointId, seed, ttl }: { endpointId: string; seed: number; ttl: number },
  random: () => number,
): ScheduleCreation {
  const plan = { ...choosePlan({ n: 0, killerShare: 0 }, random), fate: 'ends', failures: 0 };
  return scheduleCreation.parse({
    ...{ name: 'ticks', endpointId, every: EVERY_MS, maxJobs: MAX_JOBS, input: plan },
    catchUp: ['skip', 'one', 'all'][seed % 3],
    catchUpMax: 3,
    overlap: ['allow', 'skip', 'replace'][Math.floor(seed / 3) % 3],
    policy: { executionTimeout: TIMEOUT_MS, ttl },
  });
}

/** Returns its faults. */
export function judgeSchedule(
  { createdAt, every, id, jobs, maxJobs, nextAt, skipped }: StoredSchedule,
  ledger: Ledger,
): string[] {
  const faults: string[] = [];
  const made = ledger.ticks.get(id)?.size ?? 0;
  if (made !== jobs) faults.push(`schedule ${id} counts ${jobs} jobs, and has made ${made}`);
  if (nextAt === null && jobs !== maxJobs)
    faults.push(`schedule ${id} has ended with ${jobs} jobs`);
  if (nextAt === null || every === null) return faults;
  const numberOf = (time: number) => Math.floor(time / every);
  const due = numberOf(nextAt - 1) - numberOf(Date.parse(createdAt));
  const counted = jobs + skipped.missed + skipped.overlap + skipped.queue_full;
  if (due !== counted) faults.push(`schedule ${id} had ${due} ticks and counts ${counted}`);
  return faults;
}
