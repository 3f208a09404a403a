// One batch: how far it is, its failed lines, its jobs, and its files of results.
import { Figures } from '../../parts/figures/figures.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { JobId } from '../../parts/job/job-cells.tsx';
import { Table } from '../../parts/list/table.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Time } from '../../parts/time.tsx';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import { hrefOf } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { LoadProblem, pathOf } from '../endpoint/frame.tsx';
import { writeFilters } from '../jobs/filters.ts';
import { type BatchKey, batchesOf, loadFailedLines, urlOfResults } from './calls.ts';
import { BatchBadge, BatchTime, Results } from './list.tsx';

const EVERY_MS = 2_000;

export function Page({ parameters: { batch: id = '', endpoint = '' } }: PageProps) {
  const key = { endpoint, id };
  const polled = usePolled({
    key: `batch ${endpoint} ${id}`,
    load: (signal) => batchesOf(endpoint).show(id, { signal }),
    everyMs: EVERY_MS,
    live: liveFrom([TOPICS.batch(endpoint, id)], (batch) => batch),
  });
  const { data, reload } = polled;
  const nameOf = useEndpointNames();
  const path = pathOf(endpoint);
  const cancel = async () => {
    await batchesOf(endpoint).cancel(id);
    reload();
  };
  return (
    <>
      <PageHead
        title="Batch"
        id={id}
        tab={id.slice(-12)}
        crumbs={[
          { name: 'Overview', path: '/' },
          { name: nameOf(endpoint), path },
          { name: 'Batches', path: `${path}/batches` },
        ]}
        badge={data && <BatchBadge state={data.state} />}
      >
        {data && data.endedAt !== null && (
          <>
            {data.completed > 0 && <Save name="results" url={urlOfResults(key, false)} />}
            {data.failed > 0 && <Save name="failed lines" url={urlOfResults(key, true)} />}
          </>
        )}
        {data?.state === 'running' && may('jobs:write', endpoint) && (
          <Confirm
            label="Cancel"
            question="Cancel the jobs of the batch that have not ended?"
            isDangerous
            act={cancel}
          >
            <p>Lines without a job get none. The results so far stay.</p>
          </Confirm>
        )}
      </PageHead>
      <LoadProblem polled={polled} />
      {data && (
        <>
          <Figures
            figures={[
              { name: 'Time', value: <BatchTime batch={data} /> },
              { name: 'Lines with a result', value: <Results batch={data} /> },
              { name: 'Completed', value: data.completed.toLocaleString() },
              { name: 'Failed', value: data.failed.toLocaleString(), isBad: data.failed > 0 },
              { name: 'Live jobs', value: data.live.toLocaleString() },
            ]}
          />
          <p>
            <a href={hrefOf(`${path}/jobs${writeFilters({ tag: id })}`)}>Jobs of the batch</a>
            {' · '}
            <a href={hrefOf(`${path}/jobs${writeFilters({ tag: id, status: 'FAILED' })}`)}>
              Failed jobs of the batch
            </a>
          </p>
          {data.endedAt !== null && data.failed > 0 && <FailedLines batch={key} />}
          <p class="muted">
            Created <Time at={data.createdAt} />
            {data.endedAt === null && (
              <>
                . It gives up the lines without a result <Time at={data.expiresAt} />.
              </>
            )}
          </p>
        </>
      )}
    </>
  );
}

function Save({ name, url }: { name: string; url: string }) {
  return (
    <a class="button" href={url} download>
      Download {name}
    </a>
  );
}

function FailedLines({ batch }: { batch: BatchKey }) {
  const { endpoint, id } = batch;
  const polled = usePolled({
    key: `failed lines ${endpoint} ${id}`,
    load: (signal) => loadFailedLines(batch, signal),
    everyMs: null,
  });
  const { data } = polled;
  return (
    <section aria-label="Failed lines">
      <h2>Failed lines</h2>
      <LoadProblem polled={polled} />
      {data && (
        <Table
          label="Failed lines"
          columns={[{ name: 'Job' }, { name: 'Line' }, { name: 'Reason' }]}
        >
          {data.lines.map(({ jobId, name, reason }, index) => (
            // A file may not name a line twice, but a bad line has no name.
            <tr key={index}>
              {jobId === undefined ? (
                <th scope="row">–</th>
              ) : (
                <JobId endpoint={endpoint} id={jobId} />
              )}
              <td class="mono">{name}</td>
              <td>{reason}</td>
            </tr>
          ))}
        </Table>
      )}
      {data?.hasMore && <p class="muted">The file of failed lines has all of them.</p>}
    </section>
  );
}
