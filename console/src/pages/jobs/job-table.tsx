// One page of jobs as a table.
import type { JobSummary } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { JOB_TONES, sayStatus } from '../../parts/job/job-status.ts';
import { Table } from '../../parts/list/table.tsx';
import { sayDuration, Time } from '../../parts/time.tsx';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';

interface JobTableProps {
  endpoint: string;
  jobs: readonly JobSummary[];
  /** Undefined if the key may not change jobs. */
  chosen: ReadonlySet<string> | undefined;
  onChoose: (chosen: ReadonlySet<string>) => void;
}

const COLUMNS = [
  { name: 'Job' },
  { name: 'Status' },
  { name: 'Submitted' },
  { name: 'In queue', isNumber: true },
  { name: 'Run time', isNumber: true },
  { name: 'Attempt', isNumber: true },
  { name: 'Worker' },
];

export function JobTable({ chosen, endpoint, jobs, onChoose }: JobTableProps) {
  const columns = chosen ? [{ name: 'Choose', isHidden: true }, ...COLUMNS] : COLUMNS;
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  const isAll = jobs.every(({ id }) => chosen?.has(id));
  return (
    <>
      {chosen && (
        <label class="choose-all">
          <input
            type="checkbox"
            checked={isAll}
            onChange={() => onChoose(new Set(isAll ? [] : jobs.map(({ id }) => id)))}
          />{' '}
          Choose all of this page
        </label>
      )}
      <Table label="Jobs" columns={columns}>
        {jobs.map((job) => (
          <tr key={job.id}>
            {chosen && (
              <td>
                <input
                  type="checkbox"
                  aria-label={`Choose ${job.id}`}
                  checked={chosen.has(job.id)}
                  onChange={() => toggle(job.id)}
                />
              </td>
            )}
            <Row endpoint={endpoint} job={job} />
          </tr>
        ))}
      </Table>
    </>
  );
}

function Row({ endpoint, job }: { endpoint: string; job: JobSummary }) {
  const { attempt, delayTime, executionTime, id, status, submittedAt } = job;
  return (
    <>
      <th scope="row" class="mono nowrap">
        <a href={hrefOf(`${pathOf(endpoint)}/jobs/${encodeURIComponent(id)}`)}>{id}</a>
      </th>
      <td>
        <Badge text={sayStatus(status)} tone={JOB_TONES[status]} />
      </td>
      <td class="nowrap">
        <Time at={submittedAt} />
      </td>
      <td class="number">{attempt > 0 ? sayDuration(delayTime) : '–'}</td>
      <td class="number">{attempt > 0 ? sayDuration(executionTime) : '–'}</td>
      <td class="number">{attempt}</td>
      <td class="mono nowrap">{job.workerId ?? '–'}</td>
    </>
  );
}
