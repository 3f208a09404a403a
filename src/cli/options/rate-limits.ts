// Options that limit how often users and workers may call.
import { DEFAULT_RATE_LIMITS, type RateLimits, WINDOW_NAMES } from '../../api/limits/rate-limit.ts';
import {
  DEFAULT_WORKER_LIMITS,
  WORKER_CALL_WINDOW_S,
  type WorkerLimits,
} from '../../api/worker/worker-allowance.ts';
import { text, UsageError } from '../options.ts';
import { describeLimits, readLimits } from './named-limits.ts';

const MAX_CALLS = 1_000_000_000;

export const rateLimitOption = text({
  default: WINDOW_NAMES.map((name) => `${name}=${DEFAULT_RATE_LIMITS[name]}`).join(','),
  placeholder: 'LIMITS',
  env: 'MILLRACE_RATE_LIMIT',
  help:
    'maximum number of calls of one user in a minute, an hour and a day; calls of workers do not count; beyond it 429; 0 turns ' +
    'a limit off, "none" turns all off; limits that you do not name keep their defaults',
});

export const workerLimitOption = text({
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
export function readWorkerLimits(given: string): WorkerLimits {
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
