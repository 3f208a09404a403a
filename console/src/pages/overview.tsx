// The endpoints that the session's key may see, those in trouble first.
import { useId, useState } from 'preact/hooks';
import { RESOURCES } from '../../../src/wire/routes.ts';
import { Badge } from '../parts/badge.tsx';
import { CreatePanel } from '../parts/create-panel.tsx';
import { Empty } from '../parts/empty.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Problem } from '../parts/problem.tsx';
import { Table } from '../parts/table.tsx';
import { platform } from '../platform/calls.ts';
import { usePolled } from '../platform/polling.ts';
import { listBoundEndpoints, may, mayAnywhere, sessionState } from '../platform/session.ts';
import { go, hrefOf } from '../routing/location.ts';
import { pathOf } from './endpoint/frame.tsx';
import { type EndpointState, judge, loadStates, sortByTrouble } from './endpoint/states.ts';

const EVERY_MS = 2_000;

const COLUMNS = [
  { name: 'Endpoint' },
  { name: 'State' },
  { name: 'Waiting', isNumber: true },
  { name: 'Running', isNumber: true },
  { name: 'Completed', isNumber: true },
  { name: 'Failed', isNumber: true },
  { name: 'Workers', isNumber: true },
];

export function Page() {
  return may('endpoints:read') ? <AllEndpoints /> : <SomeEndpoints />;
}

/** For a key that may not list endpoints: those that it names, and any other by its ID. */
function SomeEndpoints() {
  const bound = listBoundEndpoints();
  const field = useId();
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    go(pathOf(String(new FormData(event.currentTarget).get('endpoint')).trim()));
  };
  return (
    <>
      <PageHead title="Overview" />
      {bound.length > 0 && (
        <ul class="links">
          {bound.map((endpoint) => (
            <li key={endpoint}>
              <a href={hrefOf(pathOf(endpoint))}>{endpoint}</a>
            </li>
          ))}
        </ul>
      )}
      {mayAnywhere('jobs:read') && bound.length === 0 && (
        <form class="form-actions" onSubmit={open}>
          <label for={field}>Endpoint</label>
          <input id={field} name="endpoint" type="text" required placeholder="ID or name" />
          <button type="submit">Open</button>
        </form>
      )}
      <p class="muted">
        This key may not list endpoints. A key with the scope <code>endpoints:read</code> shows all
        of them.
      </p>
    </>
  );
}

function AllEndpoints() {
  const [search, setSearch] = useState('');
  const { data, error, reload } = usePolled({
    key: 'overview',
    load: async (signal) =>
      loadStates((await platform.endpoints.page({ limit: 1_000, signal })).items, signal),
    everyMs: EVERY_MS,
  });
  const wanted = search.trim().toLowerCase();
  const shown = sortByTrouble(data ?? []).filter(({ endpoint: { id, name } }) =>
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
      </PageHead>
      {hasEngine() && may('endpoints:write') && (
        <CreatePanel
          label="Create an endpoint"
          path={RESOURCES.endpoints.path}
          example={{ name: 'my-model', templateId: 'my-model', workersMin: 0, workersMax: 3 }}
          onCreated={reload}
        />
      )}
      {error && !data && <Problem error={error} onRetry={reload} />}
      {data && data.length === 0 && <NoEndpoints />}
      {shown.length > 0 && (
        <Table label="Endpoints" columns={COLUMNS}>
          {shown.map((state) => (
            <Row key={state.endpoint.id} state={state} />
          ))}
        </Table>
      )}
      {data && data.length > 0 && shown.length === 0 && (
        <Empty title={`No endpoint matches “${search}”`} />
      )}
    </>
  );
}

function Row({ state }: { state: EndpointState }) {
  const { endpoint, health } = state;
  const { text, title, tone } = judge(state);
  const { id, name } = endpoint;
  return (
    <tr>
      <th scope="row">
        <a href={hrefOf(`/endpoints/${encodeURIComponent(id)}`)}>{name}</a>
        {name !== id && <small class="mono">{id}</small>}
      </th>
      <td>
        <Badge text={text} tone={tone} title={title} />
      </td>
      <td class="number">{show(health?.jobs.inQueue)}</td>
      <td class="number">{show(health?.jobs.inProgress)}</td>
      <td class="number">{show(health?.jobs.completed)}</td>
      <td class="number">{show(health?.jobs.failed)}</td>
      <td class="number">{show(health && health.workers.idle + health.workers.running)}</td>
    </tr>
  );
}

/** Without one, the platform starts no workers. */
function hasEngine(): boolean {
  const state = sessionState.read();
  return state.kind === 'open' && state.session.platform.engine !== null;
}

function show(count: number | undefined): string {
  return count === undefined ? '–' : count.toLocaleString();
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
