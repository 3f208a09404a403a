// The operations about the platform itself, and the requests that it forwards to load-balanced
// workers.
import { z } from 'zod';
import { platformState } from '../answer-schemas.ts';
import { LB_ROUTE, SYSTEM_ROUTES } from '../routes/routes.ts';
import { ANY_TYPE, answerJson, describeOperations, type Operation } from './operation.ts';

/** The methods that OpenAPI can describe; any other method is forwarded too. */
const LB_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

export const SYSTEM_OPERATIONS = describeOperations('platform', SYSTEM_ROUTES, {
  getHealth: {
    summary: 'Check that the platform is alive',
    answers: answerJson(platformState, 'The platform is alive.', {
      status: 'ok',
      version: '0.1.0',
    }),
  },
  getReadiness: {
    summary: 'Check that the platform can serve',
    answers: answerJson(platformState, 'The platform is ready.', {
      status: 'ready',
      version: '0.1.0',
    }),
  },
  getMetrics: {
    summary: 'Return metrics for Prometheus',
    description: "The metrics cover all users, so the call needs a key of the platform's owner.",
    answers: {
      200: {
        description: 'Metrics.',
        content: {
          'text/plain': {
            schema: z.string(),
            example: 'millrace_queue_depth{endpoint="echo"} 5\n',
          },
        },
      },
    },
  },
  getOpenApi: {
    summary: 'Return this document',
    answers: answerJson(z.looseObject({ openapi: z.string() }), 'OpenAPI 3.1.', {
      openapi: '3.1.0',
    }),
  },
});

/** HEAD of the probes: operations of their own, because probes use them. */
export const PROBE_OPERATIONS: readonly Operation[] = [
  describeProbe(SYSTEM_OPERATIONS.getHealth),
  describeProbe(SYSTEM_OPERATIONS.getReadiness),
];

function describeProbe(operation: Operation): Operation {
  const answers = { 200: { description: 'The check passes.' } };
  return { ...operation, id: `${operation.id}Head`, method: 'HEAD', answers };
}

/** Requests to the workers of a load-balancing endpoint; the answers are the workers' own. */
export const LB_OPERATIONS: readonly Operation[] = LB_METHODS.map((method) => ({
  ...{ id: `forward${method.charAt(0)}${method.slice(1).toLowerCase()}`, tag: 'load balancing' },
  ...{ method, path: `${LB_ROUTE.path}/:path`, access: LB_ROUTE.access },
  summary: 'Forward a request to a worker of a load-balancing endpoint',
  description:
    '`path` is everything after the endpoint ID, slashes included. The platform forwards path, query, ' +
    'headers and body to the worker, without the API key, and forwards WebSocket upgrades too. ' +
    'Responses come from the worker, except problems with a `code` of the platform.',
  ...(hasBody(method) && {
    body: { schema: z.unknown(), mediaType: ANY_TYPE, presence: 'optional' },
  }),
  answers: {
    default: {
      description: 'Response of the worker.',
      ...(method !== 'HEAD' && { content: { [ANY_TYPE]: { schema: z.unknown() } } }),
    },
  },
  refusals: [502, 504],
}));

function hasBody(method: string): boolean {
  return ['POST', 'PUT', 'PATCH'].includes(method);
}
