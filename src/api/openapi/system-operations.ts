// The operations about the platform itself, and the way to load-balanced workers, for the OpenAPI document.
import { z } from 'zod';
import { platformState } from '../../wire/answers.ts';
import { LB_BASE } from '../../wire/routes.ts';
import { ANY_TYPE, answerJson, JSON_TYPE, type Operation } from './operation.ts';

/** Where the document itself is served. */
export const OPENAPI_PATH = '/openapi.json';

/** Those that an OpenAPI document has words for; any other is passed on as well. */
const LB_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

export const SYSTEM_OPERATIONS: readonly Operation[] = [
  ...probe({ path: '/healthz', id: 'getHealth', summary: 'Check that the platform is alive' }),
  ...probe({ path: '/readyz', id: 'getReadiness', summary: 'Check that the platform can serve' }),
  {
    ...{ id: 'getMetrics', tag: 'platform', method: 'GET', path: '/metrics' },
    access: 'jobs:read',
    summary: 'Metrics for Prometheus',
    description: "Of all users: for keys of the platform's owner only.",
    answers: { 200: { description: 'Metrics.', content: { 'text/plain': z.string() } } },
  },
  {
    ...{ id: 'getOpenApi', tag: 'platform', method: 'GET', path: OPENAPI_PATH },
    access: 'open',
    summary: 'This document',
    answers: {
      200: {
        description: 'OpenAPI 3.1.',
        content: { [JSON_TYPE]: z.looseObject({ openapi: z.string() }) },
      },
    },
  },
  ...LB_METHODS.map(passOnOperation),
];

function probe(of: { path: string; id: string; summary: string }): Operation[] {
  const common = { ...of, tag: 'platform', access: 'open' } as const;
  return [
    { ...common, method: 'GET', answers: answerJson(platformState, 'It is.') },
    {
      ...{ ...common, id: `${of.id}Head`, method: 'HEAD' },
      answers: { 200: { description: 'It is.' } },
    },
  ];
}

function passOnOperation(method: string): Operation {
  const name = method.charAt(0) + method.slice(1).toLowerCase();
  return {
    ...{ id: `passOn${name}`, tag: 'load balancing', method, path: `${LB_BASE}/:endpoint/:path` },
    access: 'jobs:write',
    summary: 'A request to a worker of a load-balancing endpoint',
    description:
      '`path` is all that follows, slashes, query and body included, and goes to the worker as it came, ' +
      'without the API key. WebSocket upgrades are passed on too. Problems are of the platform when ' +
      'their `code` says so.',
    ...(hasBody(method) && {
      body: { schema: z.unknown(), mediaType: ANY_TYPE, presence: 'optional' },
    }),
    answers: {
      default: {
        description: 'Answer of the worker.',
        ...(method !== 'HEAD' && { content: { [ANY_TYPE]: z.unknown() } }),
      },
    },
    refusals: [502, 504],
  };
}

function hasBody(method: string): boolean {
  return ['POST', 'PUT', 'PATCH'].includes(method);
}
