// The job record for clients of RunPod's API. The error is a text. While the job runs, its progress
// replaces the output.
import {
  addMembers,
  type ComposeRecord,
  describeJob,
  progressOf,
  type RecordFormats,
} from '../../queue/records.ts';
import type { AttemptError } from '../../wire/job/job.ts';

/** Name of the format in job attachments. */
export const RUNPOD_FORMAT = 'runpod';

export const composeRunpodRecord: ComposeRecord = <Output>(
  ...[job, now, output]: Parameters<typeof describeJob<Output>>
) => {
  const head = describeJob(job, now, output);
  if (job.error) head['error'] = encodeError(job.error, job.workerId);
  const shown = output ?? progressOf(job);
  return addMembers<Output | Uint8Array>(head, shown ? { output: shown } : {});
};

/** For the queue, which composes the records of webhooks. */
export const runpodFormats: RecordFormats = { [RUNPOD_FORMAT]: composeRunpodRecord };

/**
 * For thrown errors: JSON with the member names of RunPod's Python workers, which clients parse.
 * Every other error is its message, and so is an error that arrived as text.
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
