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

type LimitsOptions = Pick<QueueParts, 'pauses' | 'rates'>;

export interface Taker {
  endpointId: string;
  gpuType: string | null;
}

interface Search {
  limit: number;
  /** Time of the operation. */
  now: number;
}

interface Granted {
  endpointId: string;
  jobs: readonly StoredJob[];
  now: number;
  /** Of the search that found the jobs. */
  hasSearched: boolean;
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
    const { groupConcurrency, groupRateLimit, rateLimit } = settings;
    const isLimited = groupConcurrency !== null || groupRateLimit !== null || rateLimit !== null;
    return isLimited || this.#options.pauses.concernsGroups(id);
  }

  /** The best ready jobs that the worker may take. Call `noteGranted` at the end of the operation. */
  find(tx: Transaction, { endpointId, gpuType }: Taker, { limit, now }: Search): Takeable {
    const { pauses, rates } = this.#options;
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
    const gate = this.#createGate(endpoint, now);
    const most = Math.min(limit, free);
    const found = tx.takeableJobs({ endpointId, limit: most, groupLimit, gate, acceptsOutgrown });
    const isAtLimit = found.isBlocked && groupLimit !== undefined;
    return { ...found, isAtLimit, hasSearched: true };
  }

  /** These jobs start with the operation, which cannot run again. */
  noteGranted(tx: Transaction, { endpointId, hasSearched, jobs, now }: Granted): void {
    const { pauses, rates } = this.#options;
    if (hasSearched) {
      pauses.noteLearned(endpointId);
      rates.noteLearned(endpointId);
    }
    const endpoint = jobs.length > 0 ? tx.endpoint(endpointId) : undefined;
    if (endpoint) rates.count(tx, endpoint, { jobs, now });
  }

  #createGate(endpoint: StoredEndpoint | undefined, now: number): GroupGate | undefined {
    if (!endpoint) return undefined;
    const { id: endpointId, settings } = endpoint;
    const { pauses, rates } = this.#options;
    const { groupRateLimit } = settings;
    const hasPauses = pauses.concernsGroups(endpointId);
    if (!hasPauses && !groupRateLimit) return undefined;
    const isPaused = (group: string) =>
      hasPauses && pauses.find({ endpointId, group }) !== undefined;
    return {
      capacity: (group) => {
        if (isPaused(group)) return 0;
        if (!groupRateLimit || group === NO_GROUP) return Number.POSITIVE_INFINITY;
        return rates.free(endpointId, group, groupRateLimit, now);
      },
      grown: [...pauses.resumed(endpointId), ...rates.freed(endpointId)],
      terms: groupRateLimit
        ? `${groupRateLimit.max}/${groupRateLimit.perMs}/${rates.roomChanges(endpointId)}`
        : '',
    };
  }
}
