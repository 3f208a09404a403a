// The pods that are workers of an endpoint.
import type { PodRecord } from '../../../../src/client.ts';
import { Badge } from '../../parts/badge.tsx';
import { RecordName } from '../../parts/list/record-cells.tsx';
import { Table } from '../../parts/list/table.tsx';
import { findPodTone, sayDevice, sayPodStatus, sayUsd } from '../../parts/pod-status.ts';
import { Problem } from '../../parts/problem.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import { hrefOf } from '../../routing/location.ts';
import { JobLinks, useRunningJobs } from './running-jobs.tsx';

const COLUMNS = [
  { name: 'Worker' },
  { name: 'Status' },
  { name: 'Runs now' },
  { name: 'Device' },
  { name: 'Per hour', isNumber: true },
  { name: 'Started' },
];

export function Workers({ id, canStart }: { id: string; canStart: boolean }) {
  const { data, error } = usePolled({
    key: `workers ${id}`,
    load: (signal) => listWorkers(id, signal),
    everyMs: 3_000,
    live: liveFrom([TOPICS.pods()], ({ pods }) => pods.filter((pod) => isWorkerOf(pod, id))),
  });
  const running = useRunningJobs(id);
  const pods = data ?? [];
  const cost = pods.reduce((sum, pod) => sum + pod.cost, 0);
  return (
    <section>
      <h2>Workers</h2>
      {error && !data && <Problem error={error} />}
      {data && pods.length === 0 && (
        <p class="muted">
          {canStart
            ? 'No workers. One starts when a job arrives.'
            : 'No workers. The maximum is 0: the endpoint is switched off.'}
        </p>
      )}
      {pods.length > 0 && <p class="muted">Total {sayUsd(cost)}/h</p>}
      {pods.length > 0 && (
        <Table label="Workers" columns={COLUMNS}>
          {pods.map((pod) => (
            <tr key={pod.id}>
              <RecordName id={pod.id} name={pod.name} href={hrefOf(`/pods/${pod.id}`)} />
              <td>
                <Badge text={sayPodStatus(pod)} tone={findPodTone(pod)} />
                {pod.reason && <small class="reason">{pod.reason}</small>}
              </td>
              <td>
                <JobLinks endpoint={id} jobs={running?.get(pod.id) ?? []} />
              </td>
              <td>{sayDevice(pod)}</td>
              <td class="number">{sayUsd(pod.cost)}</td>
              <td>{pod.startedAt ? <Time at={pod.startedAt} /> : '–'}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

async function listWorkers(endpoint: string, signal: AbortSignal): Promise<PodRecord[]> {
  const found: PodRecord[] = [];
  for await (const pod of platform.pods.list({ pageSize: 1_000, signal })) {
    if (isWorkerOf(pod, endpoint)) found.push(pod);
  }
  return found;
}

function isWorkerOf({ endpointId, status }: PodRecord, endpoint: string): boolean {
  return endpointId === endpoint && status !== 'TERMINATED';
}
