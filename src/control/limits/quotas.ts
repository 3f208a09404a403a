// Checks quotas: how many resources a user may have, and how large one record may be. Counts
// running creations, so that concurrent ones stay within the limit.
import { ProblemError } from '../../wire/problem.ts';
import { mapResources, type RESOURCES } from '../../wire/routes/routes.ts';

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
