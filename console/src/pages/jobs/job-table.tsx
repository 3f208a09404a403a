// One page of jobs as a table.
import type { JobSummary } from '../../../../src/client.ts';
import { numberAttempt } from '../../../../src/wire/job/job.ts';
import { Badge } from '../../parts/badge.tsx';
import { Id } from '../../parts/copy.tsx';
import { InputPreview, JobFailure, JobId } from '../../parts/job/job-cells.tsx';
import { JOB_TONES, sayStatus } from '../../parts/job/job-status.ts';
import { Table } from '../../parts/list/table.tsx';
import { Elapsed, Time } from '../../parts/time.tsx';

interface JobTableProps {
  endpoint: string;
  jobs: readonly JobSummary[];
  /** Undefined if the key may not change jobs. */
  selected: ReadonlySet<string> | undefined;
  onSelect: (selected: ReadonlySet<string>) => void;
}

const COLUMNS = [
  { name: 'Job' },
  { name: 'Status' },
  { name: 'Input, error' },
  { name: 'Submitted' },
  { name: 'Queue time', isNumber: true },
  { name: 'Run time', isNumber: true },
  { name: 'Worker' },
];

export function JobTable({ endpoint, jobs, onSelect, selected }: JobTableProps) {
  const toggle = (id: string) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    onSelect(next);
  };
  const isAll = jobs.every(({ id }) => selected?.has(id));
  const selectAll = (
    <input
      type="checkbox"
      aria-label="Select all jobs of this page"
      checked={isAll}
      onChange={() => onSelect(new Set(isAll ? [] : jobs.map(({ id }) => id)))}
    />
  );
  const columns = selected
    ? [{ name: 'Select', isHidden: true, head: selectAll }, ...COLUMNS]
    : COLUMNS;
  return (
    <Table label="Jobs" columns={columns}>
      {jobs.map((job) => (
        <tr key={job.id}>
          {selected && (
            <td>
              <input
                type="checkbox"
                aria-label={`Select ${job.id}`}
                checked={selected.has(job.id)}
                onChange={() => toggle(job.id)}
              />
            </td>
          )}
          <Row endpoint={endpoint} job={job} />
        </tr>
      ))}
    </Table>
  );
}

function Row({ endpoint, job }: { endpoint: string; job: JobSummary }) {
  const { attempt, delayTime, error, executionTime, id, run, runAttempt, status } = job;
  const { submittedAt, tags, workerId } = job;
  const isRepeated = attempt > 1 || run !== undefined;
  return (
    <>
      <JobId endpoint={endpoint} id={id} />
      <td>
        <Badge text={sayStatus(status)} tone={JOB_TONES[status]} />
        {isRepeated && (
          <small>{runAttempt === 0 ? `run ${run}` : `attempt ${numberAttempt(job)}`}</small>
        )}
      </td>
      <td>
        <InputPreview job={job} />
        {tags && <small class="muted">{tags.join(', ')}</small>}
        {error && status !== 'COMPLETED' && <JobFailure error={error} />}
      </td>
      <td class="nowrap">
        <Time at={submittedAt} />
      </td>
      <td class="number">
        <Elapsed ms={delayTime} isRunning={status === 'IN_QUEUE'} />
      </td>
      <td class="number">
        {attempt > 0 && status !== 'IN_QUEUE' ? (
          <Elapsed ms={executionTime} isRunning={status === 'IN_PROGRESS'} />
        ) : (
          '–'
        )}
      </td>
      <td class="nowrap">{workerId === undefined ? '–' : <Id id={workerId} />}</td>
    </>
  );
}
