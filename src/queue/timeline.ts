// What happened to a job, in order, from its row, and the notes for what other members of the row forget. Pure. A plain
// job has no notes: they are written only with a change of the row that is written anyway, or after an attempt to
// deliver a webhook.
import { limitText } from '../base/text/printable.ts';
import { isWaiting, type JobNote, type StoredJob } from '../store/store.ts';
import type { AttemptError } from '../wire/job/attempt.ts';
import { isTerminal } from '../wire/job/job.ts';
import type { RunOfAttempt, TimelineEntry } from '../wire/job/job-records.ts';

type Tried = TimelineEntry & { attempt: number };

/** At most two entries for each failed attempt of the last run, a few for each kind of note, and six more. */
export function describeTimeline(job: StoredJob): TimelineEntry[] {
  const { attempt, endedAt, queuedAt, startedAt, status, submittedAt } = job;
  const noted = job.notes.filter((note) => !WEBHOOK.has(note.event));
  const known: TimelineEntry[] = [...listFailures(job), ...noted];
  const tried = known.filter(isOfAttempt);
  const last = Math.max(0, ...tried.filter(isReturn).map((entry) => entry.attempt));
  const hasRun = status !== 'IN_QUEUE' && startedAt !== null;
  if (hasRun && attempt > last) {
    tried.push({ at: startedAt, event: 'started', ...nameAttempt(job) });
  }
  tried.sort((a, b) => a.attempt - b.attempt || orderOf(a) - orderOf(b));
  // Of attempts before the last queueing.
  const before = hasRun ? attempt - 1 : attempt;
  const entries: TimelineEntry[] = [{ at: submittedAt, event: 'submitted' }];
  entries.push(...tried.filter((entry) => entry.attempt <= before));
  // Later than the start: the worker has renewed a lost lease.
  const isUndone = hasRun && queuedAt > startedAt;
  const isKnown = queuedAt === submittedAt || isUndone || isReturnNoted(noted, queuedAt);
  if (!isKnown) entries.push({ at: queuedAt, event: 'queued' });
  if (status === 'IN_QUEUE' && job.delayed && !isWaiting(job))
    entries.push({ at: job.availableAt, event: 'due' });
  entries.push(...tried.filter((entry) => entry.attempt > before));
  if (endedAt !== null && isTerminal(status)) {
    entries.push({
      at: endedAt,
      event: 'ended',
      status,
      ...(hasRun && attempt > 0 && { attempt, ...numberRun(job) }),
    });
  }
  entries.push(...job.notes.filter((note) => WEBHOOK.has(note.event)));
  return entries.toSorted((a, b) => a.at - b.at);
}

const WEBHOOK: ReadonlySet<string> = new Set([
  'webhook_failed',
  'webhook_delivered',
  'webhook_given_up',
]);

/** Of one attempt. */
const ORDER: readonly TimelineEntry['event'][] = [
  'worker_started',
  'worker_woken',
  'started',
  'model_wait',
  'first_chunk',
  'suspended',
  'stopped',
];

function orderOf({ event }: TimelineEntry): number {
  const index = ORDER.indexOf(event === 'resumed' ? 'suspended' : event);
  return index < 0 ? ORDER.length : index;
}

function isOfAttempt(entry: TimelineEntry): entry is Tried {
  return entry.attempt !== undefined;
}

const RETURNS: ReadonlySet<string> = new Set([
  'failed',
  'lease_lost',
  'postponed',
  'released',
  'retried',
  'waiting',
]);

/** The attempt has failed or gone back to the queue. */
function isReturn({ event }: TimelineEntry): boolean {
  return RETURNS.has(event);
}

function isReturnNoted(notes: readonly JobNote[], queuedAt: number): boolean {
  return notes.some((note) => isReturn(note) && note.at === queuedAt);
}

/** Notes of one event that a job keeps: the last ones. */
const MAX_NOTES = 5;
/** Longest message of an attempt that was postponed. */
const MAX_NOTED_CHARS = 1_000;

/** Returns the notes with one more; the oldest of its event gives way. */
export function addNote(notes: readonly JobNote[], note: JobNote): JobNote[] {
  const alike = notes.filter(({ event }) => event === note.event);
  const dropped = alike.length < MAX_NOTES ? undefined : alike[0];
  return [...notes.filter((each) => each !== dropped), note];
}

