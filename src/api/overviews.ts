// What happens at the endpoints that a key may see. Reads of an endpoint are shared by all callers for a second.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { LiveEndpoint } from '../control/endpoints/endpoint-records.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import type { KeyHolder } from '../control/keys/keys.ts';
import { allows } from '../control/keys/rights.ts';
import type { ReadActivity } from '../queue/activity/activity.ts';
import type { FailedListing, FailedPage } from '../queue/job-lists.ts';
import { ProblemError } from '../wire/problem.ts';
import {
  ENDPOINT_STATES,
  type EndpointActivity,
  type EndpointOverview,
  type EndpointState,
  FAILING_RATE,
  type FailedJobList,
  type Overview,
} from '../wire/resources/activity.ts';
import { requireOwnEndpoint, requireScope } from './http/auth.ts';
import { describeNext } from './http/requests.ts';

/** Answers are at most so old, ms. */
const SHARED_MS = 1_000;
/** Endpoints of one overview. */
const MAX_ENDPOINTS = 1_000;

export interface OverviewsOptions {
  endpoints: Pick<Endpoints, 'all' | 'find' | 'nameOf' | 'ownerOf' | 'resolve'>;
  clock: Clock;
  read: ReadActivity;
  readFailed: ReadFailed;
}

/** Lists failed jobs, whichever nodes serve the endpoints. `unreachable`: endpoints whose node did not answer. */
export type ReadFailed = (
  endpointIds: readonly string[],
  listing: FailedListing,
) => Promise<FailedPage & { unreachable: string[] }>;

interface SharedRead {
  at: number;
  activity: Promise<EndpointActivity | undefined>;
}

interface Numbered {
  activity: EndpointActivity | undefined;
  number: number;
}

export class Overviews {
  readonly #options: OverviewsOptions;
  readonly #shared = new Map<string, SharedRead>();
  /** The last numbered activity. Each change of an endpoint makes a new object. */
  readonly #numbered = new WeakMap<LiveEndpoint, Numbered>();
  #lastNumber = 0;

  constructor(options: OverviewsOptions) {
    this.#options = options;
  }

  /** Of the endpoints for whose jobs the key has `jobs:read`. */
  async read(holder: KeyHolder): Promise<Overview> {
    const shown = await this.#show(this.#listReadable(holder));
    return { at: this.#options.clock.now(), endpoints: shown.toSorted(compare) };
  }

  /** A text that differs whenever the result of `read` does, its time aside. */
  number(holder: KeyHolder): Promise<string> {
    return this.#numberAll(this.#listReadable(holder));
  }

  /** The same for `one`. */
  async numberOf(id: string): Promise<string | undefined> {
    const endpoint = this.#options.endpoints.find(id);
    return endpoint && this.#numberAll([endpoint]);
  }

  async #numberAll(some: readonly LiveEndpoint[]): Promise<string> {
    const activities = await this.activities(some.map(({ id }) => id));
    return some.map((each, index) => this.#number(each, activities[index])).join();
  }

  #number(endpoint: LiveEndpoint, activity: EndpointActivity | undefined): number {
    const known = this.#numbered.get(endpoint);
    const isSame = known?.activity === activity || isDeepStrictEqual(known?.activity, activity);
    if (known && isSame) {
      known.activity = activity;
      return known.number;
    }
    this.#lastNumber += 1;
    this.#numbered.set(endpoint, { activity, number: this.#lastNumber });
    return this.#lastNumber;
  }

