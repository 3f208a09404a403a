// The quotas of users: how many resources a user may have, how large one record may be, and how much of them is used.
// Counts running creations, so that concurrent ones stay within the limit.
import type { Clock } from '../../base/clock.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { LimitsRecord, QuotaScope, UseCounts } from '../../wire/resources/limits.ts';
import { mapResources, type RESOURCES } from '../../wire/routes/routes.ts';
import type { Keys } from '../keys/keys.ts';
import { countKeys } from '../keys/rights.ts';

/** Quotas that count a user's resources. Of `keys` and `pods`, those of worker pods do not count. */
export type CountedQuota = keyof typeof RESOURCES;

export interface Quotas extends Readonly<Record<CountedQuota, number>> {
  /** Largest `workersMax` of one endpoint. */
  workersMax: number;
  /** Largest record as JSON, bytes. */
  recordBytes: number;
  /** Versions of the handler of one endpoint; an upload replaces the oldest one that is not in use. */
  versions: number;
  /** Archives of all versions of a user together, bytes. */
  versionBytes: number;
}

export const DEFAULT_QUOTAS: Quotas = {
  ...mapResources(({ quota }) => quota),
  workersMax: 100,
  recordBytes: 262_144,
  versions: 20,
  versionBytes: 2_048 * 1_048_576,
};

export interface ResourceCountOptions {
  quota: CountedQuota;
  limit: number;
  /** How many of them the user has now. */
  countOf: (userId: string) => number;
}

/** Counts resources together with those that are being created, so that two creations cannot share the last place. */
export class ResourceCount {
  readonly #options: ResourceCountOptions;
  /** Reserved places by user. */
  readonly #reserved = new Map<string, number>();

  constructor(options: ResourceCountOptions) {
    this.#options = options;
  }

  /**
   * Reserves a place for one more. Call the returned function as soon as `countOf` counts the new
   * resource, or its creation has failed. @throws ProblemError `quota_exceeded`
   */
  reserve(userId: string): () => void {
    const { countOf, limit, quota } = this.#options;
    const reserved = this.#reserved.get(userId) ?? 0;
    requireBelow(quota, limit, countOf(userId) + reserved);
    this.#reserved.set(userId, reserved + 1);
    return () => {
      const left = (this.#reserved.get(userId) ?? 0) - 1;
      if (left > 0) this.#reserved.set(userId, left);
      else this.#reserved.delete(userId);
    };
  }
}

/** @throws ProblemError `quota_exceeded` if the user has `count` already and may not have one more */
export function requireBelow(quota: CountedQuota, limit: number, count: number): void {
  if (count < limit) return;
  throw new ProblemError(
    'quota_exceeded',
    `The quota of ${limit} ${quota} is used up: the user has ${count}. Delete one, or ask the operator for a larger quota.`,
  );
}

/** @throws ProblemError `quota_exceeded` */
export function requireWorkersMax({ workersMax: limit }: Quotas, workersMax: number): void {
  if (workersMax <= limit) return;
  throw new ProblemError(
    'quota_exceeded',
    `workersMax is ${workersMax}; the quota workersMax allows at most ${limit} for one endpoint. Lower it, or ask the operator for a larger quota.`,
  );
}

/** `body`: as it would be stored. @throws ProblemError `quota_exceeded` */
export function requireRecordSize({ recordBytes: limit }: Quotas, body: string): void {
  // No character has more than three bytes in UTF-8 for each UTF-16 unit.
  if (body.length * 3 <= limit) return;
  const bytes = Buffer.byteLength(body);
  if (bytes <= limit) return;
  throw new ProblemError(
    'quota_exceeded',
    `The record has ${bytes} bytes of JSON; the quota recordKb allows at most ${limit} bytes. Shorten it, or ask the operator for a larger quota.`,
  );
}

const BYTES_PER_KB = 1_024;
const BYTES_PER_MB = 1_048_576;

/** Counts the resources of a user. */
export interface UseSource {
  countOf(userId: string): number;
}

interface UseSources {
  endpoints: UseSource;
  /** Undefined without an engine. */
  pods: UseSource | undefined;
  /** The other resources. */
  served: readonly { resource: { outline: { plural: string } }; service: UseSource }[];
  keys: Pick<Keys, 'ofUser'>;
  /** Undefined: endpoints have no versions. */
  versions: { bytesOf(userId: string): Promise<number> } | undefined;
  /** Default: there are no schedules. */
  scheduleHost?: { entries(userId: string): Promise<{ entries: readonly unknown[] }> } | undefined;
  clock: Clock;
}

/** By the name of the quota, in its unit. */
export async function countUse(userId: string, sources: UseSources): Promise<UseCounts> {
  const { clock, endpoints, keys, pods, scheduleHost, served, versions } = sources;
  const counted = served.map(
    ({ resource, service }) => [resource.outline.plural, service.countOf(userId)] as const,
  );
  const own = keys.ofUser(userId).map(({ holder }) => holder);
  const bytes = (await versions?.bytesOf(userId)) ?? 0;
  const schedules = (await scheduleHost?.entries(userId))?.entries.length ?? 0;
  return {
    ...Object.fromEntries(counted),
    schedules,
    endpoints: endpoints.countOf(userId),
    pods: pods?.countOf(userId) ?? 0,
    keys: countKeys(own, clock.now()),
    versionMb: roundTenth(bytes / BYTES_PER_MB),
  };
}

/** Quotas that bound one endpoint or one record, and not all of a user. */
const OTHER_SCOPES: Readonly<Record<string, QuotaScope>> = {
  workersMax: 'endpoint',
  versions: 'endpoint',
  recordKb: 'record',
};

export function describeQuotas(
  use: UseCounts,
  quotas: Quotas = DEFAULT_QUOTAS,
): LimitsRecord['quotas'] {
  const { recordBytes, versionBytes, ...counts } = quotas;
  const limits = {
    ...counts,
    recordKb: recordBytes / BYTES_PER_KB,
    versionMb: versionBytes / BYTES_PER_MB,
  };
  return Object.entries(limits).map(([name, limit]) => {
    const of = OTHER_SCOPES[name] ?? 'user';
    return { name, of, limit, used: of === 'user' ? (use[name] ?? 0) : null };
  });
}

function roundTenth(value: number): number {
  return Math.round(value * 10) / 10;
}
