// The endpoints that the session's key may see, those in trouble first.
import { useId, useState } from 'preact/hooks';
import { Badge } from '../parts/badge.tsx';
import { CreateButton } from '../parts/forms/create-button.tsx';
import { useOpenedForm } from '../parts/forms/opened-form.ts';
import { Empty } from '../parts/list/empty.tsx';
import { RecordName } from '../parts/list/record-cells.tsx';
import { Table } from '../parts/list/table.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Problem } from '../parts/problem.tsx';
import { Elapsed } from '../parts/time.tsx';
import { usePolled } from '../platform/polling.ts';
import { listBoundEndpoints, may, sessionState } from '../platform/session.ts';
import { go, hrefOf } from '../routing/location.ts';
import { CreationForm } from './endpoint/creation-form.tsx';
import { pathOf } from './endpoint/frame.tsx';
import { LastHour } from './endpoint/last-hour.tsx';
import { loadOverview, type ShownEndpoint, watchOverview } from './endpoint/overview-rows.ts';
import { judge } from './endpoint/states.ts';

const EVERY_MS = 2_000;
/** Rows with a drawing of the last hour, each of which is a request a minute. */
const MAX_DRAWN = 25;

const COLUMNS = [
  { name: 'Endpoint' },
  { name: 'State' },
  { name: 'Queued', isNumber: true },
  { name: 'Oldest', isNumber: true },
  { name: 'Running', isNumber: true },
  { name: 'Jobs/s', isNumber: true },
  { name: 'Last hour' },
  { name: 'Failed, 1 h', isNumber: true },
  { name: 'Workers', isNumber: true },
];

export function Page() {
  const [search, setSearch] = useState('');
  const { data, error, reload } = usePolled({
    key: 'overview',
    load: loadOverview,
    everyMs: EVERY_MS,
    live: watchOverview(),
  });
  const { form, open, opened } = useOpenedForm<never>(reload);
  const wanted = search.trim().toLowerCase();
  const shown = (data ?? []).filter(({ id, name }) =>
    `${name} ${id}`.toLowerCase().includes(wanted),
  );
  return (
    <>
      <PageHead title="Overview">
        <input
          type="search"
          aria-label="Find an endpoint"
          placeholder="Find an endpoint (/)"
          value={search}
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        {hasEngine() && may('endpoints:write') && (
          <CreateButton
            label="Create an endpoint"
            isOpen={opened === 'new'}
            onOpen={() => open('new')}
          />
        )}
      </PageHead>
      {opened && <CreationForm {...form} />}
      {error && !data && <Problem error={error} onRetry={reload} />}
      {data && data.length === 0 && (may('endpoints:read') ? <NoEndpoints /> : <OpenById />)}
      {shown.length > 0 && (
        <Table label="Endpoints" columns={COLUMNS}>
          {shown.map((endpoint, index) => (
            <Row key={endpoint.id} endpoint={endpoint} isFirst={index < MAX_DRAWN} />
          ))}
        </Table>
      )}
      {data && data.length > 0 && shown.length === 0 && (
        <Empty title={`No endpoint matches “${search}”`} />
      )}
    </>
  );
}

interface RowProps {
  endpoint: ShownEndpoint;
  /** It has a drawing. */
  isFirst: boolean;
}

function Row({ endpoint, isFirst }: RowProps) {
  const { activity, id, name, record } = endpoint;
  const judgement = judge(activity?.state, record);
  const failure = record?.rollout?.state === 'FAILED' ? record.rollout.reason : null;
  return (
    <tr>
      <RecordName id={id} name={name} href={hrefOf(pathOf(id))} />
      <td>
        {judgement ? <Badge {...judgement} /> : '–'}
        {failure && <small class="reason">{failure}</small>}
        {activity?.waitReason && <small class="reason">{activity.waitReason.message}</small>}
      </td>
      <td class="number">{show(activity?.waiting)}</td>
      <td class="number">
        {activity?.oldestWaitMs == null ? '–' : <Elapsed ms={activity.oldestWaitMs} isRunning />}
      </td>
      <td class="number">{show(activity?.running)}</td>
      <td class="number">{show(activity?.jobsPerSecond)}</td>
      <td>{activity && isFirst && <LastHour id={id} />}</td>
      <td class="number">
        {activity && activity.failedLastHour > 0 ? (
          <a href={hrefOf(`${pathOf(id)}/jobs?status=FAILED`)}>{show(activity.failedLastHour)}</a>
        ) : (
          show(activity?.failedLastHour)
        )}
      </td>
      <td class="number">
        {show(activity && countWorkers(activity.workers))}
        {activity && activity.workers.parked > 0 && (
          <small class="reason">{activity.workers.parked.toLocaleString()} parked</small>
        )}
      </td>
    </tr>
  );
}

function countWorkers({ draining, idle, running, starting }: Workers): number {
  return draining + idle + running + starting;
}

type Workers = NonNullable<ShownEndpoint['activity']>['workers'];

/** For a key that may see no endpoint in lists, such as one that may only submit jobs. */
function OpenById() {
  const field = useId();
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    go(pathOf(String(new FormData(event.currentTarget).get('endpoint')).trim()));
  };
  const bound = listBoundEndpoints();
  return (
    <>
      {bound.length > 0 && (
        <ul class="links">
          {bound.map((endpoint) => (
            <li key={endpoint}>
              <a href={hrefOf(pathOf(endpoint))}>{endpoint}</a>
            </li>
          ))}
        </ul>
      )}
      <form class="form-actions" onSubmit={open}>
        <label for={field}>Endpoint</label>
        <input id={field} name="endpoint" type="text" required placeholder="ID or name" />
        <button type="submit">Open</button>
      </form>
      <p class="muted">
        This key may not list endpoints. A key with the scope <code>endpoints:read</code> or{' '}
        <code>jobs:read</code> shows them.
      </p>
    </>
  );
}

/** Without one, the platform starts no workers. */
function hasEngine(): boolean {
  const state = sessionState.read();
  return state.kind === 'open' && state.session.platform.engine !== null;
}

function show(count: number | undefined): string {
  return count === undefined ? '–' : count.toLocaleString(undefined, { maximumFractionDigits: 1 });
}

function NoEndpoints() {
  const state = sessionState.read();
  const isDev = state.kind === 'open' && state.session.platform.isDev;
  return isDev ? (
    <Empty title="No endpoints yet" command="millrace init my-handler">
      Add a handler file to the folder that millrace dev serves, or create a project:
    </Empty>
  ) : (
    <Empty title="No endpoints yet" command="millrace deploy handler.ts">
      An endpoint is a queue with workers. Deploy a handler to create one:
    </Empty>
  );
}
