// Chooses the jobs that a worker may take now, within what limits an endpoint and its groups.
import {
  type GroupGate,
  NO_GROUP,
  type StoredEndpoint,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import { acceptOutgrown } from '../leases/presence.ts';
import type { QueueParts } from '../queue-parts.ts';
import type { SharedSearch } from './shared/shared-limits.ts';

type LimitsOptions = Pick<QueueParts, 'pauses' | 'rates' | 'sharedLimits'>;

export interface Taker {
  endpointId: string;
  gpuType: string | null;
}

interface Search {
  limit: number;
  /** Time of the operation. */
  now: number;
  /** The jobs will start: the endpoint takes its turn at shared limits. Default: they are only counted. */
  isTake?: boolean;
}

interface Granted {
  endpointId: string;
  jobs: readonly StoredJob[];
  now: number;
  /** The search that found the jobs. */
  search: Pick<Takeable, 'hasSearched' | 'shared'>;
}

export interface Takeable {
  jobs: StoredJob[];
  /** Jobs may be ready, but something limits them. */
  isBlocked: boolean;
  /** Jobs may be ready, but their groups have as many leases as they may have: another limit wakes nobody. */
  isAtLimit: boolean;
  /** The search for jobs was cut short. */
  hasMore: boolean;
  /** It has learned which groups have more capacity; not if the whole endpoint starts no jobs. */
  hasSearched: boolean;
  /** Undefined: no shared limit holds for the endpoint. */
  shared?: { search: SharedSearch; wanted: number; isHeldBack: boolean } | undefined;
}

export const NOTHING_TAKEABLE: Takeable = {
  jobs: [],
  isBlocked: false,
  isAtLimit: false,
  hasMore: false,
  hasSearched: false,
};

export class Limits {
  readonly #options: LimitsOptions;

  constructor(options: LimitsOptions) {
    this.#options = options;
  }

  /** Whether jobs may be ready that no worker may take now. */
  concerns({ id, settings }: Pick<StoredEndpoint, 'id' | 'settings'>): boolean {
    const { groupConcurrency, groupRateLimit, limits, rateLimit } = settings;
    const isLimited = groupConcurrency !== null || groupRateLimit !== null || rateLimit !== null;
    return isLimited || limits.length > 0 || this.#options.pauses.concernsGroups(id);
  }

  /** The best ready jobs that the worker may take. Call `noteGranted` at the end of the operation. */
  find(
    tx: Transaction,
    { endpointId, gpuType }: Taker,
    { isTake = false, limit, now }: Search,
  ): Takeable {
    const { pauses, rates, sharedLimits } = this.#options;
    // A resume wakes the take.
    if (pauses.find({ endpointId, group: null })) return NOTHING_TAKEABLE;
    const endpoint = tx.endpoint(endpointId);
    const { rateLimit = null } = endpoint?.settings ?? {};
    const free = rateLimit ? rates.free(endpointId, null, rateLimit, now) : limit;
    // The end of the window wakes the take.
    if (free === 0) return NOTHING_TAKEABLE;
    const groupLimit = endpoint?.settings.groupConcurrency ?? undefined;
    const deployment = endpoint?.deployment ?? null;
    // Without a deployment, no job has outgrown a GPU type.
    const acceptsOutgrown = deployment === null ? undefined : acceptOutgrown(deployment, gpuType);
    const search = endpoint && sharedLimits.open(tx, endpoint, isTake);
    const gate = this.#createGate(endpoint, search, now);
    const most = Math.min(limit, free);
    const lent = Math.min(most, search?.free ?? most);
    const request = { endpointId, now, groupLimit, gate, acceptsOutgrown };
    // If shared limits let none start, one job tells that the endpoint waits for them.
    const found = tx.takeableJobs({ ...request, limit: Math.max(1, lent) });
    const isAtLimit = found.isBlocked && groupLimit !== undefined;
    const takeable = { ...found, isAtLimit, hasSearched: true };
    if (!search) return takeable;
    const isHeldBack = found.isBlocked || (lent === 0 && found.jobs.length > 0);
    const jobs = lent === 0 ? [] : found.jobs;
    return { ...takeable, jobs, shared: { search, wanted: most, isHeldBack } };
  }

  /** These jobs start with the operation, which cannot run again. */
  noteGranted(tx: Transaction, { endpointId, jobs, now, search }: Granted): void {
    const { pauses, rates, sharedLimits } = this.#options;
    if (search.shared) sharedLimits.settle(tx, search.shared.search, { ...search.shared, jobs });
    if (search.hasSearched) {
      pauses.noteLearned(endpointId);
      rates.noteLearned(endpointId);
    }
    const endpoint = jobs.length > 0 ? tx.endpoint(endpointId) : undefined;
    if (endpoint) rates.count(tx, endpoint, { jobs, now });
  }

  #createGate(
    endpoint: StoredEndpoint | undefined,
    shared: SharedSearch | undefined,
    now: number,
  ): GroupGate | undefined {
    if (!endpoint) return undefined;
    const { id: endpointId, settings } = endpoint;
    const { pauses, rates, sharedLimits } = this.#options;
    const { groupRateLimit } = settings;
    const hasPauses = pauses.concernsGroups(endpointId);
    const freeOf = shared?.freeOf;
    if (!hasPauses && !groupRateLimit && !freeOf) return undefined;
    const isPaused = (group: string) =>
      hasPauses && pauses.find({ endpointId, group }) !== undefined;
    const terms = groupRateLimit
      ? `${groupRateLimit.max}/${groupRateLimit.perMs}/${rates.roomChanges(endpointId)}`
      : '';
    return {
      capacity: (group) => {
        if (isPaused(group)) return 0;
        if (group === NO_GROUP) return Number.POSITIVE_INFINITY;
        const own = groupRateLimit
          ? rates.free(endpointId, group, groupRateLimit, now)
          : Number.POSITIVE_INFINITY;
        return freeOf && own > 0 ? Math.min(own, freeOf(group)) : own;
      },
      grown: [
        ...pauses.resumed(endpointId),
        ...rates.freed(endpointId),
        ...sharedLimits.grown(endpointId),
      ],
      terms: terms + (shared?.terms ?? ''),
    };
  }
}
