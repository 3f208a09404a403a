// Reads what a request says: its user, its query parameters, its page of a list, its body, its trace, and the names
// in its path, which become the IDs of the caller's records. A problem names the invalid part.
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { KeyHolder } from '../../control/keys/keys.ts';
import type { NamedRecords } from '../../control/user-resources.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { jobTag } from '../../wire/job/job-schemas.ts';
import { LIST_LIMIT } from '../../wire/operations/operation.ts';
import { MAX_DESCRIBED, ProblemError } from '../../wire/problem.ts';
import { readTraceContext, TRACE_HEADERS } from '../../wire/trace-context.ts';
import { check, parseJson } from '../body/body.ts';

/** Far beyond any valid resource. */
const RESOURCE_BOUNDS = { maxDepth: 32, maxValues: 10_000 };

const NO_BYTES = Buffer.alloc(0);

type HeldRequest = Pick<FastifyRequest, 'holder'>;

/** Returns the holder of the request's key. @throws ProblemError `unauthorized` */
export function requireHolder({ holder }: HeldRequest): KeyHolder {
  if (holder) return holder;
  throw new ProblemError('unauthorized', 'no API key: send "Authorization: Bearer <key>"');
}

/** Returns the user of the request's key. @throws ProblemError `unauthorized` */
export function readUser(request: HeldRequest): string {
  return requireHolder(request).userId;
}

/** @throws ProblemError `malformed`, `invalid` that names every path */
export function readResourceBody<S extends z.ZodType>(
  body: Buffer | undefined,
  schema: S,
): z.infer<S> {
  return check(parseJson(body ?? NO_BYTES, RESOURCE_BOUNDS), schema);
}

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

/** The parameter `tags`, which may be repeated. @throws ProblemError `invalid` */
export function readTags({ tags }: QueryValues): string[] | undefined {
  if (tags === undefined) return undefined;
  const given = typeof tags === 'string' ? [tags] : tags;
  if (given.length > LIMITS.tagsOfJob) {
    throw refuseParameter('tags', `must have at most ${LIMITS.tagsOfJob} values`);
  }
  for (const tag of given) {
    const { error } = jobTag.safeParse(tag);
    if (error) throw refuseParameter('tags', error.issues[0]?.message ?? 'is invalid');
  }
  return given;
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

declare module 'fastify' {
  interface FastifyInstance {
    /** Most bytes of JSON in one page of a list. */
    listBytes: number;
  }
}

export interface PageRequest {
  /** Only records with a smaller position: lists are newest first. */
  before: number | undefined;
  limit: number;
  maxBytes: number;
}

type PagedRequest = Pick<FastifyRequest<{ Querystring: QueryValues }>, 'query' | 'server'>;

/** Reads the query parameters `cursor` and `limit`. @throws ProblemError `invalid` */
export function readPageRequest(
  { query, server }: PagedRequest,
  limits: typeof LIST_LIMIT = LIST_LIMIT,
): PageRequest {
  return {
    maxBytes: server.listBytes,
    before: readCursor(query),
    limit: readInteger(query, 'limit', limits) ?? limits.default,
  };
}

/** The `cursor` member of a response; absent on the last page. */
export function describeNext(next: number | undefined): { cursor?: string } {
  return next === undefined ? {} : { cursor: encodeCursor(next) };
}

/** The position as an opaque text. */
function encodeCursor(position: number): string {
  return Buffer.from(String(position)).toString('base64url');
}

function readCursor(query: QueryValues): number | undefined {
  const text = query['cursor'];
  if (text === undefined) return undefined;
  const decoded = typeof text === 'string' ? Buffer.from(text, 'base64url').toString('latin1') : '';
  // Positions of dead letters are negative.
  if (/^-?\d{1,16}$/.test(decoded)) return Number(decoded);
  throw refuseParameter('cursor', 'must be the cursor of an earlier response');
}

/** By the path parameter that takes an ID: `endpoint`, `pod`. */
export type NamedKinds = ReadonlyMap<string, NamedRecords>;

/** Scheme and host of a target that is an absolute URL. */
const ORIGIN = /^https?:\/\/[^/?#]*/;

/** Paths and queries with IDs in place of names. */
const targets = new WeakMap<FastifyRequest, string>();

/** Path and query of the request for another node, where a name may mean another record a moment later. */
export function readTarget(request: FastifyRequest): string {
  return targets.get(request) ?? request.originalUrl;
}

/**
 * Replaces names in the path by the IDs of the caller's records: the rest of the API sees only IDs. Call it behind
 * the check of the key, and before the request is forwarded: placement needs the ID of the endpoint. A name that the
 * caller has no record of stays as it is, and is not found later. @throws ProblemError `conflict` if several records
 * have the name
 */
export function resolveNames(request: FastifyRequest, kinds: NamedKinds): void {
  const { holder, params } = request;
  if (!holder || typeof params !== 'object' || params === null) return;
  for (const [parameter, records] of kinds) {
    const given: unknown = Reflect.get(params, parameter);
    if (typeof given !== 'string') continue;
    const id = records.resolve(holder.userId, given);
    if (id === given) continue;
    Object.assign(params, { [parameter]: id });
    targets.set(request, replaceSegment(request, parameter, id));
  }
}

function replaceSegment(request: FastifyRequest, parameter: string, id: string): string {
  const { routeOptions } = request;
  const target = readTarget(request);
  const [origin = ''] = ORIGIN.exec(target) ?? [];
  const [path = ''] = target.slice(origin.length).split(/[?#]/, 1);
  const at = (routeOptions.url ?? '').split('/').indexOf(`:${parameter}`);
  const segments = path.split('/').with(at, encodeURIComponent(id));
  return origin + segments.join('/') + target.slice(origin.length + path.length);
}

/** From the headers. */
export function readTrace(headers: IncomingHttpHeaders) {
  return readTraceContext(headers[TRACE_HEADERS.parent], headers[TRACE_HEADERS.state]);
}
