// Waits for the end of a job, by requests that the platform answers when the job ends.
import { isTerminal, type JobRecord } from '../../wire/job/job.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { type ApiCaller, callOf } from '../api-caller.ts';

/** Wait of one request, ms. Many proxies cut a request that has been silent for 60 s. */
const REQUEST_WAIT_MS = 30_000;

/** @throws ApiError, UnreachableError, the signal's reason */
export async function waitForEnd<Output>(
  caller: ApiCaller,
  job: { endpoint: string; job: string },
  signal: AbortSignal | undefined,
): Promise<JobRecord<Output>> {
  for (;;) {
    const record = await caller.json<JobRecord<Output>>({
      ...callOf(JOB_ROUTES.getJobStatus, job),
      query: { wait: REQUEST_WAIT_MS },
      signal,
    });
    if (isTerminal(record.status)) return record;
  }
}
