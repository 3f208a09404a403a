// The starts of inputs and errors, and the runs of retried jobs, which lists of jobs show.
import type { JobPreview, Store, StoredJob } from '../store/store.ts';
import type { JobSummary } from '../wire/job/job.ts';
import { numberRun } from './notes.ts';

/** Largest page of a list with previews. */
export const MAX_PREVIEWED = 100;
/** Larger inputs have no preview, bytes: a page must cost less than its jobs. */
const MAX_INPUT_BYTES = 16_384;
const MESSAGE_CHARACTERS = 500;
const INPUT_CHARACTERS = 300;
/** Jobs that one operation of the store reads. */
const READ_AT_ONCE = 25;

type Shown = Pick<JobSummary, 'error' | 'inputPreview' | 'inputBytes' | 'run' | 'runAttempt'>;
type Previewed = Pick<StoredJob, 'endpointId' | 'id' | 'attempt'>;

/** Previews in the order of the jobs; none for a job that is gone. */
export async function describePreviews(store: Store, jobs: readonly Previewed[]): Promise<Shown[]> {
  const shown: Shown[] = [];
  for (let at = 0; at < jobs.length; at += READ_AT_ONCE) {
    const slice = jobs.slice(at, at + READ_AT_ONCE);
    const previews = await store.read(function* (tx) {
      const found: (JobPreview | undefined)[] = [];
      for (const key of slice) found.push(yield* tx.jobPreview(key, MAX_INPUT_BYTES));
      return found;
    });
    slice.forEach((job, index) => {
      const preview = previews[index];
      shown.push(preview ? describe(preview, job) : {});
    });
  }
  return shown;
}

function describe({ error, input, notes }: JobPreview, { attempt }: Previewed): Shown {
  const { code, message } = error ?? {};
  return {
    ...numberRun({ attempt, notes }),
    ...(code !== undefined &&
      message !== undefined && { error: { code, message: cut(message, MESSAGE_CHARACTERS) } }),
    ...(typeof input === 'number'
      ? { inputBytes: input }
      : {
          inputPreview: cut(Buffer.from(input).toString(), INPUT_CHARACTERS),
          inputBytes: input.length,
        }),
  };
}

function cut(text: string, characters: number): string {
  return text.length <= characters ? text : `${text.slice(0, characters).toWellFormed()}…`;
}
