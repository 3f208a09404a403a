// Describes an operation's responses for OpenAPI: its own, and the problems that its parameters, body
// and scope make possible.
import {
  type Answer,
  type Content,
  type HeaderName,
  JSON_TYPE,
  type Operation,
} from '../../wire/operations/operation.ts';
import { PROBLEMS } from '../../wire/problem.ts';
import { PROBLEM_MEDIA_TYPE } from '../http/problem-reply.ts';
import { OWN_PATHS } from '../http/requests.ts';
import { describeSchema, type JsonSchema, refer } from './schemas.ts';

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
const NO_BODY_STATUSES = [408, 413, 415, 422];

export function describeHeaders(): Readonly<Record<string, JsonSchema>> {
  return HEADERS;
}

/** Describes one response for each status of a problem, and `Problem` for all others. */
export function describeProblems(): Record<string, JsonSchema> {
  const statuses = new Set(Object.values(PROBLEMS).map(([status]) => status));
  const each = [...statuses].map((status) => [nameOf(status), describeProblem(status)] as const);
  const other = { description: 'Any other error.', content: PROBLEM_CONTENT };
  return { ...Object.fromEntries(each), Problem: other };
}

/** Maps each status, or `default`, to its description. */
export function describeAnswers(operation: Operation): Record<string, JsonSchema> {
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
  const mayHaveBody = method !== 'GET' && method !== 'HEAD' && !isPassedOn;
  const statuses = new Set([
    ...COMMON_STATUSES,
    ...(access === 'open' ? [] : KEY_STATUSES),
    ...(path.includes(':') ? [404] : []),
    // Several records have the name.
    ...(path.includes(':') ? [409] : []),
    // Also for operations without parameters, because unknown ones are refused.
    ...(query || OWN_PATHS.test(path) ? [422] : []),
    ...(body && !isPassedOn ? BODY_STATUSES : []),
    ...(mayHaveBody && !body ? NO_BODY_STATUSES : []),
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
export function describeContent({ example, schema }: Content): JsonSchema {
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