  #listReadable(holder: KeyHolder): LiveEndpoint[] {
    return this.#options.endpoints
      .all()
      .filter(({ id, userId }) => userId === holder.userId && allows(holder, 'jobs:read', id))
      .slice(0, MAX_ENDPOINTS);
  }

  /** Failed jobs of the same endpoints, or of one of them. @throws ProblemError `forbidden`, `not_found` */
  async listFailed(
    holder: KeyHolder,
    { endpoint, ...listing }: FailedListing & { endpoint?: string | undefined },
  ): Promise<FailedJobList> {
    const { endpoints, readFailed } = this.#options;
    const id = endpoint === undefined ? undefined : endpoints.resolve(holder.userId, endpoint);
    if (id !== undefined) {
      requireOwnEndpoint(holder, id, endpoints);
      requireScope(holder, 'jobs:read', id);
    }
    const ids = id === undefined ? this.#listReadable(holder).map((each) => each.id) : [id];
    const { jobs, next, unreachable } = await readFailed(ids, listing);
    return {
      jobs: jobs.map(({ endpointId, position: _position, ...job }) => ({
        ...job,
        endpoint: { id: endpointId, name: endpoints.nameOf(endpointId) ?? endpointId },
      })),
      unreachable,
      ...describeNext(next),
    };
  }

  /** Of one endpoint; the caller has checked the rights. @throws ProblemError `not_found` */
  async one(id: string): Promise<EndpointOverview> {
    const endpoint = this.#options.endpoints.find(id);
    const [shown] = await this.#show(endpoint ? [endpoint] : []);
    if (shown) return shown;
    throw new ProblemError('not_found', `endpoint ${id} not found`);
  }

  async #show(
    some: readonly Pick<LiveEndpoint, 'id' | 'deployment'>[],
  ): Promise<EndpointOverview[]> {
    const activities = await this.activities(some.map(({ id }) => id));
    return some.map(({ deployment, id }, index): EndpointOverview => {
      const type = deployment?.type ?? 'QUEUE';
      const name = this.#options.endpoints.nameOf(id) ?? id;
      const activity = activities[index];
      const state = judgeEndpoint(activity, deployment);
      return { id, name, type, state, ...(activity ?? NOTHING_KNOWN) };
    });
  }

  /** In the same order; undefined if no node answers for the endpoint. */
  activities(ids: readonly string[]): Promise<(EndpointActivity | undefined)[]> {
    const now = this.#options.clock.now();
    for (const [id, { at }] of this.#shared) if (at <= now - SHARED_MS) this.#shared.delete(id);
    const missing = ids.filter((id) => !this.#shared.has(id));
    if (missing.length > 0) {
      const reading = this.#options.read(missing);
      for (const id of missing) {
        this.#shared.set(id, { at: now, activity: reading.then((found) => found[id]) });
      }
    }
    return Promise.all(ids.map((id) => this.#shared.get(id)?.activity));
  }
}

const NOTHING_KNOWN: EndpointActivity = {
  waiting: 0,
  running: 0,
  oldestWaitMs: null,
  waitReason: null,
  jobsPerSecond: 0,
  failedLastHour: 0,
  failureRate: null,
  workers: { starting: 0, idle: 0, running: 0, draining: 0, parked: 0 },
};

/** The state of an endpoint in one word, for the overview, its page, the CLI and metrics. */
export function judgeEndpoint(
  activity: EndpointActivity | undefined,
  deployment: LiveEndpoint['deployment'] | undefined,
): EndpointState {
  if (!activity) return 'unreachable';
  const { failureRate, oldestWaitMs, paused, running, workers } = activity;
  const connected = workers.idle + workers.running;
  const isWaiting = oldestWaitMs !== null;
  if (isWaiting && !paused && connected + workers.starting + workers.parked === 0) {
    return 'blocked';
  }
  if (deployment?.rollout?.state === 'FAILED') return 'rollout_failed';
  if (failureRate !== null && failureRate >= FAILING_RATE) return 'failing';
  if (paused) return 'paused';
  if (isWaiting) return 'waiting';
  if (running > 0) return 'running';
  return connected > 0 ? 'ready' : 'idle';
}

function compare(a: EndpointOverview, b: EndpointOverview): number {
  const rank = ({ state }: EndpointOverview) => ENDPOINT_STATES.indexOf(state);
  const order = rank(a) - rank(b) || b.failedLastHour - a.failedLastHour || b.waiting - a.waiting;
  return order || a.name.localeCompare(b.name);
}
