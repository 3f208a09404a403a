// The failed jobs of all endpoints, the newest first.
import { callOf } from '../../../src/client/api-caller.ts';
import { ERROR_CODES } from '../../../src/wire/job/job.ts';
import type { ResubmittedJobs } from '../../../src/wire/job/job-records.ts';
import type { FailedJobList } from '../../../src/wire/resources/activity.ts';
import { JOB_ROUTES } from '../../../src/wire/routes/routes.ts';
import { Confirm } from '../parts/forms/confirm.tsx';
import { InputPreview, JobFailure, JobId } from '../parts/job/job-cells.tsx';
import { sayStatus } from '../parts/job/job-status.ts';
import { Empty } from '../parts/list/empty.tsx';
import { Pager, usePages } from '../parts/list/pager.tsx';
import { Table } from '../parts/list/table.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Time } from '../parts/time.tsx';
import { caller, platform } from '../platform/calls.ts';
import { usePolled } from '../platform/polling.ts';
import { go, hrefOf } from '../routing/location.ts';
import type { PageProps } from '../routing/routes.ts';
import { LoadProblem, pathOf } from './endpoint/frame.tsx';

const PAGE_SIZE = 50;
const EVERY_MS = 5_000;

const COLUMNS = [
  { name: 'Job' },
  { name: 'Endpoint' },
  { name: 'Error' },
  { name: 'Input' },
  { name: 'Ended' },
  { name: 'Attempts', isNumber: true },
];

export function Page({ query }: PageProps) {
  const errorCode = ERROR_CODES.find((known) => known === query.get('error'));
  return (
    <>
      <PageHead title="Failed jobs">
        <select
          aria-label="Error"
          value={errorCode ?? ''}
          onChange={({ currentTarget: { value } }) =>
            go(`/failed-jobs${value && `?error=${value}`}`, 'replace')
          }
        >
          <option value="">Error: any</option>
          {ERROR_CODES.map((code) => (
            <option key={code}>{code}</option>
          ))}
        </select>
      </PageHead>
      <Pages key={errorCode} errorCode={errorCode} />
    </>
  );
}

function Pages({ errorCode }: { errorCode: (typeof ERROR_CODES)[number] | undefined }) {
  const pages = usePages();
  const { cursor } = pages;
  const polled = usePolled({
    key: `failed ${errorCode} ${cursor}`,
    load: (signal) => platform.failedJobs({ errorCode, limit: PAGE_SIZE, cursor, signal }),
    // Later pages stay as they are, so that rows do not move while they are read.
    everyMs: cursor === undefined ? EVERY_MS : null,
  });
  const { data } = polled;
  return (
    <>
      <LoadProblem polled={polled} />
      {data && data.unreachable.length > 0 && (
        <p class="note">
          No node answers for {data.unreachable.length} of the endpoints: their jobs are missing.
        </p>
      )}
      {data && data.jobs.length === 0 && (
        <Empty title={errorCode ? 'No failed job has this error' : 'No failed jobs'}>
          An endpoint keeps failed jobs for 7 days, unless it is set to keep them for another time.
        </Empty>
      )}
      {data && data.jobs.length > 0 && (
        <>
          <Resubmission jobs={data.jobs.filter(({ retriedAs }) => retriedAs === undefined)} />
          <Failures jobs={data.jobs} />
        </>
      )}
      <Pager pages={pages} next={data?.cursor} />
    </>
  );
}

type FailedJobs = FailedJobList['jobs'];

function Resubmission({ jobs }: { jobs: FailedJobs }) {
  const count = `${jobs.length} failed ${jobs.length === 1 ? 'job' : 'jobs'}`;
  return (
    <Confirm
      label="Submit again"
      question={`Submit ${count} of this page again?`}
      disabled={jobs.length === 0}
      act={() => resubmit(jobs)}
    >
      <p>Each becomes a new job with the same input. A failed job is submitted again once.</p>
    </Confirm>
  );
}

/** A page has no more jobs than one request takes. */
async function resubmit(jobs: FailedJobs): Promise<void> {
  for (const [endpoint, those] of Map.groupBy(jobs, (job) => job.endpoint.id)) {
    const call = callOf(JOB_ROUTES.resubmitJobs, { endpoint });
    const body = { ids: those.map(({ id }) => id) };
    const { jobs: answers } = await caller.json<ResubmittedJobs>({ ...call, body });
    const refused = answers.find((answer) => 'error' in answer);
    if (refused && 'error' in refused)
      throw new Error(`${refused.retryOf}: ${refused.error.detail}`);
  }
}

function Failures({ jobs }: Pick<FailedJobList, 'jobs'>) {
  return (
    <Table label="Failed jobs" columns={COLUMNS}>
      {jobs.map((job) => (
        <tr key={job.id}>
          <JobId endpoint={job.endpoint.id} id={job.id} />
          <td>
            <a href={hrefOf(pathOf(job.endpoint.id))}>{job.endpoint.name}</a>
          </td>
          <td>
            {job.error ? <JobFailure error={job.error} /> : sayStatus(job.status)}
            {job.retriedAs !== undefined && <span class="muted"> submitted again</span>}
          </td>
          <td>
            <InputPreview job={job} />
          </td>
          <td class="nowrap">{job.endedAt === null ? '–' : <Time at={job.endedAt} />}</td>
          <td class="number">{job.attempt}</td>
        </tr>
      ))}
    </Table>
  );
}
