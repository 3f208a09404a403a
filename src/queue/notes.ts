// Notes of a job for its timeline: what the other columns of its row forget. Pure. A plain job has none: notes are
// written only with a change of the row that is written anyway, or after an attempt to deliver a webhook.
import type { JobNote, StoredJob } from '../store/store.ts';

/** Notes of one event that a job keeps: the last ones. */
export const MAX_NOTES = 5;

/** Returns the notes with one more; the oldest of its event gives way. */
export function addNote(notes: readonly JobNote[], note: JobNote): JobNote[] {
  const alike = notes.filter(({ event }) => event === note.event);
  const dropped = alike.length < MAX_NOTES ? undefined : alike[0];
  return [...notes.filter((each) => each !== dropped), note];
}

/** Start and end of an attempt that returns to the queue without a failure. */
export function noteReturn(
  job: StoredJob,
  event: 'released' | 'lease_lost',
  now: number,
): JobNote[] {
  const { attempt, startedAt, workerId } = job;
  const about = { attempt, ...(workerId !== null && { workerId }) };
  const started =
    startedAt === null
      ? job.notes
      : addNote(job.notes, { at: startedAt, event: 'started', ...about });
  return addNote(started, { at: now, event, ...about });
}

/** The notes without the return of the attempt: its worker has renewed the lease after all. */
export function dropReturn({ attempt, notes }: StoredJob): JobNote[] {
  return notes.filter((note) => note.attempt !== attempt || !RETURN.has(note.event));
}

const RETURN: ReadonlySet<JobNote['event']> = new Set(['started', 'released', 'lease_lost']);
