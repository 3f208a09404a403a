// Refuses query parameters that an operation does not describe, so that a misspelt one is not silently
// ignored.
import type { FastifyInstance } from 'fastify';
import { MAX_DESCRIBED } from '../../wire/issues.ts';
import { ProblemError } from '../../wire/problem.ts';

/** Millrace's own API. Other paths follow other services' APIs, or serve probes and scrapers. */
export const OWN_PATHS = /^\/v[12]\//;

/** Call it after the guard: an unauthorized caller learns nothing about parameters. */
export function refuseUnknownParameters(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const { query } = request;
    if (typeof query !== 'object' || query === null || isEmpty(query)) return done();
    const { operation } = request.routeOptions.config;
    if (!operation || !OWN_PATHS.test(operation.path)) return done();
    const known = (operation.query ?? []).map(({ name }) => name);
    const unknown = Object.keys(query).filter((name) => !known.includes(name));
    done(unknown.length > 0 ? describeUnknown(unknown, known) : undefined);
  });
}

function isEmpty(query: object): boolean {
  for (const _name in query) return false;
  return true;
}

function describeUnknown(unknown: readonly string[], known: readonly string[]): ProblemError {
  const rule = known.length > 0 ? `send one of ${known.join(', ')}` : 'this operation takes none';
  const errors = unknown
    .slice(0, MAX_DESCRIBED)
    .map((name) => `${name.slice(0, 200)}: is not a query parameter of this operation`);
  const detail = `The query parameter ${unknown[0]?.slice(0, 200)} is unknown; ${rule}.`;
  return new ProblemError('invalid', detail, { errors });
}
