// The state of one endpoint: its counts, what waits and why, its workers, and the scaler's decisions.
import { Block } from '../../parts/block.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { may } from '../../platform/session.ts';
import type { PageProps } from '../../routing/routes.ts';
import { Charts } from './charts.tsx';
import { Decisions } from './decisions.tsx';
import { EndpointFrame, LoadProblem, useEndpointState } from './frame.tsx';
import { RunningJobs } from './running-jobs.tsx';
import type { EndpointState } from './states.ts';
import { Waits } from './waits.tsx';
import { Workers } from './workers.tsx';

export function Page({ parameters: { endpoint: id = '' } }: PageProps) {
  const polled = useEndpointState(id);
  const state = polled.data ?? undefined;
  const isManaged = state !== undefined && state.endpoint.templateId !== null;
  return (
    <EndpointFrame id={id} tab="" endpoint={state?.endpoint} state={state}>
      <LoadProblem polled={polled} />
      {state && <Counts state={state} />}
      {state?.health && state.health.jobs.inQueue > 0 && <Waits id={id} />}
      {state?.health && <Charts id={id} isPriced={isManaged} />}
      {isManaged && may('pods:read') && <Workers id={id} />}
      {isManaged && <Decisions id={id} />}
      {state && !isManaged && <Unmanaged state={state} />}
      {state && !isManaged && may('jobs:read', id) && <RunningJobs id={id} />}
    </EndpointFrame>
  );
}

function Counts({ state: { health } }: { state: EndpointState }) {
  if (!health) return null;
  const { jobs, workers } = health;
  const connected = workers.idle + workers.running;
  const count = (value: number) => value.toLocaleString();
  return (
    <Figures
      figures={[
        { name: 'Waiting', value: count(jobs.inQueue) },
        { name: 'Running', value: count(jobs.inProgress) },
        { name: 'Completed', value: count(jobs.completed) },
        { name: 'Failed', value: count(jobs.failed), isBad: jobs.failed > 0 },
        { name: 'Retried', value: count(jobs.retried) },
        {
          name: 'Workers',
          value: count(connected),
          note: `${count(workers.running)} busy, ${count(workers.idle)} idle`,
        },
      ]}
    />
  );
}

function Unmanaged({ state: { endpoint, health } }: { state: EndpointState }) {
  const hasWorkers = health && health.workers.idle + health.workers.running > 0;
  return (
    <section>
      <h2>Workers</h2>
      <p class="muted">
        The platform starts no workers for this endpoint: it was declared when the platform started.
        {!hasWorkers && ' Start one:'}
      </p>
      {!hasWorkers && (
        <Block
          label="Command"
          text={`millrace worker handler.ts --url ${location.origin} --endpoint ${endpoint.id}`}
        />
      )}
    </section>
  );
}
