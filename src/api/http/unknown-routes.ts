// Answers requests without a route: 404, or 405 with the methods that the path supports.
import type { FastifyInstance } from 'fastify';
import { ProblemError } from '../../wire/problem.ts';

interface KnownPath {
  pattern: RegExp;
  methods: Set<string>;
}

/** Call it before routes are added: it collects them. */
export function answerUnknownRoutes(app: FastifyInstance): void {
  const known = new Map<string, KnownPath>();

  app.addHook('onRoute', ({ method, url }) => {
    const path = known.get(url) ?? { pattern: toPattern(url), methods: new Set() };
    for (const name of [method].flat()) path.methods.add(name);
    known.set(url, path);
  });

  // In `onRequest`, because no body needs to be read.
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) return done();
    const { method, url } = request;
    const [path = url] = url.split('?', 1);
    const methods = [...known.values()]
      .filter(({ pattern }) => pattern.test(path))
      .flatMap((found) => [...found.methods]);
    if (methods.length === 0) return done(new ProblemError('not_found', 'Path not found.'));
    reply.header('allow', methods.join(', '));
    if (method === 'OPTIONS') {
      reply.code(204).send();
      return;
    }
    const detail = `This path does not support ${method}; use ${methods.join(', ')}.`;
    return done(new ProblemError('method_not_allowed', detail));
  });
}

function toPattern(url: string): RegExp {
  return new RegExp(`^${url.replace(/:[a-z]+/g, '[^/]+').replace('*', '.*')}$`);
}
