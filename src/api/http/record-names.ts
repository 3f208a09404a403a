// Replaces names in paths by the IDs of the caller's records: the rest of the API sees only IDs.
import type { FastifyRequest } from 'fastify';
import type { NamedRecords } from '../../control/name-index.ts';

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
 * Call it behind the check of the key, and before the request is forwarded: placement needs the ID of the endpoint. A
 * name that the caller has no record of stays as it is, and is not found later.
 * @throws ProblemError `conflict` if several records have the name
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
