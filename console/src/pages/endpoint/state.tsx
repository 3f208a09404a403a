// The state of one endpoint: its counts, what waits and why, its workers, and the scaler's decisions.
import type { WaitReason } from '../../../../src/client.ts';
import { Block } from '../../parts/block.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { Time } from '../../parts/time.tsx';
import { may } from '../../platform/session.ts';
import type { PageProps } from '../../routing/routes.ts';
import { Charts } from './charts.tsx';
import { Decisions } from './decisions.tsx';
import { EndpointFrame, type EndpointState, LoadProblem, useEndpointState } from './frame.tsx';
import { PauseAction, PausedGroups } from './pauses.tsx';
import { RolloutState } from './rollout-state.tsx';
import { RunningJobs } from './running-jobs.tsx';
import { Workers } from './workers.tsx';

export function Page({ parameters: { endpoint: id = '' } }: PageProps) {
  const polled = useEndpointState(id);
  const state = polled.data ?? undefined;
  const isQueue = state?.endpoint.type === 'QUEUE';
  const isManaged = state !== undefined && state.endpoint.templateId !== null;
  return (
    <EndpointFrame
      id={id}
      tab=""
      endpoint={state?.endpoint}
      state={state?.activity?.state}
      actions={isQueue && state.health && <PauseAction id={id} health={state.health} />}
    >
      <LoadProblem polled={polled} />
      {state && <Counts state={state} />}
      {state?.endpoint.rollout?.state === 'FAILED' && (
        <RolloutState rollout={state.endpoint.rollout} />
      )}
      {state?.activity?.waitReason && <Waits reason={state.activity.waitReason} />}
      {state?.health && (state.health.pausedGroups ?? 0) > 0 && <PausedGroups id={id} />}
      {state?.health && <Charts id={id} isPriced={isManaged} />}
      {isManaged && may('pods:read') && (
        <Workers id={id} canStart={state.endpoint.workersMax > 0} />
      )}
      {isManaged && state.endpoint.workersMinChanges.length > 0 && (
        <MinimumChanges changes={state.endpoint.workersMinChanges} />
      )}
      {isManaged && <Decisions id={id} />}
      {state && !isManaged && <Unmanaged state={state} />}
      {state && !isManaged && may('jobs:read', id) && <RunningJobs id={id} />}
    </EndpointFrame>
  );
}

function Waits({ reason: { message, until } }: { reason: WaitReason }) {
  return (
    <section class="note">
      <h2>Why jobs wait</h2>
      <p>
        {message}{' '}
        {until !== undefined && (
          <span class="muted">
            (next attempt <Time at={until} />)
          </span>
        )}
      </p>
    </section>
  );
}

function MinimumChanges({ changes }: { changes: { at: string; workersMin: number }[] }) {
  return (
    <section class="note">
      <h2>Next changes of the minimum of workers</h2>
      <ul>
        {changes.map(({ at, workersMin }) => (
          <li key={at}>
            {workersMin} from <Time as="clock" at={at} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Counts({ state: { health } }: { state: EndpointState }) {
  if (!health) return null;
  const { jobs, workers } = health;
  const connected = workers.idle + workers.running;
  const count = (value: number) => value.toLocaleString();
  const parked = workers.parked === undefined ? '' : `, ${count(workers.parked)} parked`;
  return (
    <Figures
      figures={[
        { name: 'Queued', value: count(jobs.inQueue) },
        { name: 'Running', value: count(jobs.inProgress) },
        { name: 'Completed', value: count(jobs.completed) },
        { name: 'Failed', value: count(jobs.failed), isBad: jobs.failed > 0 },
        { name: 'Retried', value: count(jobs.retried) },
        {
          name: 'Workers',
          value: count(connected),
          note: `${count(workers.running)} busy, ${count(workers.idle)} idle${parked}`,
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
