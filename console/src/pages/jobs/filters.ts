// The filters of the job list: what the address says, and the query that asks the platform for it.
import { ERROR_CODES, JOB_STATUSES, type JobStatus } from '../../../../src/wire/job/job.ts';

export const RANGES = {
  '15m': { name: 'Last 15 minutes', ms: 900_000 },
  '1h': { name: 'Last hour', ms: 3_600_000 },
  '1d': { name: 'Last day', ms: 86_400_000 },
  '7d': { name: 'Last 7 days', ms: 604_800_000 },
} as const;
export type Range = keyof typeof RANGES;

export interface Filters {
  status?: JobStatus;
  range?: Range;
  worker?: string;
  error?: string;
  id?: string;
  tag?: string;
}

export function readFilters(query: URLSearchParams): Filters {
  const filters: Filters = {};
  const status = JOB_STATUSES.find((known) => known === query.get('status'));
  const range = listRanges().find((known) => known === query.get('range'));
  const error = ERROR_CODES.find((known) => known === query.get('error'));
  const worker = query.get('worker');
  const id = query.get('id');
  if (status) filters.status = status;
  if (range) filters.range = range;
  if (error) filters.error = error;
  if (worker) filters.worker = worker;
  if (id) filters.id = id;
  const tag = query.get('tag');
  if (tag) filters.tag = tag;
  return filters;
}

export function listRanges(): Range[] {
  // The keys of RANGES.
  return Object.keys(RANGES) as Range[];
}

/** For the address of the page; empty without filters. */
export function writeFilters(filters: Filters): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) {
    if (value) query.set(name, value);
  }
  return query.size > 0 ? `?${query}` : '';
}

/** Parameters of the platform's list. */
export function queryOf(
  filters: Filters,
  now: number,
): Record<string, string | number | undefined> {
  const { error, id, range, status, tag, worker } = filters;
  return {
    status,
    id,
    tags: tag,
    workerId: worker,
    errorCode: error,
    since: range && now - RANGES[range].ms,
  };
}
