// All pods: those of workers, and those that users created.
import { useState } from 'preact/hooks';
import type { PodRecord } from '../../../../src/client.ts';
import { RESOURCES } from '../../../../src/wire/routes/routes.ts';
import { Badge } from '../../parts/badge.tsx';
import { CreateButton } from '../../parts/forms/create-button.tsx';
import { useOpenedForm } from '../../parts/forms/opened-form.ts';
import { RecordForm } from '../../parts/forms/record-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { RecordName } from '../../parts/list/record-cells.tsx';
import { Table } from '../../parts/list/table.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { findPodTone, sayDevice, sayPodStatus, sayUsd } from '../../parts/pod-status.ts';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { may, sessionState } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import { hrefOf } from '../../routing/location.ts';
import { LoadProblem, pathOf } from '../endpoint/frame.tsx';

const COLUMNS = [
  { name: 'Pod' },
  { name: 'Status' },
  { name: 'Endpoint' },
  { name: 'Device' },
  { name: 'Per hour', isNumber: true },
  { name: 'Created' },
];

export function Page() {
  const [withEnded, setWithEnded] = useState(false);
  const [search, setSearch] = useState('');
  const nameOf = useEndpointNames();
  const state = sessionState.read();
  const hasEngine = state.kind === 'open' && state.session.platform.engine !== null;
  const polled = usePolled({
    key: 'pods',
    load: async (signal) =>
      hasEngine ? (await platform.pods.page({ limit: 1_000, signal })).items : [],
    everyMs: 3_000,
    live: hasEngine ? liveFrom([TOPICS.pods()], ({ pods }) => pods) : undefined,
  });
  const { form, open, opened } = useOpenedForm<never>(polled.reload);
  const wanted = search.trim().toLowerCase();
  const shown = (polled.data ?? [])
    .filter(({ status }) => withEnded || status !== 'TERMINATED')
    .filter(({ id, name }) => `${name} ${id}`.toLowerCase().includes(wanted));
  return (
    <>
      <PageHead title="Pods">
        <label class="check">
          <input type="checkbox" checked={withEnded} onChange={() => setWithEnded(!withEnded)} />{' '}
          Show terminated
        </label>
        <input
          type="search"
          aria-label="Find a pod"
          placeholder="Find a pod (/)"
          value={search}
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        {hasEngine && may('pods:write') && (
          <CreateButton label="Create a pod" isOpen={opened === 'new'} onOpen={() => open('new')} />
        )}
      </PageHead>
      {opened && (
        <RecordForm
          label="Create a pod"
          method="POST"
          path={RESOURCES.pods.path}
          initial={{
            name: 'notebook',
            image: 'registry.example.com/notebook:1',
            ports: ['8888/http'],
            cpu: { id: 'cpu', vcpuCount: 2, memory: 4 },
          }}
          {...form}
        />
      )}
      <LoadProblem polled={polled} />
      {!hasEngine && (
        <Empty title="The platform has no engine" command="millrace serve --engine process">
          Without one, it starts no containers. Start it with an engine:
        </Empty>
      )}
      {hasEngine && polled.data && shown.length === 0 && (
        <Empty title="No pods" command="millrace pods create --help">
          The platform creates pods for the workers of endpoints. Create one of your own:
        </Empty>
      )}
      {shown.length > 0 && (
        <Table label="Pods" columns={COLUMNS}>
          {shown.map((pod) => (
            <Row key={pod.id} pod={pod} nameOf={nameOf} />
          ))}
        </Table>
      )}
    </>
  );
}

function Row({ nameOf, pod }: { pod: PodRecord; nameOf: (id: string) => string }) {
  const { cost, createdAt, endpointId, id, name, reason } = pod;
  return (
    <tr>
      <RecordName id={id} name={name} href={hrefOf(`/pods/${id}`)} />
      <td>
        <Badge text={sayPodStatus(pod)} tone={findPodTone(pod)} />
        {reason && <small class="reason">{reason}</small>}
      </td>
      <td>{endpointId ? <a href={hrefOf(pathOf(endpointId))}>{nameOf(endpointId)}</a> : '–'}</td>
      <td>{sayDevice(pod)}</td>
      <td class="number">{sayUsd(cost)}</td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
    </tr>
  );
}
