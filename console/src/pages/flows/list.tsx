// The flows of an endpoint, the newest first.
import type { FlowSummary } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { Id } from '../../parts/copy.tsx';
import { Meter } from '../../parts/figures/meter.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { List } from '../../parts/list/list.tsx';
import { Pager, usePages } from '../../parts/list/pager.tsx';
import { Elapsed, Time } from '../../parts/time.tsx';
import { usePolled } from '../../platform/polling.ts';
import { hrefOf } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { EndpointFrame, useEndpoint } from '../endpoint/frame.tsx';
import { listFlows, pathOfFlow } from './calls.ts';
import { describeFlow } from './states.ts';

const EVERY_MS = 3_000;

const COLUMNS = [
  { name: 'Flow' },
  { name: 'Status' },
  { name: 'Jobs that have ended' },
  { name: 'Failed', isNumber: true },
  { name: 'Submitted' },
  { name: 'Time', isNumber: true },
];

export function Page({ parameters: { endpoint = '' } }: PageProps) {
  const { data: record } = useEndpoint(endpoint);
  const pages = usePages();
  const { cursor } = pages;
  const polled = usePolled({
    key: `flows ${endpoint} ${cursor}`,
    load: (signal) => listFlows(endpoint, { cursor, signal }),
    // Later pages stay as they are, so that rows do not move while they are read.
    everyMs: cursor === undefined ? EVERY_MS : null,
  });
  return (
    <EndpointFrame id={endpoint} tab="flows" endpoint={record ?? undefined}>
      <List
        label="Flows"
        columns={COLUMNS}
        polled={{ ...polled, data: polled.data?.flows }}
        row={(flow) => <Row key={flow.id} endpoint={endpoint} flow={flow} />}
        empty={
          <Empty
            title="No flows yet"
            command={`millrace flows submit --endpoint ${endpoint} --file flow.json`}
          >
            A flow is a graph of jobs that one request submits. The platform keeps its record for a
            day. Submit one:
          </Empty>
        }
      />
      <Pager pages={pages} next={polled.data?.cursor} />
    </EndpointFrame>
  );
}

function Row({ endpoint, flow }: { endpoint: string; flow: FlowSummary }) {
  const { counts, createdAt, endedAt, id, total } = flow;
  return (
    <tr>
      <th scope="row" class="nowrap">
        <Id id={id} href={hrefOf(pathOfFlow({ endpoint, id }))} />
      </th>
      <td>
        <Badge {...describeFlow(flow)} />
      </td>
      <td>
        <Meter label={`Ended jobs of ${id}`} used={total - counts.open} limit={total} isGoal />
      </td>
      <td class="number">{counts.failed + counts.timedOut + counts.removed}</td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
      <td class="number">
        <Elapsed ms={(endedAt ?? Date.now()) - createdAt} isRunning={endedAt === null} />
      </td>
    </tr>
  );
}
