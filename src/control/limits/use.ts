// What a user uses of the quotas, and how the quotas are shown.
import type { Clock } from '../../base/clock.ts';
import type { LimitsRecord, QuotaScope, UseCounts } from '../../wire/resources/limits.ts';
import { countKeys } from '../keys/key-grant.ts';
import type { Keys } from '../keys/keys.ts';
import { DEFAULT_QUOTAS, type Quotas } from './quotas.ts';

const BYTES_PER_KB = 1_024;
const BYTES_PER_MB = 1_048_576;

/** Counts the resources of a user. */
export interface UseSource {
  countOf(userId: string): number;
}

export interface UseSources {
  endpoints: UseSource;
  /** Undefined without an engine. */
  pods: UseSource | undefined;
  /** The other resources. */
  served: readonly { resource: { outline: { plural: string } }; service: UseSource }[];
  keys: Pick<Keys, 'ofUser'>;
  /** Undefined: endpoints have no versions. */
  versions: { bytesOf(userId: string): Promise<number> } | undefined;
  clock: Clock;
}

/** By the name of the quota, in its unit. */
export async function countUse(userId: string, sources: UseSources): Promise<UseCounts> {
  const { clock, endpoints, keys, pods, served, versions } = sources;
  const counted = served.map(
    ({ resource, service }) => [resource.outline.plural, service.countOf(userId)] as const,
  );
  const own = keys.ofUser(userId).map(({ holder }) => holder);
  const bytes = (await versions?.bytesOf(userId)) ?? 0;
  return {
    ...Object.fromEntries(counted),
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
