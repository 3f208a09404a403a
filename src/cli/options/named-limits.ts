// Parses options that set several limits: `calls=100,bytes=65536`.
import { UsageError } from '../options.ts';

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
