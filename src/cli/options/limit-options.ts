// The options of `serve` that name several limits at once: calls of users and workers, quotas, and the capacity that all
// pods share.

import { DEFAULT_RATE_LIMITS, type RateLimits, WINDOW_NAMES } from '../../api/limits/rate-limit.ts';
import { DEFAULT_WORKER_LIMITS, WORKER_CALL_WINDOW_S } from '../../api/worker/worker-allowance.ts';
import {
  DEFAULT_OVERCOMMIT,
  DEFAULT_QUOTAS,
  LIST_BYTES,
  type Quotas,
} from '../../platform/defaults.ts';
import type { CapacityChoice } from '../../platform/platform-options.ts';
import { mapResources, RESOURCES } from '../../wire/routes/routes.ts';
import { defineGroup, integer, text, UsageError } from '../options.ts';
import { mbInBytes, member } from './platform-option.ts';

const BYTES_PER_KB = 1_024;
const BYTES_PER_MB = 1_048_576;
const CALLS = { min: 0, max: 1_000_000_000 };
const COUNT = { min: 0, max: 1_000_000 };
const FACTOR = { min: 1, max: 1_000 };
const AMOUNT = { min: 1, max: 100_000_000 };
const QUOTAS = {
  ...mapResources(() => COUNT),
  workersMax: { min: 0, max: 1_000 },
  recordKb: { min: 1, max: 1_024 },
  versions: { min: 1, max: 1_000 },
  versionMb: { min: 0, max: 1_048_576 },
};

export const limitOptions = defineGroup('Limits', {
  rateLimit: text({
    sets: [member('rateLimits', readRateLimits)],
    default: describeLimits(DEFAULT_RATE_LIMITS),
    placeholder: 'LIMITS',
    help:
      'maximum number of calls of one user in a minute, an hour and a day; calls of workers do not count; beyond it 429; 0 turns ' +
      'a limit off, "none" turns all off; limits that you do not name keep their defaults',
  }),
  workerLimit: text({
    sets: [
      member('workerLimits', (given: string) =>
        readLimits('--worker-limit', given, DEFAULT_WORKER_LIMITS),
      ),
    ],
    default: describeLimits(DEFAULT_WORKER_LIMITS),
    placeholder: 'LIMITS',
    section: 'advanced',
    help:
      `limits of workers: calls of one key in ${WORKER_CALL_WINDOW_S} s, live worker IDs of one key (ids) and of one ` +
      'user (userids); each at least 1; beyond it 429; ' +
      'limits that you do not name keep their defaults',
  }),
  quota: text({
    sets: [member('quotas', readQuotas)],
    default: Object.keys(QUOTAS)
      .map((name) => `${name}=${findDefaultQuota(name)}`)
      .join(', '),
    placeholder: 'QUOTAS',
    help:
      `quotas: ${Object.keys(RESOURCES).join(', ')} of one user (expired keys and worker pods do not count), ` +
      'workersMax of one endpoint, KB of JSON of one record, versions kept of one endpoint, MB of all versions of one ' +
      'user; beyond a quota 409, beyond versions the oldest is removed; quotas that you do not name keep ' +
      'their defaults',
  }),
  listMb: integer({
    sets: [member('listBytes', mbInBytes)],
    min: 1,
    max: 64,
    default: LIST_BYTES / BYTES_PER_MB,
    unit: 'MB',
    section: 'advanced',
    help: 'maximum size of one page of a list, as JSON; `cursor` fetches the next page',
  }),
  overcommit: text({
    sets: [member('compute.capacity.overcommit', readOvercommit)],
    default: `vcpus=${DEFAULT_OVERCOMMIT.vcpus}, disk=${DEFAULT_OVERCOMMIT.disk}`,
    placeholder: 'FACTORS',
    help: 'factors by which pods together may exceed the vCPUs and the disk of the machine; memory is never overcommitted',
    section: 'advanced',
  }),
  machine: text({
    sets: [member('compute.capacity.machine', readMachine)],
    placeholder: 'AMOUNTS',
    help:
      'capacity that pods share: memory=GB,vcpus=N,disk=GB; default: this machine, with the file ' +
      'system of --data; set it if the engine is on another machine',
    section: 'advanced',
  }),
});

