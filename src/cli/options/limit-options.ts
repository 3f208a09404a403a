// The options of `serve` that name several limits at once: calls of users and workers, quotas, and the capacity that all
// pods share.

import { DEFAULT_RATE_LIMITS, type RateLimits, WINDOW_NAMES } from '../../api/limits/rate-limit.ts';
import {
  DEFAULT_WORKER_LIMITS,
  WORKER_CALL_WINDOW_S,
  type WorkerLimits,
} from '../../api/worker/worker-allowance.ts';
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

const MAX_CALLS = 1_000_000_000;

const rateLimit = text({
  sets: [member('rateLimits', readRateLimits)],
  default: WINDOW_NAMES.map((name) => `${name}=${DEFAULT_RATE_LIMITS[name]}`).join(','),
  placeholder: 'LIMITS',
  help:
    'maximum number of calls of one user in a minute, an hour and a day; calls of workers do not count; beyond it 429; 0 turns ' +
    'a limit off, "none" turns all off; limits that you do not name keep their defaults',
});

const workerLimit = text({
  sets: [member('workerLimits', readWorkerLimits)],
  default: describeLimits(DEFAULT_WORKER_LIMITS),
  placeholder: 'LIMITS',
  env: 'MILLRACE_WORKER_LIMIT',
  section: 'advanced',
  help:
    `limits of workers: calls of one key in ${WORKER_CALL_WINDOW_S} s, live worker IDs of one key (ids) and of one ` +
    'user (userids); each at least 1; beyond it 429; ' +
    'limits that you do not name keep their defaults',
});

/** @throws UsageError */
function readWorkerLimits(given: string): WorkerLimits {
  return readLimits('--worker-limit', given, DEFAULT_WORKER_LIMITS);
}

/** Undefined if no limit is set. @throws UsageError */
export function readRateLimits(given: string): RateLimits | undefined {
  if (given === 'none' || given === '0') return undefined;
  const limits: Partial<Record<string, number>> = { ...DEFAULT_RATE_LIMITS };
  for (const part of given.split(',')) {
    const [, name = '', digits = ''] = /^\s*([a-z]+)=(\d{1,10})\s*$/.exec(part) ?? [];
    if (!Object.hasOwn(limits, name) || Number(digits) > MAX_CALLS) throw refuse(part);
    limits[name] = Number(digits);
  }
  const counted = WINDOW_NAMES.flatMap((name) => {
    const limit = limits[name];
    return limit ? [[name, limit] as const] : [];
  });
  return counted.length > 0 ? Object.fromEntries(counted) : undefined;
}

function refuse(part: string): UsageError {
  const form = `NAME=N, NAME one of ${WINDOW_NAMES.join(', ')}, N from 0 to ${MAX_CALLS}`;
  return new UsageError(`--rate-limit: ${JSON.stringify(part)} is invalid; write none, or ${form}`);
}

const BYTES_PER_KB = 1_024;
const BYTES_PER_MB = 1_048_576;
const COUNT = { min: 0, max: 1_000_000 };
const RANGES = {
  ...mapResources(() => COUNT),
  workersMax: { min: 0, max: 1_000 },
  recordKb: { min: 1, max: 1_024 },
  versions: { min: 1, max: 1_000 },
  versionMb: { min: 0, max: 1_048_576 },
};

const quota = text({
  sets: [member('quotas', readQuotas)],
  default: Object.keys(RANGES)
    .map((name) => `${name}=${describeDefault(name)}`)
    .join(', '),
  placeholder: 'QUOTAS',
  help:
    `quotas: ${Object.keys(RESOURCES).join(', ')} of one user (expired keys and worker pods do not count), ` +
    'workersMax of one endpoint, KB of JSON of one record, versions kept of one endpoint, MB of all versions of one ' +
    'user; beyond a quota 409, beyond versions the oldest is removed; quotas that you do not name keep ' +
    'their defaults',
});

function describeDefault(name: string): number {
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
  const { recordKb, versionMb, ...counts } = readNumbers('--quota', given, RANGES);
  const size = recordKb === undefined ? {} : { recordBytes: recordKb * BYTES_PER_KB };
  const space = versionMb === undefined ? {} : { versionBytes: versionMb * BYTES_PER_MB };
  return { ...DEFAULT_QUOTAS, ...counts, ...size, ...space };
}

const FACTOR = { min: 1, max: 1_000 };
const AMOUNT = { min: 1, max: 100_000_000 };

export const limitOptions = defineGroup('Limits', {
  rateLimit,
  workerLimit,
  quota,
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

/** Returns the given limits, and the defaults of the others. @throws UsageError */
export function readLimits<T extends object>(flag: string, given: string, defaults: T): T {
  const limits = new Map<string, unknown>(Object.entries(defaults));
  for (const part of given.split(',')) {
    const [, name = '', digits] = /^\s*([a-z]+)=(\d{1,9})\s*$/.exec(part) ?? [];
    const limit = Number(digits);
    if (!limits.has(name) || limit < 1) {
      const form = `NAME=N, NAME one of ${[...limits.keys()].join(', ')}, N from 1 to 999999999`;
      throw new UsageError(`${flag}: ${JSON.stringify(part)} is invalid; write ${form}`);
    }
    limits.set(name, limit);
  }
  return { ...defaults, ...Object.fromEntries(limits) };
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
): Partial<Record<Name, number>> {
  const numbers: Partial<Record<Name, number>> = {};
  for (const part of given.split(',')) {
    const [, name = '', digits = ''] = /^\s*([A-Za-z]+)=(\d{1,9})\s*$/.exec(part) ?? [];
    const value = Number(digits);
    const known = listNames(ranges).find((each) => each === name);
    if (!known || value < ranges[known].min || value > ranges[known].max) {
      const forms = listNames(ranges).map(
        (each) => `${each}=${ranges[each].min}..${ranges[each].max}`,
      );
      const shown = JSON.stringify(part);
      throw new UsageError(
        `${option}: ${shown} is invalid; write one or more of ${forms.join(', ')}`,
      );
    }
    numbers[known] = value;
  }
  return numbers;
}

function listNames<Name extends string>(ranges: Readonly<Record<Name, NumberRange>>): Name[] {
  // The ranges are an object literal of this program, so their keys are exactly these names.
  return Object.keys(ranges) as Name[];
}
