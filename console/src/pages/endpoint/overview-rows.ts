// The rows of the overview: what happens at each endpoint, and its state in a word.
import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointRecord } from '../../../../src/client.ts';
import type { EndpointOverview, Overview } from '../../../../src/wire/resources/activity.ts';
import { ACTIVITY_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller, platform } from '../../platform/calls.ts';
import type { Live } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import type { Judgement } from './states.ts';

export interface ShownEndpoint {
  id: string;
  name: string;
  /** Undefined if the key may not read the endpoint's jobs. */
  activity: EndpointOverview | undefined;
  /** Undefined if the key may not read endpoints. */
  record: EndpointRecord | undefined;
}

export async function loadOverview(signal: AbortSignal): Promise<ShownEndpoint[]> {
  const [overview, records] = await Promise.all([
    caller.json<Overview>({ ...callOf(ACTIVITY_ROUTES.getOverview, {}), signal }),
    may('endpoints:read') ? platform.endpoints.page({ limit: 1_000, signal }) : { items: [] },
  ]);
  return joinRows(overview, records.items);
}

/** The same from the event stream. */
export function watchOverview(): Live<ShownEndpoint[]> {
  return may('endpoints:read')
    ? liveFrom([TOPICS.overview(), TOPICS.endpoints()], (overview, { endpoints }) =>
        joinRows(overview, endpoints),
      )
    : liveFrom([TOPICS.overview()], (overview) => joinRows(overview, []));
}

function joinRows({ endpoints }: Overview, records: readonly EndpointRecord[]): ShownEndpoint[] {
  const byId = new Map(records.map((record) => [record.id, record]));
  const seen = new Set(endpoints.map(({ id }) => id));
  return [
    ...endpoints.map((activity) => {
      const { id, name } = activity;
      return { id, name, activity, record: byId.get(id) };
    }),
    ...records
      .filter(({ id }) => !seen.has(id))
      .map((record) => ({ id: record.id, name: record.name, activity: undefined, record })),
  ];
}

export function judge({ activity, record }: ShownEndpoint): Judgement {
  if (record?.rollout?.state === 'FAILED') {
    return { text: 'Rollout failed', tone: 'bad', title: record.rollout.reason ?? '' };
  }
  if (!activity) return { text: 'Unknown', tone: 'plain', title: 'The key may not read its jobs' };
  if (activity.state !== 'idle') return JUDGEMENTS[activity.state];
  const { idle, running } = activity.workers;
  return idle + running > 0 ? { text: 'Ready', tone: 'good' } : { text: 'Idle', tone: 'plain' };
}

const JUDGEMENTS: Readonly<Record<Exclude<EndpointOverview['state'], 'idle'>, Judgement>> = {
  unreachable: { text: 'Unreachable', tone: 'bad', title: 'No node answers for it now' },
  blocked: { text: 'No worker', tone: 'bad', title: 'Jobs wait, and no worker is connected' },
  failing: { text: 'Failing', tone: 'warn', title: 'Jobs failed in the last hour' },
  waiting: { text: 'Waiting', tone: 'warn', title: 'Jobs wait for a worker' },
  running: { text: 'Running', tone: 'busy' },
};

/** The platform has sorted the rest. */
export function sortByTrouble(endpoints: readonly ShownEndpoint[]): ShownEndpoint[] {
  const isBad = (endpoint: ShownEndpoint) => (judge(endpoint).tone === 'bad' ? 0 : 1);
  return endpoints.toSorted((a, b) => isBad(a) - isBad(b));
}
