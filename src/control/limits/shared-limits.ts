// Manages the limits that endpoints share. A limit belongs to a shard, whose queue counts the starts and running jobs of all
// its endpoints: that of the first endpoint that names it.
import { z } from 'zod';
import type { Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { storedShape } from '../../wire/resources/field-schemas.ts';
import { SHARED_LIMIT_FIELDS } from '../../wire/resources/fields.ts';
import {
  type SharedLimitCreation,
  type SharedLimitRecord,
  type SharedLimitUpdate,
  sharedLimitRecord,
} from '../../wire/resources/shared-limit.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import type { Rights } from '../keys/rights.ts';
import { StoredResources, type StoredResourcesOptions } from '../stored-resources.ts';

const KIND = RESOURCES.sharedLimits.singular;

const storedSharedLimit = sharedLimitRecord.extend({
  ...storedShape(SHARED_LIMIT_FIELDS),
  /** Null: no endpoint has named it. It never changes afterwards, because the starts are counted there. */
  shard: z.int().nullable(),
});
export type StoredSharedLimit = z.infer<typeof storedSharedLimit>;

export type SharedLimits = StoredResources<
  SharedLimitCreation,
  SharedLimitUpdate,
  StoredSharedLimit
>;

type SharedLimitsOptions = Pick<
  StoredResourcesOptions<SharedLimitCreation, SharedLimitUpdate, StoredSharedLimit>,
  'clock' | 'quotas' | 'store'
>;

export function openSharedLimits(options: SharedLimitsOptions): Promise<SharedLimits> {
  return StoredResources.open<SharedLimitCreation, SharedLimitUpdate, StoredSharedLimit>({
    ...options,
    name: 'sharedLimits',
    prefix: 'lim',
    record: storedSharedLimit,
    rules: {
      compose: ({ createdAt, id }, creation) => ({ id, ...creation, createdAt, shard: null }),
      judgeRemoval(tx, id) {
        const user = tx
          .endpoints()
          .find(({ deleted, settings }) => !deleted && settings.limits.includes(id));
        if (!user) return;
        throw new ProblemError('conflict', `endpoint ${user.id} uses shared limit ${id}`);
      },
    },
  });
}

/** Callers need not know which shard counts. */
export function showSharedLimit(
  _caller: Rights,
  { shard: _shard, ...limit }: StoredSharedLimit,
): SharedLimitRecord {
  return limit;
}

interface Attached {
  userId: string;
  /** IDs that the endpoint names. */
  ids: readonly string[];
  /** Of the endpoint. */
  shard: number;
}

/** In the commit that lets an endpoint name the limits. Call the returned function when it is on disk. @throws ProblemError `invalid` */
export function attachLimits(
  limits: SharedLimits | undefined,
  tx: Transaction,
  { ids, shard, userId }: Attached,
): () => void {
  const errors: string[] = [];
  const stored = ids.map((id, index) => {
    const isOwn = limits && tx.resource({ kind: KIND, id })?.userId === userId;
    if (!isOwn) errors.push(`limits[${index}]: shared limit ${JSON.stringify(id)} not found`);
    return isOwn ? limits.changeIn(tx, id, (limit) => adopt(limit, shard)) : () => {};
  });
  if (errors.length > 0) throw new ProblemError('invalid', errors.join('; '), { errors });
  return () => {
    for (const note of stored) note();
  };
}

function adopt(limit: StoredSharedLimit, shard: number): StoredSharedLimit {
  return limit.shard === null ? { ...limit, shard } : limit;
}
