// Every operation that is described: the server's routes and the OpenAPI document follow from this list. Those about the
// platform itself and load-balanced workers are described here. Not listed: the verbs of workers
// (docs/protocol.md) and the paths of RunPod's API.
import { z } from 'zod';
import { ACTIVITY_OPERATIONS } from '../resources/activity.ts';
import { BILLING_OPERATIONS } from '../resources/billing.ts';
import { budgets } from '../resources/budget.ts';
import { CATALOG_OPERATIONS } from '../resources/catalog.ts';
import { endpoints } from '../resources/endpoint.ts';
import { EVENT_OPERATIONS } from '../resources/events.ts';
import { KEY_OPERATIONS, keys, SESSION_OPERATIONS } from '../resources/key.ts';
import { LIMITS_OPERATIONS } from '../resources/limits.ts';
import { networkVolumes } from '../resources/network-volume.ts';
import { NODE_OPERATIONS } from '../resources/nodes.ts';
import { POD_OPERATIONS, pods } from '../resources/pod.ts';
import { registries } from '../resources/registry.ts';
import { SCALER_OPERATIONS } from '../resources/scaling.ts';
import { SCHEDULE_OPERATIONS, schedules } from '../resources/schedule.ts';
import { sharedLimits } from '../resources/shared-limit.ts';
import { templates } from '../resources/template.ts';
import { VERSION_OPERATIONS } from '../resources/version.ts';
import { LB_ROUTE, SYSTEM_ROUTES } from '../routes/routes.ts';
import { BATCH_OPERATIONS } from './batch-operations.ts';
import { FLOW_OPERATIONS } from './flow-operations.ts';
import { JOB_OPERATIONS } from './job-operations.ts';
import { OPENAI_BATCH_OPERATIONS, OPENAI_OPERATIONS } from './openai-operations.ts';
import {
  ANY_TYPE,
  answerJson,
  bodyJson,
  describeOperations,
  JSON_TYPE,
  type Operation,
} from './operation.ts';
import type { FixedResource } from './resource.ts';

/** The methods that OpenAPI can describe; any other method is forwarded too. */
const LB_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

export const platformState = z.object({
  status: z.enum(['ok', 'ready']),
  version: z.string(),
  warnings: z
    .array(z.string())
    .exactOptional()
    .describe('Problems that need attention while the platform keeps serving; only in /readyz'),
});

export const mcpMessage = z.looseObject({
  jsonrpc: z.literal('2.0'),
  id: z.union([z.string(), z.number()]).exactOptional(),
  method: z.string(),
});
const members = z.record(z.string(), z.unknown()).exactOptional();
const mcpAnswer = z.looseObject({
  jsonrpc: z.literal('2.0'),
  id: z.union([z.string(), z.number()]).nullable(),
  result: members,
  error: members,
});
const MCP_ANSWER = { jsonrpc: '2.0', id: 1, result: { tools: [] } } as const;

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
  callMcp: {
    summary: 'Call the platform as a server of the Model Context Protocol',
    description:
      'Streamable HTTP without sessions. Each tool is an operation of this document, called with the key of this ' +
      'call; both calls count for the rate limit. A call has one message: batches are refused.',
    query: [
      {
        name: 'write',
        schema: z.enum(['true', 'false']).default('false'),
        description: '`true` offers tools that change something, too',
      },
    ],
    body: bodyJson(mcpMessage, { jsonrpc: '2.0', id: 1, method: 'tools/list' }),
    answers: {
      200: {
        description: 'The answer to the message: a result or an error.',
        content: {
          [JSON_TYPE]: { schema: mcpAnswer, example: MCP_ANSWER },
          'text/event-stream': {
            schema: z.string(),
            example: `event: message\ndata: ${JSON.stringify(MCP_ANSWER)}\n\n`,
          },
        },
      },
      202: { description: 'The notification has arrived.' },
    },
  },
});

/** HEAD of the probes: operations of their own, because probes use them. */
const PROBE_OPERATIONS: readonly Operation[] = [
  describeProbe(SYSTEM_OPERATIONS.getHealth),
  describeProbe(SYSTEM_OPERATIONS.getReadiness),
];

function describeProbe(operation: Operation): Operation {
  const answers = { 200: { description: 'The check passes.' } };
  return { ...operation, id: `${operation.id}Head`, method: 'HEAD', answers };
}

/** Requests to the workers of a load-balancing endpoint; the answers are the workers' own. */
const LB_OPERATIONS: readonly Operation[] = LB_METHODS.map((method) => ({
  id: `forward${method.charAt(0)}${method.slice(1).toLowerCase()}`,
  tag: 'load balancing',
  method,
  path: `${LB_ROUTE.path}/:path`,
  access: LB_ROUTE.access,
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

export const DESCRIBED_RESOURCES = {
  pods,
  endpoints,
  templates,
  keys,
  networkVolumes,
  registries,
  budgets,
  sharedLimits,
  schedules,
} satisfies Readonly<Record<string, FixedResource>>;

export const OPERATIONS: readonly Operation[] = [
  ...Object.values(JOB_OPERATIONS),
  ...Object.values(FLOW_OPERATIONS),
  ...Object.values(BATCH_OPERATIONS),
  ...Object.values(OPENAI_OPERATIONS),
  ...Object.values(OPENAI_BATCH_OPERATIONS),
  ...Object.values(DESCRIBED_RESOURCES).flatMap(({ operations }) => Object.values(operations)),
  ...Object.values(POD_OPERATIONS),
  ...Object.values(SCALER_OPERATIONS),
  ...Object.values(SCHEDULE_OPERATIONS),
  ...Object.values(VERSION_OPERATIONS),
  ...Object.values(CATALOG_OPERATIONS),
  ...Object.values(BILLING_OPERATIONS),
  ...Object.values(KEY_OPERATIONS),
  ...Object.values(LIMITS_OPERATIONS),
  ...Object.values(NODE_OPERATIONS),
  ...Object.values(SESSION_OPERATIONS),
  ...Object.values(ACTIVITY_OPERATIONS),
  ...Object.values(EVENT_OPERATIONS),
  ...Object.values(SYSTEM_OPERATIONS),
  ...PROBE_OPERATIONS,
  ...LB_OPERATIONS,
];
