// Reads one page of an endpoint's jobs. With filters, the platform may answer with fewer rows than asked for and go on
// behind a cursor: this reads on until the page is full, for a bounded number of requests.

import { callOf } from '../../../../src/client/api-caller.ts';
import type { JobList, JobSummary } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller } from '../../platform/calls.ts';
import { type Filters, queryOf } from './filters.ts';

export const PAGE_SIZE = 50;
const MAX_REQUESTS = 10;

export interface JobPage {
  jobs: JobSummary[];
  /** Of the next page; undefined on the last one. */
  next: string | undefined;
}

interface JobPageRequest {
  endpoint: string;
  filters: Filters;
  cursor: string | undefined;
  signal: AbortSignal;
}

export async function readJobPage(request: JobPageRequest): Promise<JobPage> {
  const { cursor, endpoint, filters, signal } = request;
  const jobs: JobSummary[] = [];
  let next = cursor;
  for (let n = 0; n < MAX_REQUESTS && jobs.length < PAGE_SIZE; n++) {
    const list = await caller.json<JobList>({
      ...callOf(JOB_ROUTES.listJobs, { endpoint }),
      query: {
        ...{ ...queryOf(filters, Date.now()), cursor: next, limit: PAGE_SIZE - jobs.length },
        previews: 'true',
      },
      signal,
    });
    jobs.push(...list.jobs);
    next = list.cursor;
    if (next === undefined) break;
  }
  return { jobs, next };
}
