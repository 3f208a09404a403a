// The failed jobs of all endpoints, the newest first.
import { ERROR_CODES } from '../../../src/wire/job/job.ts';
import type { FailedJobList } from '../../../src/wire/resources/activity.ts';
import { InputPreview, JobFailure, JobId } from '../parts/job/job-cells.tsx';
import { sayStatus } from '../parts/job/job-status.ts';
import { Empty } from '../parts/list/empty.tsx';
import { Pager, usePages } from '../parts/list/pager.tsx';
import { Table } from '../parts/list/table.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Time } from '../parts/time.tsx';
import { platform } from '../platform/calls.ts';
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
          The platform removes ended jobs after their retention, half an hour by default.
        </Empty>
      )}
      {data && data.jobs.length > 0 && <Failures jobs={data.jobs} />}
      <Pager pages={pages} next={data?.cursor} />
    </>
  );
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
          <td>{job.error ? <JobFailure error={job.error} /> : sayStatus(job.status)}</td>
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
