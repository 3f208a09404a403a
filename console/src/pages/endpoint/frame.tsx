// What all pages of one endpoint share: its name, its state, and the tabs between them.
import type { ComponentChildren } from 'preact';
import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointHealth, EndpointRecord } from '../../../../src/client.ts';
import type { EndpointOverview } from '../../../../src/wire/resources/activity.ts';
import { ACTIVITY_ROUTES, JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { Badge } from '../../parts/badge.tsx';
import { PageHead, type Tab, Tabs } from '../../parts/page-head.tsx';
import { Problem } from '../../parts/problem.tsx';
import { caller, platform } from '../../platform/calls.ts';
import { type Live, type Polled, usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import { judge } from './states.ts';

const RECORD_EVERY_MS = 3_000;

/** Counts and activity are missing if the key may not read jobs. */
export interface EndpointState {
  endpoint: EndpointRecord;
  health: EndpointHealth | undefined;
  activity: EndpointOverview | undefined;
}

interface FrameProps {
  id: string;
  /** Path of the tab below the endpoint's: `jobs`. */
  tab: string;
  /** Undefined until it is known, or if the key may not read it. */
  endpoint: EndpointRecord | undefined;
  state?: EndpointOverview['state'] | undefined;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

export function EndpointFrame({ actions, children, endpoint, id, state, tab }: FrameProps) {
  const base = pathOf(id);
  const path = tab ? `${base}/${tab}` : base;
  const tabs = listTabs(id, endpoint);
  const judgement = judge(state, endpoint);
  return (
    <>
      <PageHead
        title={endpoint?.name ?? id}
        id={endpoint?.id}
        tab={tab === '' ? undefined : tabs.find((each) => each.path === path)?.name}
        crumbs={[{ name: 'Overview', path: '/' }]}
        badge={judgement && <Badge {...judgement} />}
      >
        {actions}
      </PageHead>
      <Tabs label="Endpoint" path={path} tabs={tabs} />
      {children}
    </>
  );
}

export function pathOf(endpoint: string): string {
  return `/endpoints/${encodeURIComponent(endpoint)}`;
}

function listTabs(id: string, endpoint: EndpointRecord | undefined): Tab[] {
  const base = pathOf(id);
  const isQueue = endpoint?.type !== 'LOAD_BALANCER';
  const tabs: (Tab | false)[] = [
    { name: 'State', path: base },
    isQueue && may('jobs:write', id) && { name: 'Playground', path: `${base}/playground` },
    isQueue && may('jobs:read', id) && { name: 'Jobs', path: `${base}/jobs` },
    isQueue && may('jobs:read', id) && { name: 'Flows', path: `${base}/flows` },
    isQueue && may('jobs:read', id) && { name: 'Batches', path: `${base}/batches` },
    may('endpoints:read', id) && { name: 'Versions', path: `${base}/versions` },
    may('endpoints:read', id) && { name: 'Settings', path: `${base}/settings` },
  ];
  return tabs.filter((tab) => tab !== false);
}

/** The endpoint's record, if the key may read it. */
export function useEndpoint(id: string): Polled<EndpointRecord | null> {
  return usePolled({
    key: `endpoint ${id}`,
    load: async (signal) =>
      may('endpoints:read', id) ? platform.endpoints.get(id, { signal }) : null,
    everyMs: RECORD_EVERY_MS,
    live: may('endpoints:read', id)
      ? liveFrom([TOPICS.endpoint(id)], (endpoint) => endpoint)
      : undefined,
  });
}

/** The endpoint's record and its counts. */
export function useEndpointState(id: string): Polled<EndpointState | null> {
  return usePolled({
    key: `state ${id}`,
    load: async (signal) => {
      const of = { endpoint: id };
      const mayCount = may('jobs:read', id);
      const [endpoint, health, activity] = await Promise.all([
        may('endpoints:read', id) ? platform.endpoints.get(id, { signal }) : null,
        mayCount
          ? caller.json<EndpointHealth>({ ...callOf(JOB_ROUTES.getEndpointHealth, of), signal })
          : undefined,
        mayCount
          ? caller.json<EndpointOverview>({
              ...{ ...callOf(ACTIVITY_ROUTES.getEndpointActivity, of), signal },
            })
          : undefined,
      ]);
      return endpoint && { endpoint, health, activity };
    },
    everyMs: 1_000,
    live: watchState(id),
  });
}

function watchState(id: string): Live<EndpointState> | undefined {
  if (!may('endpoints:read', id)) return undefined;
  return may('jobs:read', id)
    ? liveFrom(
        [TOPICS.endpoint(id), TOPICS.health(id), TOPICS.activity(id)],
        (endpoint, health, activity) => ({ endpoint, health, activity }),
      )
    : liveFrom([TOPICS.endpoint(id)], (endpoint) => ({
        ...{ endpoint, health: undefined, activity: undefined },
      }));
}

/** Only if nothing is known: what was loaded before stays. */
export function LoadProblem({ polled }: { polled: Polled<unknown> }) {
  const { data, error, reload } = polled;
  return error && data === undefined ? <Problem error={error} onRetry={reload} /> : null;
}