/** Undefined if no limit is set. @throws UsageError */
export function readRateLimits(given: string): RateLimits | undefined {
  if (given === 'none' || given === '0') return undefined;
  const ranges = { minute: CALLS, hour: CALLS, day: CALLS };
  const limits: RateLimits = {
    ...DEFAULT_RATE_LIMITS,
    ...readNumbers('--rate-limit', given, ranges, 'none, or one or more of'),
  };
  const counted = WINDOW_NAMES.flatMap((name) => (limits[name] ? [[name, limits[name]]] : []));
  return counted.length > 0 ? Object.fromEntries(counted) : undefined;
}

function findDefaultQuota(name: string): number {
  const { recordBytes, versionBytes, ...counts } = DEFAULT_QUOTAS;
  const shown: Record<string, number> = {
    ...counts,
    recordKb: recordBytes / BYTES_PER_KB,
    versionMb: versionBytes / BYTES_PER_MB,
  };
  return shown[name] ?? 0;
}

/** @throws UsageError */
export function readQuotas(given: string): Quotas {
  const { recordKb, versionMb, ...counts } = readNumbers('--quota', given, QUOTAS);
  const size = recordKb === undefined ? {} : { recordBytes: recordKb * BYTES_PER_KB };
  const space = versionMb === undefined ? {} : { versionBytes: versionMb * BYTES_PER_MB };
  return { ...DEFAULT_QUOTAS, ...counts, ...size, ...space };
}

function readOvercommit(given: string): CapacityChoice['overcommit'] {
  const ranges = { vcpus: FACTOR, disk: FACTOR };
  return { ...DEFAULT_OVERCOMMIT, ...readNumbers('--overcommit', given, ranges) };
}

function readMachine(given: string | undefined): CapacityChoice['machine'] {
  if (given === undefined) return {};
  const ranges = { memory: AMOUNT, vcpus: AMOUNT, disk: AMOUNT };
  const { disk, memory, vcpus } = readNumbers('--machine', given, ranges);
  return {
    ...(memory !== undefined && { memoryGb: memory }),
    ...(vcpus !== undefined && { vcpus }),
    ...(disk !== undefined && { diskGb: disk }),
  };
}

export function describeLimits(limits: object): string {
  return Object.entries(limits)
    .map(([name, limit]) => `${name}=${limit}`)
    .join(',');
}

/** Returns the given limits, each at least 1, and the defaults of the others. @throws UsageError naming the option */
export function readLimits<Name extends string>(
  option: string,
  given: string,
  defaults: Readonly<Record<Name, number>>,
): Record<Name, number> {
  const ranges = listNames(defaults).map((name) => [name, { min: 1, max: 999_999_999 }]);
  return { ...defaults, ...readNumbers<Name>(option, given, Object.fromEntries(ranges)) };
}

interface NumberRange {
  min: number;
  max: number;
}

/** Returns the given numbers; the last one if a name is repeated. @throws UsageError naming the option */
function readNumbers<Name extends string>(
  option: string,
  given: string,
  ranges: Readonly<Record<Name, NumberRange>>,
  allowed = 'one or more of',
): Partial<Record<Name, number>> {
  const numbers: Partial<Record<Name, number>> = {};
  for (const part of given.split(',')) {
    const [, name = '', digits = ''] = /^\s*([A-Za-z]+)=(\d{1,10})\s*$/.exec(part) ?? [];
    const value = Number(digits);
    const known = listNames(ranges).find((each) => each === name);
    if (!known || value < ranges[known].min || value > ranges[known].max) {
      const forms = listNames(ranges).map(
        (each) => `${each}=${ranges[each].min}..${ranges[each].max}`,
      );
      const shown = JSON.stringify(part);
      throw new UsageError(`${option}: ${shown} is invalid; write ${allowed} ${forms.join(', ')}`);
    }
    numbers[known] = value;
  }
  return numbers;
}

function listNames<Name extends string>(named: Readonly<Record<Name, unknown>>): Name[] {
  // The argument is an object literal of this program, so its keys are exactly these names.
  return Object.keys(named) as Name[];
}
