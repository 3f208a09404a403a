// Builds the OpenAPI 3.1 document from the described operations.
import { JSON_TYPE, type Operation, type Parameter } from '../../wire/operations/operation.ts';
import { DESCRIBED_RESOURCES, OPERATIONS } from '../../wire/operations/operations.ts';
import { nameParameter, spellName } from '../../wire/routes/route.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { JSON_MEDIA_TYPE, sendShared } from '../http/byte-reply.ts';
import type { OperationHandler } from '../routes/operation-routes.ts';
import {
  describeAnswers,
  describeContent,
  describeHeaders,
  describeProblems,
} from './responses.ts';
import { describeSchema, describeSchemas, type JsonSchema } from './schemas.ts';

export interface OpenApi {
  openapi: string;
  info: JsonSchema;
  servers: readonly { url: string; description: string }[];
  tags: readonly { name: string; description: string }[];
  /** Path → method in lower case → operation. */
  paths: Record<string, Record<string, JsonSchema>>;
  security: readonly JsonSchema[];
  components: Record<string, JsonSchema>;
}

const DESCRIPTION = [
  'Every error is `application/problem+json`; `code` is from a closed list. Only below `/openai/v1/` errors ' +
    'have the form of the OpenAI API.',
  'Unknown paths return 404; unsupported methods return 405 with `Allow`.',
  'Send the API key as `Authorization: Bearer <key>`, or without the word Bearer. `x-scope` names the scope ' +
    'that the key needs; without it, any key will do. Resources of other users return 404.',
  'A browser may send the cookie of a session (`POST /v1/session`) instead of a key. Every request with it that changes ' +
    'something needs the header `Millrace-Console: 1`.',
  'Every `GET` without side effects also supports `HEAD`. `OPTIONS` returns 204 with `Allow`.',
  'Operations without a request body accept an empty JSON object and refuse any other body; `GET` ignores it.',
  'Clients must ignore unknown members of responses: later versions may add some.',
  'Not described here: the worker protocol (`/v2/{endpoint}/worker/…`, in docs/protocol.md), ' +
    "and `/runpod/…`, which follows RunPod's API.",
].join('\n\n');

const TAGS: OpenApi['tags'] = [
  { name: 'jobs', description: 'Submit, read, cancel and retry the jobs of an endpoint.' },
  {
    name: 'openai',
    description:
      'The OpenAI API of an endpoint whose handler takes `openai_route` and `openai_input`.',
  },
  ...Object.values(DESCRIBED_RESOURCES).map(({ about, outline }) => ({
    name: outline.plural,
    description: about,
  })),
  {
    name: 'catalog',
    description: 'GPU types and CPU flavors with their prices, and data centers.',
  },
  { name: 'load balancing', description: 'Requests forwarded to workers unchanged.' },
  { name: 'console', description: 'Sessions of browsers, and what the web console shows.' },
  { name: 'billing', description: 'What pods, endpoints and network volumes cost.' },
  { name: 'platform', description: 'The platform itself.' },
];

/** @param version of the package */
export function createOpenApi(version: string): OpenApi {
  const paths: OpenApi['paths'] = {};
  for (const operation of OPERATIONS) {
    const path = operation.path.replaceAll(PARAMETER, '{$1}');
    paths[path] = { ...paths[path], [operation.method.toLowerCase()]: describe(operation) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Millrace',
      version,
      license: { name: 'MIT', identifier: 'MIT' },
      description: DESCRIPTION,
    },
    servers: [{ url: '/', description: 'The platform that serves this document' }],
    tags: TAGS,
    security: [{ bearer: [] }, { bareKey: [] }],
    paths,
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        bareKey: { type: 'apiKey', in: 'header', name: 'Authorization' },
      },
      headers: describeHeaders(),
      responses: describeProblems(),
      schemas: describeSchemas(),
    },
  };
}

const PARAMETER = /:([a-z]+)/g;

/** Descriptions of path parameters that are not simply an ID. */
const PATH_PARAMETERS: Readonly<Record<string, string>> = {
  key: 'ID or name of the API key, not the key itself',
  path: 'Path behind this one, slashes included',
  model: 'Model ID',
};

function describePathParameter(name: string): string {
  const named = Object.values(RESOURCES).find((outline) => nameParameter(outline) === name);
  const noun = named && spellName(named.singular);
  const ofNamed = `ID of the ${noun}, or its name: a DNS label that no other ${noun} of yours has`;
  const other = `${name.charAt(0).toUpperCase()}${name.slice(1)} ID`;
  return PATH_PARAMETERS[name] ?? (noun ? ofNamed : other);
}

function describe(operation: Operation): JsonSchema {
  const { access, body, description, headers = [], id, path, query = [], summary, tag } = operation;
  const parameters = [
    ...[...path.matchAll(PARAMETER)].map(([, name = '']) => ({
      name,
      in: 'path',
      required: true,
      description: describePathParameter(name),
      schema: { type: 'string' },
    })),
    ...query.map((parameter) => describeParameter('query', parameter)),
    ...headers.map((parameter) => describeParameter('header', parameter)),
  ];
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description && { description }),
    ...(access === 'open' ? { security: [] } : access !== 'key' && { 'x-scope': access }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: body.presence !== 'optional',
        content: { [body.mediaType ?? JSON_TYPE]: describeContent(body) },
      },
    }),
    responses: describeAnswers(operation),
  };
}

function describeParameter(
  place: 'query' | 'header',
  { description, name, presence, schema }: Parameter,
): JsonSchema {
  return {
    name,
    in: place,
    description,
    schema: describeSchema(schema),
    ...(presence && { required: true }),
  };
}

/**
 * Serves GET /openapi.json. Needs no key, because the document contains no user's data. @param version of the package
 */
export function handleOpenApi(version: string): OperationHandler {
  let document: Buffer | undefined;
  return async (_request, reply) => {
    // Built on the first request, because few clients request it.
    document ??= Buffer.from(JSON.stringify(createOpenApi(version)));
    return sendShared(reply, { mediaType: JSON_MEDIA_TYPE, pieces: [document] });
  };
}
