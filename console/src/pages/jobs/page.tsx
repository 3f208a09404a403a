// The jobs of an endpoint: filtered and paged by the platform, with actions on several at once.
import { useEffect, useState } from 'preact/hooks';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { go } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { EndpointFrame, LoadProblem, pathOf, useEndpoint } from '../endpoint/frame.tsx';
import { FilterBar } from './filter-bar.tsx';
import { type Filters, readFilters, writeFilters } from './filters.ts';
import { actOnJobs, allowsAction, type JobAction, purgeQueue } from './job-actions.ts';
import { readJobPage } from './job-pages.ts';
import { JobTable } from './job-table.tsx';

const EVERY_MS = 3_000;

export function Page({ parameters: { endpoint: id = '' }, query }: PageProps) {
  const { data } = useEndpoint(id);
  const filters = readFilters(query);
  const mayChange = may('jobs:write', id);
  const [note, setNote] = useState('');
  const purge = async () => setNote(`Cancelled ${(await purgeQueue(id)).toLocaleString()} jobs.`);
  return (
    <EndpointFrame
      id={id}
      tab="jobs"
      endpoint={data ?? undefined}
      actions={
        mayChange && (
          <Confirm
            label="Purge the queue"
            question="Cancel all queued jobs?"
            isDangerous
            act={purge}
          >
            <p>Every job that waits becomes CANCELLED. Running jobs go on.</p>
          </Confirm>
        )
      }
    >
      <FilterBar
        filters={filters}
        onChange={(changed) => go(`${pathOf(id)}/jobs${writeFilters(changed)}`, 'replace')}
      />
      <JobPages
        key={writeFilters(filters)}
        id={id}
        filters={filters}
        mayChange={mayChange}
        note={note}
        onNote={setNote}
      />
    </EndpointFrame>
  );
}

interface JobPagesProps {
  id: string;
  filters: Filters;
  mayChange: boolean;
  note: string;
  onNote: (note: string) => void;
}

function JobPages({ filters, id, mayChange, note, onNote }: JobPagesProps) {
  /** Cursors of the pages up to the one that is shown; the first has none. */
  const [cursors, setCursors] = useState<readonly (string | undefined)[]>([undefined]);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const cursor = cursors.at(-1);
  const polled = usePolled({
    key: `jobs ${id} ${writeFilters(filters)} ${cursor}`,
    load: (signal) => readJobPage({ endpoint: id, filters, cursor, signal }),
    // Later pages stay as they are, so that rows do not move while they are read.
    everyMs: cursor === undefined ? EVERY_MS : null,
  });
  useEffect(() => setChosen(new Set()), [cursor]);
  const { data, reload } = polled;
  const jobs = data?.jobs ?? [];
  const listFor = (action: JobAction) =>
    jobs.filter(({ id: job, status }) => chosen.has(job) && allowsAction(action, status));
  const act = async (action: JobAction) => {
    const ids = listFor(action).map((job) => job.id);
    const missed = await actOnJobs(action, id, ids);
    const done = (ids.length - missed).toLocaleString();
    const word = action === 'cancel' ? 'Cancelled' : 'Queued again:';
    onNote(`${word} ${done} jobs.${missed > 0 ? ` ${missed} had changed meanwhile.` : ''}`);
    setChosen(new Set());
    reload();
  };
  return (
    <>
      <LoadProblem polled={polled} />
      {mayChange && (
        <div class="bulk">
          <span>{chosen.size} chosen</span>
          <Confirm
            label="Cancel"
            question={`Cancel ${listFor('cancel').length} jobs?`}
            isDangerous
            disabled={listFor('cancel').length === 0}
            act={() => act('cancel')}
          />
          <Confirm
            label="Retry"
            question={`Queue ${listFor('retry').length} jobs again?`}
            disabled={listFor('retry').length === 0}
            act={() => act('retry')}
          />
          <span role="status">{note}</span>
        </div>
      )}
      {data && jobs.length === 0 && <NoJobs isFiltered={Object.keys(filters).length > 0} id={id} />}
      {jobs.length > 0 && (
        <JobTable
          endpoint={id}
          jobs={jobs}
          chosen={mayChange ? chosen : undefined}
          onChoose={setChosen}
        />
      )}
      <div class="pager">
        <button
          type="button"
          disabled={cursors.length === 1}
          onClick={() => setCursors(cursors.slice(0, -1))}
        >
          Newer
        </button>
        <span class="muted">Page {cursors.length}</span>
        <button
          type="button"
          disabled={data?.next === undefined}
          onClick={() => data?.next !== undefined && setCursors([...cursors, data.next])}
        >
          Older
        </button>
      </div>
    </>
  );
}

function NoJobs({ id, isFiltered }: { id: string; isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No job matches the filters" />;
  return (
    <Empty title="No jobs yet" command={`millrace jobs submit ${id} '{}'`}>
      The platform keeps a job for half an hour after its end. Submit one:
    </Empty>
  );
}
