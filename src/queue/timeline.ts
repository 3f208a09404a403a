// What happened to a job, in order, from its row. Pure; a plain job costs no write for it.
import type { JobNote, StoredJob } from '../store/store.ts';
import { isTerminal, type TimelineEntry } from '../wire/job/job.ts';

type Tried = TimelineEntry & { attempt: number };

/**
 * At most two entries for each failed attempt, a few for each kind of note, and six more. Of a retried job the row knows
 * the time of the last retry only, and nothing from before it.
 */
export function describeTimeline(job: StoredJob): TimelineEntry[] {
  const { attempt, endedAt, queuedAt, startedAt, status, submittedAt, workerId } = job;
  const noted = job.notes.filter((note) => !WEBHOOK.has(note.event));
  const tried = [...listFailures(job), ...noted].filter(isOfAttempt);
  const last = Math.max(0, ...tried.filter(isReturn).map((entry) => entry.attempt));
  const hasRun = status !== 'IN_QUEUE' && startedAt !== null;
  if (hasRun && attempt > last) {
    const worker = workerId === null ? {} : { workerId };
    tried.push({ at: startedAt, event: 'started', attempt, ...worker });
  }
  tried.sort((a, b) => a.attempt - b.attempt || orderOf(a) - orderOf(b));
  // Of attempts before the last queueing.
  const before = hasRun ? attempt - 1 : attempt;
  const entries: TimelineEntry[] = [{ at: submittedAt, event: 'submitted' }];
  entries.push(...tried.filter((entry) => entry.attempt <= before));
  // Later than the start: the worker has renewed a lost lease.
  const isUndone = hasRun && queuedAt > startedAt;
  const isKnown = queuedAt === submittedAt || isUndone || isReturnNoted(noted, queuedAt);
  if (before > last) entries.push(describeReturn(job, before));
  else if (!isKnown) {
    entries.push({ at: queuedAt, event: 'queued' });
  }
  if (status === 'IN_QUEUE' && job.delayed) entries.push({ at: job.availableAt, event: 'due' });
  entries.push(...tried.filter((entry) => entry.attempt > before));
  if (endedAt !== null && isTerminal(status)) {
    entries.push({
      at: endedAt,
      event: 'ended',
      status,
      ...(hasRun && attempt > 0 && { attempt }),
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
const ORDER: readonly TimelineEntry['event'][] = ['started', 'first_chunk', 'stopped'];

function orderOf({ event }: TimelineEntry): number {
  const index = ORDER.indexOf(event);
  return index < 0 ? ORDER.length : index;
}

function isOfAttempt(entry: TimelineEntry): entry is Tried {
  return entry.attempt !== undefined;
}

/** The attempt has failed or gone back to the queue. */
function isReturn({ event }: TimelineEntry): boolean {
  return event === 'failed' || event === 'lease_lost' || event === 'released';
}

function isReturnNoted(notes: readonly JobNote[], queuedAt: number): boolean {
  return notes.some((note) => isReturn(note) && note.at === queuedAt);
}

function listFailures({ history }: StoredJob): TimelineEntry[] {
  return history.flatMap((failed) => {
    const { attempt, code, endedAt: at, message, outgrownGpuType, startedAt, workerId } = failed;
    const about = { attempt, workerId };
    const event = code === 'lease_expired' ? 'lease_lost' : 'failed';
    const outgrown = outgrownGpuType === undefined ? {} : { outgrownGpuType };
    const end: TimelineEntry = { at, event, ...about, code, message, ...outgrown };
    return startedAt === undefined ? [end] : [{ at: startedAt, event: 'started', ...about }, end];
  });
}

/**
 * How an attempt without a note went back to the queue: an earlier version wrote none. A retry by a client forgets the
 * attempts before.
 */
function describeReturn(
  { lease, queuedAt, releases, solo, workerId }: StoredJob,
  attempt: number,
): TimelineEntry {
  if (lease?.lost === 'release') {
    return { at: queuedAt, event: 'lease_lost', attempt, workerId: lease.workerId };
  }
  if (releases === 0 && !solo) return { at: queuedAt, event: 'queued' };
  // The worker of an earlier attempt is not known once another one runs.
  const worker = lease === null && workerId !== null ? { workerId } : {};
  return { at: queuedAt, event: 'released', attempt, ...worker };
}
