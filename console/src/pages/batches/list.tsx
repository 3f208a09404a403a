// The batches of an endpoint, or of all, the newest first.
import type { BatchRecord } from '../../../../src/client.ts';
import type { BatchState } from '../../../../src/wire/job/batch.ts';
import { Badge, type Tone } from '../../parts/badge.tsx';
import { Id } from '../../parts/copy.tsx';
import { Meter } from '../../parts/figures/meter.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { List } from '../../parts/list/list.tsx';
import { Pager, usePages } from '../../parts/list/pager.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Elapsed, Time } from '../../parts/time.tsx';
import { type Polled, usePolled } from '../../platform/polling.ts';
import { go, hrefOf } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { EndpointFrame, pathOf, useEndpoint } from '../endpoint/frame.tsx';
import { ASKED, batchesOf, type ListedBatch, listNewest, pathOfBatch } from './calls.ts';

const PAGE_SIZE = 50;
const EVERY_MS = 3_000;
/** One pass asks many endpoints. */
const ALL_EVERY_MS = 15_000;

const TONES: Readonly<Record<BatchState, Tone>> = {
  running: 'busy',
  cancelling: 'warn',
  expiring: 'warn',
  completed: 'good',
  cancelled: 'plain',
  expired: 'bad',
};

export function BatchBadge({ state }: { state: BatchState }) {
  return <Badge text={`${state.charAt(0).toUpperCase()}${state.slice(1)}`} tone={TONES[state]} />;
}

export function Page({ parameters: { endpoint }, query }: PageProps) {
  const ended = { true: true, false: false }[query.get('ended') ?? ''];
  return endpoint === undefined ? (
    <>
      <PageHead title="Batches">
        <EndedFilter path="/batches" ended={ended} />
      </PageHead>
      <Newest key={ended} ended={ended} />
    </>
  ) : (
    <OfEndpoint key={`${endpoint} ${ended}`} endpoint={endpoint} ended={ended} />
  );
}

interface Ended {
  ended: boolean | undefined;
}

function EndedFilter({ ended, path }: Ended & { path: string }) {
  return (
    <select
      aria-label="Batches"
      value={String(ended ?? '')}
      onChange={({ currentTarget: { value } }) =>
        go(`${path}${value && `?ended=${value}`}`, 'replace')
      }
    >
      <option value="">Batches: all</option>
      <option value="false">That run</option>
      <option value="true">That have ended</option>
    </select>
  );
}

function Newest({ ended }: Ended) {
  const polled = usePolled({
    key: `batches ${ended}`,
    load: (signal) => listNewest(ended, signal),
    everyMs: ALL_EVERY_MS,
  });
  return (
    <>
      <BatchList
        polled={{ ...polled, data: polled.data?.batches }}
        ended={ended}
        endpoint={undefined}
      />
      {polled.data?.isPart && (
        <p class="note">
          These are the newest {ASKED.batches} of each of the first {ASKED.endpoints} endpoints. The
          pages of the endpoints have the others.
        </p>
      )}
    </>
  );
}

function OfEndpoint({ endpoint, ended }: Ended & { endpoint: string }) {
  const { data: record } = useEndpoint(endpoint);
  const pages = usePages();
  const { cursor } = pages;
  const of = { id: endpoint, name: record?.name ?? endpoint };
  const polled = usePolled({
    key: `batches ${endpoint} ${ended} ${cursor}`,
    load: (signal) =>
      batchesOf(endpoint).list({
        ...{ limit: PAGE_SIZE, signal },
        ...(cursor !== undefined && { cursor }),
        ...(ended !== undefined && { ended }),
      }),
    // Later pages stay as they are, so that rows do not move while they are read.
    everyMs: cursor === undefined ? EVERY_MS : null,
  });
  const batches = polled.data?.batches.map((batch) => ({ ...batch, endpoint: of }));
  return (
    <EndpointFrame
      id={endpoint}
      tab="batches"
      endpoint={record ?? undefined}
      actions={<EndedFilter path={`${pathOf(endpoint)}/batches`} ended={ended} />}
    >
      <BatchList polled={{ ...polled, data: batches }} ended={ended} endpoint={endpoint} />
      <Pager pages={pages} next={polled.data?.cursor} />
    </EndpointFrame>
  );
}

interface BatchListProps extends Ended {
  polled: Polled<readonly ListedBatch[]>;
  /** Undefined: of all. */
  endpoint: string | undefined;
}

function BatchList({ ended, endpoint, polled }: BatchListProps) {
  const isOfAll = endpoint === undefined;
  return (
    <List
      label="Batches"
      columns={[
        { name: 'Batch' },
        ...(isOfAll ? [{ name: 'Endpoint' }] : []),
        { name: 'Status' },
        { name: 'Lines with a result' },
        { name: 'Failed', isNumber: true },
        { name: 'Created' },
        { name: 'Time', isNumber: true },
      ]}
      polled={polled}
      row={(batch) => <Row key={batch.id} batch={batch} isOfAll={isOfAll} />}
      empty={
        ended === undefined ? (
          <Empty
            title="No batches yet"
            command={`millrace batches submit --endpoint ${endpoint ?? '<endpoint>'} --file lines.jsonl`}
          >
            A batch runs each line of a file as a job, when nothing more urgent waits. Submit one:
          </Empty>
        ) : (
          <Empty title={ended ? 'No batch has ended' : 'No batch runs'} />
        )
      }
    />
  );
}

function Row({ batch, isOfAll }: { batch: ListedBatch; isOfAll: boolean }) {
  const { createdAt, endpoint, failed, id, state } = batch;
  return (
    <tr>
      <th scope="row" class="nowrap">
        <Id id={id} href={hrefOf(pathOfBatch({ endpoint: endpoint.id, id }))} />
      </th>
      {isOfAll && (
        <td>
          <a href={hrefOf(pathOf(endpoint.id))}>{endpoint.name}</a>
        </td>
      )}
      <td>
        <BatchBadge state={state} />
      </td>
      <td>
        <Results batch={batch} />
      </td>
      <td class="number">{failed.toLocaleString()}</td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
      <td class="number">
        <BatchTime batch={batch} />
      </td>
    </tr>
  );
}

export function Results({ batch: { completed, failed, id, total } }: { batch: BatchRecord }) {
  return (
    <Meter label={`Lines of ${id} with a result`} used={completed + failed} limit={total} isGoal />
  );
}

export function BatchTime({ batch: { createdAt, endedAt } }: { batch: BatchRecord }) {
  return <Elapsed ms={(endedAt ?? Date.now()) - createdAt} isRunning={endedAt === null} />;
}
