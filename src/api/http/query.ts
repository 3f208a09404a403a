// Reads query parameters; for an invalid or unknown one, throws a problem that names it.
import type { FastifyRequest } from 'fastify';
import { JOB_STATUSES, type JobStatus } from '../../wire/job/job.ts';
import { MAX_DESCRIBED, ProblemError } from '../../wire/problem.ts';

/** As the router provides them: several values form an array. */
export type QueryValues = Readonly<Record<string, string | string[] | undefined>>;

export interface IntegerRange {
  min: number;
  max: number;
}

/** Undefined if absent. @throws ProblemError `invalid` that names the parameter and its range */
export function readInteger(
  query: QueryValues,
  name: string,
  { min, max }: IntegerRange,
): number | undefined {
  const text = query[name];
  if (text === undefined) return undefined;
  const value = typeof text === 'string' && /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw refuseParameter(name, `must be an integer from ${min} to ${max}`);
}

/** @throws ProblemError `invalid` */
export function readStatus(query: QueryValues): JobStatus | undefined {
  return readChoice(query, 'status', JOB_STATUSES);
}

/** Undefined if absent. @throws ProblemError `invalid` */
export function readChoice<T extends string>(
  query: QueryValues,
  name: string,
  choices: readonly T[],
): T | undefined {
  const text = query[name];
  if (text === undefined) return undefined;
  const choice = choices.find((known) => known === text);
  return choice ?? raise(refuseParameter(name, `must be one of ${choices.join(', ')}`));
}

/** Undefined if absent. @throws ProblemError `invalid` */
export function readText(query: QueryValues, name: string): string | undefined {
  const text = query[name];
  if (text === undefined || (typeof text === 'string' && text !== '')) return text;
  throw refuseParameter(name, 'must be given once and not be empty');
}

export function refuseParameter(name: string, rule: string): ProblemError {
  return new ProblemError('invalid', `${name} ${rule}`, { errors: [`${name}: ${rule}`] });
}

function raise(error: Error): never {
  throw error;
}

/** Millrace's own API. Other paths follow other services' APIs, or serve probes and scrapers. */
export const OWN_PATHS = /^\/v[12]\//;

/** So that a misspelt parameter is not silently ignored. @throws ProblemError `invalid` */
export function refuseUnknownParameters({ query, routeOptions }: FastifyRequest): void {
  if (typeof query !== 'object' || query === null) return;
  // Most requests have none, and are done here without a list.
  for (const _name in query) {
    const { operation } = routeOptions.config;
    if (!operation || !OWN_PATHS.test(operation.path)) return;
    const known = (operation.query ?? []).map(({ name }) => name);
    const unknown = Object.keys(query).filter((name) => !known.includes(name));
    if (unknown.length > 0) throw describeUnknown(unknown, known);
    return;
  }
}

function describeUnknown(unknown: readonly string[], known: readonly string[]): ProblemError {
  const rule = known.length > 0 ? `send one of ${known.join(', ')}` : 'this operation takes none';
  const errors = unknown
    .slice(0, MAX_DESCRIBED)
    .map((name) => `${name.slice(0, 200)}: is not a query parameter of this operation`);
  const detail = `The query parameter ${unknown[0]?.slice(0, 200)} is unknown; ${rule}.`;
  return new ProblemError('invalid', detail, { errors });
}
