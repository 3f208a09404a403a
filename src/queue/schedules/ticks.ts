// Makes the jobs of due ticks, within an operation of the store, and notes in the schedules what became of each tick.
import { hash } from 'node:crypto';
import { createUuidV7 } from '../../base/id.ts';
import type { JobTick, StoredEndpoint, StoredJob, Transaction } from '../../store/store.ts';
import { isTerminal } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type PastTick,
  SCHEDULE_LIMITS,
  type SkipReason,
  type StoredSchedule,
} from '../../wire/resources/schedule.ts';
import { insert } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import type { Signals } from '../signals.ts';
import { ChosenIds } from '../submissions.ts';
import { decideDueTicks, MAX_DUE_JOBS } from './due-ticks.ts';

/** Most jobs of one operation; the ticks of further schedules come with the next one. */
export const MAX_TICK_JOBS = 128;
/** Most missed ticks of cron expressions that one operation counts, unless one schedule has more: each takes 0.03 ms. */
const MAX_TICK_MISSES = 500;
/** Jobs of a schedule of which `overlap` knows. */
const MAX_OPEN = 10;

interface Ticking {
  now: number;
  /** For the jobs. Chosen before the operation: those of later operations are greater. */
  positions: readonly number[];
  signals: Pick<Signals, 'arriving'>;
}

/** What became of the ticks of a schedule that were due. */
export interface Ticked {
  /** As it is to be stored. */
  schedule: StoredSchedule;
  jobs: StoredJob[];
  skipped: ReadonlyMap<SkipReason, number>;
}

/** `inQueue` counts the jobs that the operation adds. */
type Admitting = Pick<StoredEndpoint, 'id' | 'inQueue' | 'settings'>;

interface Given {
  schedule: StoredSchedule;
  endpoint: Admitting;
  position: number;
}

/** Leaves schedules out when it has made many jobs, or counted many missed ticks. */
export function makeTickJobs(
  tx: Transaction,
  step: StepOn,
  { schedules, ...ticking }: Ticking & { schedules: readonly Given[] },
): (Ticked & Pick<Given, 'position'>)[] {
  // The store has the endpoints as they were before the operation.
  const endpoints = new Map(schedules.map(({ endpoint }) => [endpoint.id, { ...endpoint }]));
  const openJobs = tx.each(schedules, ({ schedule }) => readOpenJobs(tx, schedule));
  const results: (Ticked & Pick<Given, 'position'>)[] = [];
  let made = 0;
  let missed = 0;
  for (const [index, { position, ...given }] of schedules.entries()) {
    if (made + MAX_DUE_JOBS > MAX_TICK_JOBS || missed > MAX_TICK_MISSES) break;
    const endpoint = endpoints.get(given.endpoint.id) ?? given.endpoint;
    const open = openJobs[index] ?? [];
    const positions = ticking.positions.slice(made);
    const ticked = { ...ticking, positions, schedule: given.schedule, endpoint, open };
    const result = tickOne(tx, step, ticked);
    made += result.jobs.length;
    if (given.schedule.cron !== null) missed += result.skipped.get('missed') ?? 0;
    results.push({ ...result, position });
  }
  return results;
}

/** Its jobs that have not ended. */
function readOpenJobs(
  tx: Transaction,
  { endpointId, openJobs, overlap }: StoredSchedule,
): StoredJob[] {
  if (overlap === 'allow') return [];
  const jobs = tx.each(openJobs, (id) => tx.job({ endpointId, id }));
  return jobs.filter((job) => job !== undefined).filter(({ status }) => !isTerminal(status));
}

interface TickedSchedule extends Ticking {
  schedule: StoredSchedule;
  endpoint: Admitting;
  open: readonly StoredJob[];
}

function tickOne(tx: Transaction, step: StepOn, given: TickedSchedule): Ticked {
  const { now, open, schedule: before } = given;
  const { maxJobs, nextAt, overlap } = before;
  if (nextAt === null) return { schedule: before, jobs: [], skipped: new Map() };
  const due = decideDueTicks({ ...before, nextAt }, now);
  const notes = new TickNotes(before);
  if (overlap !== 'allow') notes.keepOpen(open.map(({ id }) => id));
  if (due.missed) notes.skip('missed', due.missed.lastAt, due.missed.count);
  const jobs: StoredJob[] = [];
  for (const [index, at] of due.jobs.entries()) {
    const isLast = index === due.jobs.length - 1;
    const hasOpen = open.length + jobs.length > 0;
    const refusal = judgeOverlap(before, { hasOpen, isLast });
    const positions = given.positions.slice(jobs.length);
    const job = refusal ?? tryInsert(tx, { ...given, positions }, { scheduleId: before.id, at });
    if (typeof job === 'string') {
      notes.skip(job, at);
      continue;
    }
    if (overlap === 'replace') for (const other of open) step(other, { type: 'cancel' });
    jobs.push(job);
    notes.add({ at: toIso(at), jobId: job.id });
  }
  const made = before.jobs + jobs.length;
  const hasEnded = maxJobs !== null && made >= maxJobs;
  const schedule = { ...notes.schedule, jobs: made, nextAt: hasEnded ? null : due.nextAt };
  return { schedule, jobs, skipped: notes.skipped };
}

