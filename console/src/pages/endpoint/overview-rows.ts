// The rows of the overview: what happens at each endpoint.
import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointRecord } from '../../../../src/client.ts';
import type { EndpointOverview, Overview } from '../../../../src/wire/resources/activity.ts';
import { ACTIVITY_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller, platform } from '../../platform/calls.ts';
import type { Live } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';

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
