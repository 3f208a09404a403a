// Builds the OpenAPI 3.1 document from the described operations. Each has its own responses, and the problems that its
// parameters, body and scope make possible.
import {
  type Answer,
  type Content,
  type HeaderName,
  JSON_TYPE,
  type Operation,
  type Parameter,
} from '../../wire/operations/operation.ts';
import { DESCRIBED_RESOURCES, OPERATIONS } from '../../wire/operations/operations.ts';
import { PROBLEMS } from '../../wire/problem.ts';
import { nameParameter, spellName } from '../../wire/routes/route.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { JSON_MEDIA_TYPE, sendShared } from '../http/byte-reply.ts';
import { PROBLEM_MEDIA_TYPE } from '../http/problem-reply.ts';
import { OWN_PATHS } from '../http/requests.ts';
import type { OperationHandler } from '../routes/operation-routes.ts';
import { describeSchema, describeSchemas, type JsonSchema, refer } from './schemas.ts';

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
    name: 'flows',
    description: 'Submit, read, cancel and retry graphs of jobs, perhaps on several endpoints.',
  },
  {
    name: 'batches',
    description:
      'Run the lines of a file as jobs when nothing more urgent waits, and read their results.',
  },
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
      headers: HEADERS,
      responses: describeProblems(),
      schemas: describeSchemas(),
    },
  };
}

export const PARAMETER = /:([a-z]+)/g;

/** Descriptions of path parameters that are not simply an ID. */
const PATH_PARAMETERS: Readonly<Record<string, string>> = {
  key: 'ID or name of the API key, not the key itself',
  path: 'Path behind this one, slashes included',
  model: 'Model ID',
};

