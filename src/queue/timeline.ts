// What happened to a job, in order, from its row. Pure; a plain job costs no write for it.
import type { JobNote, StoredJob } from '../store/store.ts';
import { isTerminal, type TimelineEntry } from '../wire/job/job.ts';
import { listFailures, nameAttempt, numberRun } from './notes.ts';

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
  if (status === 'IN_QUEUE' && job.delayed) entries.push({ at: job.availableAt, event: 'due' });
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
  'started',
  'model_wait',
  'first_chunk',
  'stopped',
];

function orderOf({ event }: TimelineEntry): number {
  const index = ORDER.indexOf(event);
  return index < 0 ? ORDER.length : index;
}

function isOfAttempt(entry: TimelineEntry): entry is Tried {
  return entry.attempt !== undefined;
}

const RETURNS: ReadonlySet<string> = new Set(['failed', 'lease_lost', 'released', 'retried']);

/** The attempt has failed or gone back to the queue. */
function isReturn({ event }: TimelineEntry): boolean {
  return RETURNS.has(event);
}

function isReturnNoted(notes: readonly JobNote[], queuedAt: number): boolean {
  return notes.some((note) => isReturn(note) && note.at === queuedAt);
}
