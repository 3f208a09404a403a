// The jobs of an endpoint: filtered and paged by the platform, with actions on several at once.
import { useEffect, useState } from 'preact/hooks';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { Pager, usePages } from '../../parts/list/pager.tsx';
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
  const purge = async () => setNote(`Cancelled ${countJobs(await purgeQueue(id))}.`);
  return (
    <EndpointFrame
      id={id}
      tab="jobs"
      endpoint={data ?? undefined}
      actions={
        mayChange && (
          <Confirm label="Purge queue" question="Cancel all queued jobs?" isDangerous act={purge}>
            <p>Every queued job becomes CANCELLED. Running jobs continue.</p>
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
  const pages = usePages();
  const { cursor } = pages;
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const polled = usePolled({
    key: `jobs ${id} ${writeFilters(filters)} ${cursor}`,
    load: (signal) => readJobPage({ endpoint: id, filters, cursor, signal }),
    // Later pages stay as they are, so that rows do not move while they are read.
    everyMs: cursor === undefined ? EVERY_MS : null,
  });
  useEffect(() => setSelected(new Set()), [cursor]);
  const { data, reload } = polled;
  const jobs = data?.jobs ?? [];
  const listFor = (action: JobAction) =>
    jobs.filter(({ id: job, status }) => selected.has(job) && allowsAction(action, status));
  const act = async (action: JobAction) => {
    const ids = listFor(action).map((job) => job.id);
    const missed = await actOnJobs(action, id, ids);
    const done = countJobs(ids.length - missed);
    const word = action === 'cancel' ? 'Cancelled' : 'Queued again:';
    onNote(`${word} ${done}.${missed > 0 ? ` ${missed} had changed meanwhile.` : ''}`);
    setSelected(new Set());
    reload();
  };
  return (
    <>
      <LoadProblem polled={polled} />
      {mayChange && (
        <div class="bulk">
          <span>{selected.size} selected</span>
          <Confirm
            label="Cancel"
            question={`Cancel ${countJobs(listFor('cancel').length)}?`}
            isDangerous
            disabled={listFor('cancel').length === 0}
            act={() => act('cancel')}
          />
          <Confirm
            label="Retry"
            question={`Queue ${countJobs(listFor('retry').length)} again?`}
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
          selected={mayChange ? selected : undefined}
          onSelect={setSelected}
        />
      )}
      <Pager pages={pages} next={data?.next} />
    </>
  );
}

function countJobs(count: number): string {
  return `${count.toLocaleString()} ${count === 1 ? 'job' : 'jobs'}`;
}

function NoJobs({ id, isFiltered }: { id: string; isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No job matches the filters" />;
  return (
    <Empty title="No jobs yet" command={`millrace jobs submit ${id} '{}'`}>
      The platform keeps a job for half an hour after its end. Submit one:
    </Empty>
  );
}
