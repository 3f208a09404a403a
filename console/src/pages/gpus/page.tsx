// The GPUs of all machines as tiles: who holds each, and how busy it is. Below, the parked workers and those that wait.
import type { NodeRecord, PodRecord } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { sayBytes } from '../../parts/bytes.ts';
import { Empty } from '../../parts/list/empty.tsx';
import { RecordName } from '../../parts/list/record-cells.tsx';
import { Table } from '../../parts/list/table.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { findPodTone, sayPodStatus } from '../../parts/pod-status.ts';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { hrefOf } from '../../routing/location.ts';
import { LoadProblem, pathOf } from '../endpoint/frame.tsx';
import { loadOverview } from '../endpoint/overview-rows.ts';

type Gpu = NonNullable<NodeRecord['machine']>['gpus'][number];

const COLUMNS = [
  { name: 'Worker or pod' },
  { name: 'Endpoint' },
  { name: 'GPUs' },
  { name: 'State' },
];

const WAITING = [{ name: 'Endpoint' }, { name: 'Queued', isNumber: true }, { name: 'Why' }];

export function Page() {
  const polled = usePolled({
    key: 'gpus',
    load: async (signal) => {
      const [{ nodes }, pods, endpoints] = await Promise.all([
        platform.nodes.list({ signal }),
        platform.pods.page({ limit: 1_000, signal }),
        loadOverview(signal),
      ]);
      return { nodes, pods: pods.items, endpoints };
    },
    everyMs: 3_000,
  });
  const nameOf = useEndpointNames();
  const { endpoints = [], nodes = [], pods = [] } = polled.data ?? {};
  const machines = nodes.flatMap(({ id, machine, name }) => {
    const gpus = machine?.gpus ?? [];
    return gpus.length > 0 ? [{ id, name: name ?? id, gpus }] : [];
  });
  const ofGpus = pods.filter(({ gpu, status }) => gpu && status !== 'TERMINATED');
  const held = new Set(machines.flatMap(({ gpus }) => gpus.map(({ podId }) => podId)));
  const rest = ofGpus.filter(({ id, status }) => !held.has(id) && status !== 'EXITED');
  const waiting = endpoints.filter(
    ({ activity, record }) => activity?.waitReason && (record?.gpuTypeIds ?? []).length > 0,
  );
  return (
    <>
      <PageHead title="GPUs" />
      <LoadProblem polled={polled} />
      {polled.data && machines.length === 0 && (
        <Empty title="No machine has a GPU" command="millrace doctor">
          Check what this machine has:
        </Empty>
      )}
      {machines.map(({ gpus, id, name }) => (
        <section key={id} aria-label={`GPUs of ${name}`}>
          <h2>{name}</h2>
          <ul class="tiles">
            {gpus.map((gpu) => {
              const pod = ofGpus.find((each) => each.id === gpu.podId);
              // Utilization is told in the order of the pod's GPUs.
              const at = gpus.filter(({ podId }) => podId === gpu.podId).indexOf(gpu);
              return <Tile key={gpu.uuid} {...{ gpu, pod, at, nameOf }} />;
            })}
          </ul>
        </section>
      ))}
      {waiting.length > 0 && (
        <section>
          <h2>Jobs that wait</h2>
          <Table label="Endpoints whose jobs wait" columns={WAITING}>
            {waiting.map(({ activity, id, name }) => (
              <tr key={id}>
                <RecordName id={id} name={name} href={hrefOf(pathOf(id))} />
                <td class="number">{activity?.waiting.toLocaleString()}</td>
                <td>{activity?.waitReason?.message}</td>
              </tr>
            ))}
          </Table>
        </section>
      )}
      {rest.length > 0 && (
        <section>
          <h2>Without a GPU</h2>
          <Table label="Parked and waiting" columns={COLUMNS}>
            {rest.map((pod) => (
              <tr key={pod.id}>
                <RecordName id={pod.id} name={pod.name} href={hrefOf(`/pods/${pod.id}`)} />
                <td>{pod.endpointId === null ? '–' : nameOf(pod.endpointId)}</td>
                <td>{pod.gpu && `${pod.gpu.count} × ${pod.gpu.id}`}</td>
                <td>
                  <Badge text={sayPodStatus(pod)} tone={findPodTone(pod)} />
                  {pod.parked && (
                    <small class="reason">
                      <Time at={pod.parked.since} />, with {sayBytes(pod.parked.bytes)} in the
                      memory of the host
                    </small>
                  )}
                  {pod.reason && <small class="reason">{pod.reason}</small>}
                </td>
              </tr>
            ))}
          </Table>
        </section>
      )}
    </>
  );
}

interface TileProps {
  gpu: Gpu;
  /** Undefined: the GPU is free, or another user has it. */
  pod: PodRecord | undefined;
  /** Place of the GPU among those of the pod. */
  at: number;
  nameOf: (endpoint: string) => string;
}

function Tile({ at, gpu: { memoryGb, name, podId, uuid }, nameOf, pod }: TileProps) {
  const used = pod?.runtime?.gpus?.[at];
  return (
    <li class={podId === null ? 'tile free' : 'tile'} title={uuid}>
      <strong>{name}</strong>
      <span class="muted">{memoryGb} GB</span>
      {podId === null ? (
        <span>Free</span>
      ) : (
        <a href={hrefOf(`/pods/${podId}`)}>{pod?.name ?? podId}</a>
      )}
      {pod && pod.endpointId !== null && (
        <a href={hrefOf(pathOf(pod.endpointId))}>{nameOf(pod.endpointId)}</a>
      )}
      {pod && <Badge text={sayPodStatus(pod)} tone={findPodTone(pod)} />}
      {used && (
        <>
          <Share label={`Use of ${uuid}`} percent={used.util} unit="busy" />
          <Share label={`Memory of ${uuid}`} percent={used.memoryUtil} unit="of the memory" />
        </>
      )}
    </li>
  );
}

function Share({ label, percent, unit }: { label: string; percent: number; unit: string }) {
  return (
    <span class="measure">
      <meter aria-label={label} value={percent} max={100} />
      {percent} % {unit}
    </span>
  );
}