function judgeOverlap(
  { overlap }: StoredSchedule,
  { hasOpen, isLast }: { hasOpen: boolean; isLast: boolean },
): SkipReason | undefined {
  if (overlap === 'skip' && hasOpen) return 'overlap';
  // The job of the last tick would replace it at once.
  return overlap === 'replace' && !isLast ? 'overlap' : undefined;
}

type NewTickJob = Ticking & { schedule: StoredSchedule; endpoint: Admitting };

function tryInsert(tx: Transaction, given: NewTickJob, tick: JobTick): StoredJob | SkipReason {
  try {
    return insertJob(tx, given, tick);
  } catch (error) {
    if (error instanceof ProblemError && error.code === 'queue_full') return 'queue_full';
    throw error;
  }
}

/** Jobs of schedules have the IDs that the queue chooses. */
const NO_IDS = new ChosenIds();

/** @throws ProblemError `queue_full` */
function insertJob(
  tx: Transaction,
  { endpoint, now, positions, schedule, signals }: NewTickJob,
  tick: JobTick,
): StoredJob {
  const { endpointId, input: given, jitter, webhook } = schedule;
  const [position] = positions;
  if (position === undefined) throw new Error('no position is left for the job of a tick');
  const input = Buffer.from(JSON.stringify(given));
  const delay = (schedule.policy.delay ?? 0) + chooseDelay(tick, jitter);
  const policy = { ...schedule.policy, ...(delay > 0 && { delay }) };
  const { job } = insert(tx, endpoint, {
    submission: {
      endpointId,
      mode: 'run',
      input,
      policy,
      idempotency: undefined,
      webhook: webhook ?? undefined,
      tick,
    },
    arrival: { id: createUuidV7(now), input, now, position, chosen: NO_IDS },
  });
  endpoint.inQueue += 1;
  signals.arriving(job);
  return job;
}

/** Spreads the ticks evenly over the jitter. */
function chooseDelay({ at, scheduleId }: JobTick, jitter: number): number {
  const part = Number.parseInt(hash('sha256', `${scheduleId} ${at}`).slice(0, 8), 16) / 2 ** 32;
  return jitter === 0 ? 0 : Math.floor(part * (jitter + 1));
}

/** Makes a job now. @throws ProblemError `queue_full` */
export function triggerJob(
  tx: Transaction,
  given: NewTickJob,
): { job: StoredJob; schedule: StoredSchedule } {
  const { now, schedule } = given;
  const tick = { scheduleId: schedule.id, at: now, isTriggered: true } as const;
  const job = insertJob(tx, { ...given, schedule: { ...schedule, jitter: 0 } }, tick);
  const notes = new TickNotes(schedule);
  notes.add({ at: toIso(now), jobId: job.id, triggered: true });
  return { job, schedule: notes.schedule };
}

/** What happened at ticks, in the next state of a schedule. */
class TickNotes {
  schedule: StoredSchedule;
  readonly skipped = new Map<SkipReason, number>();

  constructor(schedule: StoredSchedule) {
    this.schedule = { ...schedule, revision: schedule.revision + 1 };
  }

  keepOpen(openJobs: string[]): void {
    this.schedule = { ...this.schedule, openJobs };
  }

  add(tick: PastTick & { jobId: string }): void {
    this.#note(tick, this.schedule.lastTicks);
    this.keepOpen([tick.jobId, ...this.schedule.openJobs].slice(0, MAX_OPEN));
  }

  skip(reason: SkipReason, at: number, count = 1): void {
    this.skipped.set(reason, (this.skipped.get(reason) ?? 0) + count);
    const { lastTicks, skipped } = this.schedule;
    this.schedule = {
      ...this.schedule,
      skipped: { ...skipped, [reason]: skipped[reason] + count },
    };
    const [last, ...earlier] = lastTicks;
    const isSame = last?.skipped === reason;
    const all = count + (isSame ? (last.count ?? 1) : 0);
    const note = { at: toIso(at), skipped: reason, ...(all > 1 && { count: all }) };
    this.#note(note, isSame ? earlier : lastTicks);
  }

  #note(tick: PastTick, earlier: readonly PastTick[]): void {
    const lastTicks = [tick, ...earlier].slice(0, SCHEDULE_LIMITS.lastTicks);
    this.schedule = { ...this.schedule, lastTicks };
  }
}

function toIso(time: number): string {
  return new Date(time).toISOString();
}
