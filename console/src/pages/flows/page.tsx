// One flow: the drawing of its graph, its jobs as a table, and what can be done with all of them.
import { Badge } from '../../parts/badge.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Elapsed, Time } from '../../parts/time.tsx';
import { useEndpointNames } from '../../platform/endpoint-names.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import type { PageProps } from '../../routing/routes.ts';
import { LoadProblem, pathOf } from '../endpoint/frame.tsx';
import { changeFlow, readFlow } from './calls.ts';
import { Drawing } from './drawing.tsx';
import { allowsAction, type FlowAction, FlowJobs } from './flow-jobs.tsx';
import { countStates, describeFlow, describeState } from './states.ts';

const EVERY_MS = 2_000;

export function Page({ parameters: { endpoint = '', flow: id = '' } }: PageProps) {
  const key = { endpoint, id };
  const polled = usePolled({
    key: `flow ${endpoint} ${id}`,
    load: (signal) => readFlow(key, signal),
    everyMs: EVERY_MS,
    live: liveFrom([TOPICS.flow(endpoint, id)], (flow) => flow),
  });
  const { data, reload } = polled;
  const nameOf = useEndpointNames();
  const path = pathOf(endpoint);
  const mayChange = data?.jobs.every((job) => may('jobs:write', job.endpoint));
  const act = async (action: FlowAction, names?: readonly string[]) => {
    await changeFlow(action, key, names);
    reload();
  };
  const allows = (action: FlowAction) => data?.jobs.some((job) => allowsAction(action, job));
  return (
    <>
      <PageHead
        title="Flow"
        id={id}
        tab={id.slice(-12)}
        crumbs={[
          { name: 'Overview', path: '/' },
          { name: nameOf(endpoint), path },
          { name: 'Flows', path: `${path}/flows` },
        ]}
        badge={data && <Badge {...describeFlow(data)} />}
      >
        {mayChange && allows('retry') && (
          <Confirm
            label="Retry all failed"
            question="Queue the failed and skipped jobs again?"
            act={() => act('retry')}
          />
        )}
        {mayChange && allows('cancel') && (
          <Confirm
            label="Cancel all"
            question="Cancel the jobs of the flow that have not ended?"
            isDangerous
            act={() => act('cancel')}
          />
        )}
      </PageHead>
      <LoadProblem polled={polled} />
      {data && (
        <>
          <Figures
            figures={[
              {
                name: 'Time',
                value: (
                  <Elapsed
                    ms={(data.endedAt ?? Date.now()) - data.createdAt}
                    isRunning={data.endedAt === null}
                  />
                ),
                note: `${data.total.toLocaleString()} ${data.total === 1 ? 'job' : 'jobs'}`,
              },
              ...countStates(data.jobs).map(({ count, state }) => ({
                name: describeState(state).text,
                value: count.toLocaleString(),
                isBad: describeState(state).tone === 'bad',
              })),
            ]}
          />
          <Drawing key={id} jobs={data.jobs} />
          <FlowJobs jobs={data.jobs} nameOf={nameOf} act={mayChange ? act : undefined} />
          <p class="muted">
            Submitted <Time at={data.createdAt} />
          </p>
        </>
      )}
    </>
  );
}
