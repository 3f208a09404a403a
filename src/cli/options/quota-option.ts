// `serve --quota`: how many resources of each kind one user may have.

import { DEFAULT_QUOTAS, type Quotas } from '../../platform/defaults.ts';
import { mapResources, RESOURCES } from '../../wire/routes/routes.ts';
import { text } from '../options.ts';
import { readNumbers } from './named-numbers.ts';

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

export const quotaOption = text({
  default: Object.keys(RANGES)
    .map((name) => `${name}=${describeDefault(name)}`)
    .join(', '),
  placeholder: 'QUOTAS',
  env: 'MILLRACE_QUOTA',
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
    ...{ recordKb: recordBytes / BYTES_PER_KB, versionMb: versionBytes / BYTES_PER_MB },
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
