// The bill: what pods, endpoints and network volumes cost, by hour or day and by resource, and the budgets.
import { useState } from 'preact/hooks';
import type { BillingRecord } from '../../../../src/client.ts';
import { Id } from '../../parts/copy.tsx';
import { Chart } from '../../parts/figures/chart.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { Table } from '../../parts/list/table.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { sayDuration } from '../../parts/time.tsx';
import { usePolled } from '../../platform/polling.ts';
import { isOperator } from '../../platform/session.ts';
import { hrefOf } from '../../routing/location.ts';
import { LoadProblem, pathOf } from '../endpoint/frame.tsx';
import { type Bill, type BillChoice, KINDS, RANGES, readBill } from './bill.ts';
import { Budgets } from './budgets.tsx';

const [DAY] = RANGES;

export function Page() {
  const [choice, setChoice] = useState<BillChoice>({
    range: DAY,
    kind: undefined,
    userId: undefined,
  });
  const { kind, range, userId } = choice;
  const polled = usePolled({
    key: `bill ${range.name} ${kind} ${userId}`,
    load: (signal) => readBill(choice, signal),
    everyMs: 15_000,
  });
  const { data } = polled;
  return (
    <>
      <PageHead title="Billing">
        <Choices choice={choice} onChoose={setChoice} />
      </PageHead>
      <LoadProblem polled={polled} />
      {data && <Amounts bill={data} choice={choice} />}
      <Budgets />
    </>
  );
}

interface ChoicesProps {
  choice: BillChoice;
  onChoose: (choice: BillChoice) => void;
}

function Choices({ choice, onChoose }: ChoicesProps) {
  const kinds = Object.entries(KINDS);
  const findKind = (value: string) =>
    (['pod', 'endpoint', 'volume'] as const).find((kind) => kind === value);
  return (
    <>
      <select
        aria-label="Time"
        value={choice.range.name}
        onChange={({ currentTarget: { value } }) => {
          onChoose({ ...choice, range: RANGES.find(({ name }) => name === value) ?? DAY });
        }}
      >
        {RANGES.map(({ name }) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <select
        aria-label="Kind"
        value={choice.kind ?? ''}
        onChange={({ currentTarget: { value } }) => {
          onChoose({ ...choice, kind: findKind(value) });
        }}
      >
        <option value="">All resources</option>
        {kinds.map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
      {isOperator() && (
        <select
          aria-label="Users"
          value={choice.userId ?? ''}
          onChange={({ currentTarget: { value } }) => {
            onChoose({ ...choice, userId: value || undefined });
          }}
        >
          <option value="">Your own</option>
          <option value="*">All users</option>
        </select>
      )}
    </>
  );
}

function Amounts({ bill, choice }: { bill: Bill; choice: BillChoice }) {
  const { costs, isCut, resources, times, total } = bill;
  const { range, userId } = choice;
  if (resources.length === 0) {
    return (
      <Empty title="Nothing ran in this time" command="millrace billing --help">
        The bill has a pod or an endpoint from the start of its first container, and a network
        volume from its creation if its data center has a price for it.
      </Empty>
    );
  }
  return (
    <>
      <Figures
        figures={[
          { name: 'Total, USD', value: <output aria-label="Total, USD">{total.cost}</output> },
          { name: 'Time', value: sayDuration(total.seconds * 1_000) },
          {
            name: 'GPU time',
            value: total.gpuSeconds === 0 ? '–' : sayDuration(total.gpuSeconds * 1_000),
          },
          { name: 'GPU time with jobs', value: sayShare(total) },
        ]}
      />
      <section>
        <Chart
          title={range.step === 'hour' ? 'USD by hour' : 'USD by day (UTC)'}
          look="bars"
          zone={range.step === 'day' ? 'UTC' : undefined}
          times={times}
          format={sayUsd}
          lines={[
            {
              name: range.step === 'hour' ? 'This hour' : 'Today',
              color: '--accent',
              values: costs,
            },
          ]}
        />
      </section>
      <section>
        <h2>Resources</h2>
        <Resources records={resources} withUser={userId === '*'} />
        {isCut && (
          <p class="muted">
            The list has the {resources.length} resources with the highest cost. The total has all.
            <br />
            <code>millrace billing</code> lists the others.
          </p>
        )}
      </section>
    </>
  );
}

/** The share of the GPU time in which jobs ran. */
function sayShare({ busyGpuSeconds, gpuSeconds }: Bill['total']): string {
  if (gpuSeconds === 0) return '–';
  const share = busyGpuSeconds / gpuSeconds;
  return share.toLocaleString(undefined, { style: 'percent', maximumFractionDigits: 1 });
}

function sayUsd(value: number): string {
  return value.toLocaleString(undefined, { maximumSignificantDigits: 4 });
}

const COLUMNS = [
  { name: 'Resource' },
  { name: 'Kind' },
  { name: 'Time', isNumber: true },
  { name: 'GPU time', isNumber: true },
  { name: 'With jobs', isNumber: true },
  { name: 'USD', isNumber: true },
];

function Resources({
  records,
  withUser,
}: {
  records: readonly BillingRecord[];
  withUser: boolean;
}) {
  const columns = withUser
    ? [...COLUMNS.slice(0, 2), { name: 'User' }, ...COLUMNS.slice(2)]
    : COLUMNS;
  return (
    <Table label="Costs of resources" columns={columns}>
      {records.map((record) => (
        <tr key={`${record.kind} ${record.id}`}>
          <th scope="row">
            <Name record={record} />
            {record.name && record.id && record.id !== record.name && (
              <small>
                <Id id={record.id} />
              </small>
            )}
          </th>
          <td>{record.kind && KINDS[record.kind].replace(/s$/, '')}</td>
          {withUser && <td>{record.userId ?? '–'}</td>}
          <td class="number">{sayDuration(record.seconds * 1_000)}</td>
          <td class="number">
            {record.gpuSeconds === 0 ? '–' : sayDuration(record.gpuSeconds * 1_000)}
          </td>
          <td class="number">{record.kind === 'endpoint' ? sayShare(record) : '–'}</td>
          <td class="number">{record.cost}</td>
        </tr>
      ))}
    </Table>
  );
}

/** The bill outlives its resources, whose pages then say so. */
function Name({ record: { id, kind, name } }: { record: BillingRecord }) {
  if (id === null) return <>–</>;
  const path = { pod: `/pods/${id}`, endpoint: pathOf(id), volume: '/network-volumes' };
  return kind ? <a href={hrefOf(path[kind])}>{name ?? id}</a> : (name ?? id);
}
