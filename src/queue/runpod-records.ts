// A stored job as clients of RunPod's API know it: the error a text, and what the handler has told of
// its progress in the output's place while it runs.
import type { StoredJob } from '../store/store.ts';
import type { AttemptError } from '../wire/job.ts';
import { addMembers, describeJob, progressOf } from './records.ts';

/** The job record's JSON in pieces, the output (JSON already, if there is any to show) as it was given. */
export function composeRunpodRecord<Output>(
  job: StoredJob,
  now: number,
  output: Output | undefined,
): (Output | Uint8Array)[] {
  const head = describeJob(job, now, output);
  if (job.error) head['error'] = encodeError(job.error, job.workerId);
  const shown = output ?? progressOf(job);
  return addMembers<Output | Uint8Array>(head, shown ? { output: shown } : {});
}

/**
 * Of what was thrown, JSON with the member names of RunPod's Python workers, which clients take
 * apart. Whatever else ended the job is a sentence to read, and so is an error that came as one.
 */
function encodeError({ code, message, stack, type }: AttemptError, workerId: string | null) {
  if (type === undefined && stack === undefined) return message;
  return JSON.stringify({
    error_type: type ?? code,
    error_message: message,
    error_traceback: stack ?? '',
    error_code: code,
    worker_id: workerId,
  });
}
