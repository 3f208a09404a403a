// `serve --quota`: how many resources of each kind one user may have.

import { DEFAULT_QUOTAS, type Quotas } from '../../platform/defaults.ts';
import { mapResources, RESOURCES } from '../../wire/routes.ts';
import { text } from '../options.ts';
import { readNumbers } from './named-numbers.ts';

const BYTES_PER_KB = 1_024;
const COUNT = { min: 0, max: 1_000_000 };
const RANGES = {
  ...mapResources(() => COUNT),
  workersMax: { min: 0, max: 1_000 },
  recordKb: { min: 1, max: 1_024 },
};

export const quotaOption = text({
  default: Object.keys(RANGES)
    .map((name) => `${name}=${describeDefault(name)}`)
    .join(', '),
  placeholder: 'QUOTAS',
  env: 'MILLRACE_QUOTA',
  help:
    `quotas: ${Object.keys(RESOURCES).join(', ')} of one user (expired keys and worker pods do not count), ` +
    'workersMax of one endpoint, KB of JSON of one record; beyond a quota 409; quotas that you do not name keep ' +
    'their defaults',
});

function describeDefault(name: string): number {
  const { recordBytes, ...counts } = DEFAULT_QUOTAS;
  const shown: Record<string, number> = { ...counts, recordKb: recordBytes / BYTES_PER_KB };
  return shown[name] ?? 0;
}

/** @throws UsageError */
export function readQuotas(given: string): Quotas {
  const { recordKb, ...counts } = readNumbers('--quota', given, RANGES);
  const size = recordKb === undefined ? {} : { recordBytes: recordKb * BYTES_PER_KB };
  return { ...DEFAULT_QUOTAS, ...counts, ...size };
}
