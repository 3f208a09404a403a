// Tells the queues of shards of the shared limits: their terms, and which endpoints of the shard name them.
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import type { SharedLimits } from '../control/limits/shared-limits.ts';
import type { SharedLimitSource } from '../queue/limits/shared/buckets.ts';

interface SharedLimitParts {
  endpoints: Pick<Endpoints, 'all' | 'onChange'>;
  sharedLimits: Pick<SharedLimits, 'all' | 'find' | 'ownerOf'>;
}

/** A queue that has all endpoints has all limits, too: it borrows nothing. */
const BORROWS_NOTHING: Pick<SharedLimitSource, 'lend' | 'shard'> = {
  shard: 0,
  lend: () => Promise.reject(new Error('no other shard has limits')),
};

/** `lend`: to other shards. Default: there are none. @returns the source of a shard's queue */
export function createLimitSources({
  endpoints,
  sharedLimits,
}: SharedLimitParts): (given?: Pick<SharedLimitSource, 'lend' | 'shard'>) => SharedLimitSource {
  /** By shard and ID of the limit. */
  let users: Map<string, string[]> | undefined;
  endpoints.onChange(() => {
    users = undefined;
  });
  const listUsers = () => {
    const all = new Map<string, string[]>();
    for (const { id, settings, shard } of endpoints.all()) {
      for (const limitId of settings.limits) {
        const key = `${shard}/${limitId}`;
        all.set(key, [...(all.get(key) ?? []), id]);
      }
    }
    return all;
  };
  return ({ lend, shard } = BORROWS_NOTHING) => ({
    shard,
    lend,
    find(id) {
      const userId = sharedLimits.ownerOf(id);
      const limit = userId === undefined ? undefined : sharedLimits.find(userId, id);
      return limit && limit.shard !== null ? { ...limit, home: limit.shard } : undefined;
    },
    usersOf(id) {
      users ??= listUsers();
      return users.get(`${shard}/${id}`) ?? [];
    },
    homes: () => [
      ...new Set(sharedLimits.all().flatMap((limit) => (limit.shard === null ? [] : limit.shard))),
    ],
  });
}