export function describePathParameter(name: string): string {
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

type LimitHeader = 'RateLimit' | 'RateLimit-Policy';
type ProblemHeader = 'Retry-After' | 'WWW-Authenticate';
type AnyHeader = HeaderName | LimitHeader | ProblemHeader;

const STRING = { type: 'string' };

const HEADERS: Readonly<Record<AnyHeader, JsonSchema>> = {
  Location: { required: true, description: 'Path of the new resource.', schema: STRING },
  'Set-Cookie': {
    description: 'The cookie of the session. Absent if the platform needs no key.',
    schema: STRING,
  },
  'Cache-Control': {
    required: true,
    description: 'The body is for this caller only: no cache may keep it.',
    schema: { const: 'no-store' },
  },
  'Millrace-Next': {
    description:
      'Position to send as `after` in the next call. Server-sent events carry it as their `id` instead.',
    schema: STRING,
  },
  'Millrace-Status': { required: true, description: 'Status of the job.', schema: STRING },
  'Millrace-Reset': {
    description: 'A new attempt has begun: discard all earlier chunks.',
    schema: { const: 'true' },
  },
  'Millrace-Truncated': {
    description: 'Output before this was left out.',
    schema: { const: 'true' },
  },
  'Millrace-Entry': {
    required: true,
    description: 'Path of the handler in the archive, percent-encoded.',
    schema: STRING,
  },
  'Millrace-Sha256': {
    required: true,
    description: 'Hash of the archive, hexadecimal.',
    schema: STRING,
  },
  'Retry-After': {
    required: true,
    description: 'Seconds to wait before you repeat the call.',
    schema: { type: 'integer', minimum: 1 },
  },
  'WWW-Authenticate': { required: true, description: 'How to send a key.', schema: STRING },
  RateLimit: {
    description:
      'List of structured fields, one for each window (`minute`, `hour`, `day`): `r` calls left, `t` ' +
      'seconds until the window ends. Absent if the call is not counted.',
    schema: STRING,
  },
  'RateLimit-Policy': {
    description:
      'List of structured fields, one for each window: `q` calls allowed, `w` length ' +
      'in seconds. Absent if the call is not counted.',
    schema: STRING,
  },
};

const LIMIT_HEADERS: readonly LimitHeader[] = ['RateLimit', 'RateLimit-Policy'];

const HEADERS_OF_PROBLEMS: Readonly<Record<number, ProblemHeader>> = {
  401: 'WWW-Authenticate',
  429: 'Retry-After',
  503: 'Retry-After',
};

/** Possible for every operation: URL invalid or too long, headers too large, internal error, shutdown. */
const COMMON_STATUSES = [400, 414, 431, 500, 503];
const KEY_STATUSES = [401, 403, 429];
const BODY_STATUSES = [408, 413, 415, 422];

/** Describes one response for each status of a problem, and `Problem` for all others. */
function describeProblems(): Record<string, JsonSchema> {
  const statuses = new Set(Object.values(PROBLEMS).map(([status]) => status));
  const each = [...statuses].map((status) => [nameOf(status), describeProblem(status)] as const);
  const other = { description: 'Any other error.', content: PROBLEM_CONTENT };
  return { ...Object.fromEntries(each), Problem: other };
}

/** Maps each status, or `default`, to its description. */
function describeAnswers(operation: Operation): Record<string, JsonSchema> {
  const isLimited = operation.access !== 'open';
  const own = Object.entries(operation.answers).map(
    ([status, answer]) => [status, describeAnswer(answer, isLimited)] as const,
  );
  const { errors } = operation;
  if (errors) {
    const content = { [JSON_TYPE]: errors };
    const answer = describeAnswer({ description: 'Any error.', content }, isLimited);
    return { ...Object.fromEntries(own), '4XX': answer, '5XX': answer };
  }
  const problems = listRefusals(operation).map(
    (status) => [String(status), { $ref: referTo(nameOf(status)) }] as const,
  );
  return { default: { $ref: referTo('Problem') }, ...Object.fromEntries([...own, ...problems]) };
}

function listRefusals({ access, answers, body, method, path, query, refusals = [] }: Operation) {
  const isPassedOn = answers['default'] !== undefined;
  const mayHaveBody = body !== undefined || (method !== 'GET' && method !== 'HEAD');
  const statuses = new Set([
    ...COMMON_STATUSES,
    ...(access === 'open' ? [] : KEY_STATUSES),
    ...(path.includes(':') ? [404] : []),
    // Several records have the name.
    ...(path.includes(':') ? [409] : []),
    // Also for operations without parameters, because unknown ones are refused.
    ...(query || OWN_PATHS.test(path) ? [422] : []),
    ...(mayHaveBody && !isPassedOn ? BODY_STATUSES : []),
    ...refusals,
  ]);
  return [...statuses].sort((a, b) => a - b);
}

function describeAnswer(
  { content, description, headers = [] }: Answer,
  isLimited: boolean,
): JsonSchema {
  const names = [...headers, ...(isLimited ? LIMIT_HEADERS : [])];
  return {
    description,
    ...(names.length > 0 && { headers: referToHeaders(names) }),
    ...(content && {
      content: Object.fromEntries(
        Object.entries(content).map(([type, each]) => [type, describeContent(each)]),
      ),
    }),
  };
}

/** Returns the schema, with its example if it has one. */
function describeContent({ example, schema }: Content): JsonSchema {
  return { schema: describeSchema(schema), ...(example !== undefined && { example }) };
}

const PROBLEM_CONTENT = { [PROBLEM_MEDIA_TYPE]: { schema: { $ref: refer('Problem') } } };

function describeProblem(status: number): JsonSchema {
  const meanings = Object.entries(PROBLEMS)
    .filter(([, [known]]) => known === status)
    .map(([code, [, title]]) => `${title} (\`${code}\`).`);
  const own = HEADERS_OF_PROBLEMS[status];
  const names = [...(own ? [own] : []), ...(status === 401 ? [] : LIMIT_HEADERS)];
  return {
    description: meanings.join(' '),
    ...(names.length > 0 && { headers: referToHeaders(names) }),
    content: PROBLEM_CONTENT,
  };
}

function referToHeaders(names: readonly AnyHeader[]): JsonSchema {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

function nameOf(status: number): string {
  return `Problem${status}`;
}

function referTo(response: string): string {
  return `#/components/responses/${response}`;
}
