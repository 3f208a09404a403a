// Refuses query parameters that an operation does not have: a misspelt one would be ignored in silence.
// What an operation has is what the OpenAPI document says of it.
import type { FastifyInstance } from 'fastify';
import { MAX_DESCRIBED } from '../../wire/issues.ts';
import { ProblemError } from '../../wire/problem.ts';
import { OWN_PATHS } from '../openapi/operation.ts';
import { OPERATIONS } from '../openapi/operations.ts';

const parameters = new Map(
  OPERATIONS.filter(({ path }) => OWN_PATHS.test(path)).map(({ method, path, query = [] }) => [
    `${method} ${path}`,
    query.map(({ name }) => name),
  ]),
);

/** Has to be called after the guard: who is not let in learns nothing of parameters. */
export function refuseUnknownParameters(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const { method, query, routeOptions } = request;
    const asked = method === 'HEAD' ? 'GET' : method;
    const known = parameters.get(`${asked} ${routeOptions.url}`);
    if (!known || typeof query !== 'object' || query === null) return done();
    const unknown = Object.keys(query).filter((name) => !known.includes(name));
    done(unknown.length > 0 ? describeUnknown(unknown, known) : undefined);
  });
}

function describeUnknown(unknown: readonly string[], known: readonly string[]): ProblemError {
  const rule = known.length > 0 ? `send one of ${known.join(', ')}` : 'this operation takes none';
  const errors = unknown
    .slice(0, MAX_DESCRIBED)
    .map((name) => `${name.slice(0, 200)}: is not a query parameter of this operation`);
  const detail = `The query parameter ${unknown[0]?.slice(0, 200)} is unknown; ${rule}.`;
  return new ProblemError('invalid', detail, { errors });
}
