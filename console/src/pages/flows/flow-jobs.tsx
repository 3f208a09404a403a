// The jobs of a flow as a table: all that the drawing has, with filters, and actions on some of them.
import { useState } from 'preact/hooks';
import type { FlowJob } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { JobId } from '../../parts/job/job-cells.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { Table } from '../../parts/list/table.tsx';
import { countStates, describeState, sayEdge } from './states.ts';

const COLUMNS = [
  { name: 'Name' },
  { name: 'State' },
  { name: 'After' },
  { name: 'Job' },
  { name: 'Endpoint' },
];

/** Rows that are shown at once. */
const STEP = 100;
/** Parents that a cell names. */
const MAX_NAMED = 5;

const RETRIABLE: ReadonlySet<FlowJob['state']> = new Set(['FAILED', 'TIMED_OUT', 'SKIPPED']);
const OPEN: ReadonlySet<FlowJob['state']> = new Set(['WAITING', 'IN_QUEUE', 'IN_PROGRESS']);

export type FlowAction = 'cancel' | 'retry';

export function allowsAction(action: FlowAction, { state }: FlowJob): boolean {
  return (action === 'cancel' ? OPEN : RETRIABLE).has(state);
}

interface FlowJobsProps {
  jobs: readonly FlowJob[];
  /** Undefined if the key may not change the jobs. */
  act: ((action: FlowAction, names: readonly string[]) => Promise<unknown>) | undefined;
  nameOf: (endpoint: string) => string;
}

export function FlowJobs({ act, jobs, nameOf }: FlowJobsProps) {
  const [search, setSearch] = useState('');
  const [state, setState] = useState('');
  const [most, setMost] = useState(STEP);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const found = jobs.filter(
    (job) =>
      (state === '' || job.state === state) && `${job.name} ${job.id}`.includes(search.trim()),
  );
  const isAll = found.length > 0 && found.every(({ name }) => selected.has(name));
  const toggle = (name: string) => {
    const next = new Set(selected);
    if (!next.delete(name)) next.add(name);
    setSelected(next);
  };
  const selectAll = (
    <input
      type="checkbox"
      aria-label="Select all jobs that are found"
      checked={isAll}
      onChange={() => setSelected(new Set(isAll ? [] : found.map(({ name }) => name)))}
    />
  );
  return (
    <section aria-label="Jobs">
      <h2>Jobs</h2>
      <search class="filters">
        <input
          type="search"
          aria-label="Find a job of the flow"
          placeholder="Find a job (/)"
          value={search}
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        <select
          aria-label="State"
          value={state}
          onChange={({ currentTarget }) => setState(currentTarget.value)}
        >
          <option value="">State: any</option>
          {countStates(jobs).map(({ count, state: each }) => (
            <option key={each} value={each}>
              {describeState(each).text} ({count.toLocaleString()})
            </option>
          ))}
        </select>
        {act && (
          <>
            <span>{selected.size} selected</span>
            {ACTIONS.map(({ action, isDangerous, label, verb }) => {
              const chosen = jobs.filter(
                (job) => selected.has(job.name) && allowsAction(action, job),
              );
              return (
                <Confirm
                  key={action}
                  {...{ label, isDangerous }}
                  question={`${verb} ${chosen.length} of the jobs?`}
                  disabled={chosen.length === 0}
                  act={async () => {
                    await act(
                      action,
                      chosen.map(({ name }) => name),
                    );
                    setSelected(new Set());
                  }}
                >
                  <p>{NOTES[action]}</p>
                </Confirm>
              );
            })}
          </>
        )}
      </search>
      {found.length === 0 ? (
        <Empty title="No job of the flow matches" />
      ) : (
        <Table
          label="Jobs of the flow"
          columns={
            act ? [{ name: 'Select', isHidden: true, head: selectAll }, ...COLUMNS] : COLUMNS
          }
        >
          {found.slice(0, most).map((job) => (
            <tr key={job.name}>
              {act && (
                <td>
                  <input
                    type="checkbox"
                    aria-label={`Select ${job.name}`}
                    checked={selected.has(job.name)}
                    onChange={() => toggle(job.name)}
                  />
                </td>
              )}
              <Cells job={job} nameOf={nameOf} />
            </tr>
          ))}
        </Table>
      )}
      {found.length > most && (
        <div class="pager">
          <button type="button" onClick={() => setMost(most + STEP)}>
            Show more
          </button>
          <span class="muted">
            {most} of {found.length.toLocaleString()}
          </span>
        </div>
      )}
    </section>
  );
}

const ACTIONS = [
  { action: 'cancel', label: 'Cancel', verb: 'Cancel', isDangerous: true },
  { action: 'retry', label: 'Retry', verb: 'Queue again', isDangerous: false },
] as const;

const NOTES: Readonly<Record<FlowAction, string>> = {
  cancel: 'Their edges say what becomes of the jobs that wait for them.',
  retry: 'What follows from them is queued again, too.',
};

function Cells({ job, nameOf }: { job: FlowJob; nameOf: (endpoint: string) => string }) {
  const { after, endpoint, id, name, state } = job;
  return (
    <>
      <th scope="row">{name}</th>
      <td>
        <Badge {...describeState(state)} />
      </td>
      <td>
        {after.length === 0 && '–'}
        {after.slice(0, MAX_NAMED).map((parent) => (
          <div key={parent.job}>{sayParent(parent)}</div>
        ))}
        {after.length > MAX_NAMED && <small>and {after.length - MAX_NAMED} more</small>}
      </td>
      <JobId endpoint={endpoint} id={id} />
      <td>{nameOf(endpoint)}</td>
    </>
  );
}

function sayParent({ job, ...edge }: FlowJob['after'][number]): string {
  const notes = sayEdge(edge);
  return notes === '' ? job : `${job} (${notes})`;
}
