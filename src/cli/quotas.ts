// `serve --quota`: what one user may have of the platform's resources.
import { DEFAULT_QUOTAS, type Quotas } from '../control/quotas.ts';
import { text, UsageError } from './options.ts';

const BYTES_PER_KB = 1_024;

/** Names of the option's parts: what each sets, in which unit, and its range. */
const PARTS = {
  endpoints: { quota: 'endpoints', unit: 1, min: 0, max: 1_000_000 },
  templates: { quota: 'templates', unit: 1, min: 0, max: 1_000_000 },
  keys: { quota: 'keys', unit: 1, min: 0, max: 1_000_000 },
  pods: { quota: 'pods', unit: 1, min: 0, max: 1_000_000 },
  workersMax: { quota: 'workersMax', unit: 1, min: 0, max: 1_000 },
  recordKb: { quota: 'recordBytes', unit: BYTES_PER_KB, min: 1, max: 1_024 },
} as const satisfies Record<string, Part>;

interface Part {
  quota: keyof Quotas;
  unit: number;
  min: number;
  max: number;
}

export const quotaOption = text({
  default: Object.entries(PARTS)
    .map(([name, { quota, unit }]) => `${name}=${DEFAULT_QUOTAS[quota] / unit}`)
    .join(', '),
  placeholder: 'QUOTAS',
  env: 'MILLRACE_QUOTA',
  help:
    'endpoints, templates, unexpired keys and pods of one user (worker pods do not count), workersMax of ' +
    'one endpoint, KB of JSON of one record; a quota that is not named keeps its default',
});

/** @throws UsageError */
export function readQuotas(given: string): Quotas {
  const quotas: Quotas = { ...DEFAULT_QUOTAS };
  for (const text of given.split(',')) {
    const [, name = '', digits = ''] = /^\s*([A-Za-z]+)=(\d{1,9})\s*$/.exec(text) ?? [];
    const part = Object.entries(PARTS).find(([known]) => known === name)?.[1];
    const value = Number(digits);
    if (!part || value < part.min || value > part.max) throw refuse(text);
    quotas[part.quota] = value * part.unit;
  }
  return quotas;
}

function refuse(part: string): UsageError {
  const forms = Object.entries(PARTS).map(([name, { max, min }]) => `${name}=${min}..${max}`);
  return new UsageError(`--quota: must be of ${forms.join(', ')}; got ${JSON.stringify(part)}`);
}