/** Start and end of an attempt whose handler asked for a later one, without a failure. */
export function notePostponed(
  job: StoredJob,
  { code, message }: Pick<AttemptError, 'code' | 'message'>,
  now: number,
): JobNote[] {
  const notes = noteReturn(job, 'postponed', now);
  return notes.map((note) =>
    note.event === 'postponed' && note.attempt === job.attempt
      ? { ...note, code, message: limitText(message, MAX_NOTED_CHARS) }
      : note,
  );
}

/** Start and end of an attempt that returns to the queue without a failure. */
export function noteReturn(
  job: StoredJob,
  event: 'released' | 'lease_lost' | 'postponed' | 'waiting',
  now: number,
): JobNote[] {
  const { startedAt } = job;
  const about = nameAttempt(job);
  const started =
    startedAt === null
      ? job.notes
      : addNote(job.notes, { at: startedAt, event: 'started', ...about });
  return addNote(started, { at: now, event, ...about });
}

/** Members of a note or entry about the last attempt. */
export function nameAttempt(
  job: Pick<StoredJob, 'attempt' | 'notes' | 'workerId'>,
): Pick<JobNote, 'workerId'> & RunOfAttempt & { attempt: number } {
  const { attempt, workerId } = job;
  return { attempt, ...numberRun(job), ...(workerId !== null && { workerId }) };
}

/** The run of the last attempt; empty in the first run. */
export function numberRun({ attempt, notes }: Pick<StoredJob, 'attempt' | 'notes'>): RunOfAttempt {
  const retried = notes.findLast(({ event }) => event === 'retried');
  if (retried?.run === undefined) return {};
  return { run: retried.run, runAttempt: attempt - (retried.attempt ?? 0) };
}

/** Start and end of each failed attempt of the last run. */
function listFailures({ history }: Pick<StoredJob, 'history'>): JobNote[] {
  return history.flatMap((failed) => {
    const { attempt, code, endedAt: at, message, outgrownGpuType, run, runAttempt } = failed;
    const { startedAt, workerId } = failed;
    const ofRun = run === undefined || runAttempt === undefined ? {} : { run, runAttempt };
    const about = { attempt, ...ofRun, workerId };
    const event = code === 'lease_expired' ? 'lease_lost' : 'failed';
    const outgrown = outgrownGpuType === undefined ? {} : { outgrownGpuType };
    const end: JobNote = { at, event, ...about, code, message, ...outgrown };
    return [{ at: startedAt, event: 'started', ...about }, end];
  });
}

/** The worker of the attempt that begins has been ready since then. */
export function noteArrival(
  job: StoredJob,
  workerId: string,
  arrival: Omit<JobNote, 'attempt' | 'workerId'>,
): JobNote[] {
  const attempt = job.attempt + 1;
  return addNote(job.notes, { ...arrival, ...nameAttempt({ ...job, attempt, workerId }) });
}

/** At the start of the attempt: it waits there, unless its model process has crashed since. */
export function noteModelWait(job: StoredJob, ms: number): StoredJob {
  const { startedAt: at } = job;
  const waitedMs = Math.round(ms);
  if (waitedMs === 0 || at === null) return job;
  const message = `waited ${waitedMs / 1_000} s for the model process`;
  const note = { at, event: 'model_wait', ...nameAttempt(job), waitedMs, message } as const;
  return { ...job, notes: addNote(job.notes, note) };
}

/** What stays of the run that a retry by a client ends, and the retry. */
export function noteRetry(job: StoredJob, now: number): JobNote[] {
  const { attempt, notes } = job;
  const run = (numberRun(job).run ?? 1) + 1;
  return [...notes, ...listFailures(job)]
    .toSorted((a, b) => a.at - b.at)
    .concat({ at: now, event: 'retried', attempt, run })
    .reduce<JobNote[]>(addNote, []);
}

/** The notes without the return of the attempt: its worker has renewed the lease after all. */
export function dropReturn({ attempt, notes }: StoredJob): JobNote[] {
  return notes.filter((note) => note.attempt !== attempt || !RETURN.has(note.event));
}

const RETURN: ReadonlySet<JobNote['event']> = new Set(['started', 'released', 'lease_lost']);
