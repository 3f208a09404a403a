// Checks an answer against the OpenAPI document: its status, headers, media type and body. Stricter
// than a client: a member that the document does not name is a fault.
import { Ajv2020 } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { createOpenApi } from '../../src/api/openapi/openapi.ts';

const MAX_NAME_CHARS = 200;

export interface SeenAnswer {
  method: string;
  /** As it was called, with or without a query. */
  path: string;
  status: number;
  headers: Headers;
  /** Undefined without a body, or if it is not checked. */
  body: string | undefined;
}

const reference = z.object({ $ref: z.string() });
const header = z.object({ required: z.boolean().default(false), schema: z.looseObject({}) });
const response = z.object({
  headers: z.record(z.string(), reference).default({}),
  content: z.record(z.string(), z.object({ schema: z.looseObject({}) })).exactOptional(),
});
const openApi = z.object({
  paths: z.record(
    z.string(),
    z.record(z.string(), z.object({ responses: z.record(z.string(), reference.or(response)) })),
  ),
  components: z.object({
    responses: z.record(z.string(), response),
    headers: z.record(z.string(), header),
    schemas: z.record(z.string(), z.unknown()),
  }),
});

const { components, paths } = openApi.parse(createOpenApi('0.0.0'));

const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false });
ajv.addSchema({ $id: 'openapi', components: { schemas: close(components.schemas) } });

/** Those with the fewest parameters first: /v2/pods/{pod} is no operation on jobs. */
const known = Object.entries(paths)
  .map(([path, methods]) => ({ path, methods, pattern: toPattern(path) }))
  .sort((a, b) => a.path.split('{').length - b.path.split('{').length);

/** Answers that the document leaves open. */
const UNTOLD =
  /^(\*|\/)$|^\/(console(\/|$)|runpod\/|v2\/[^/]+\/worker\/|v1\/endpoints\/[^/]+\/versions\/[^/]+\/handler$)/;
/** The user's own worker may have answered, or a handler. */
const PASSED_ON = /^\/lb\/[^/]+|^\/v2\/[^/]+\/openai\//;
/** Callers learn that an operation does not exist only after a readable request. */
const BEFORE_ALL = [400, 503];

/** Whether the document describes the answers of this path. */
export function isTold(path: string): boolean {
  return !UNTOLD.test(path) && !PASSED_ON.test(path);
}

/** @throws Error that names the deviation */
export function checkAnswer(answer: SeenAnswer): void {
  const [path = ''] = answer.path.split('?', 1);
  if (!isTold(path)) return;
  const faults = listFaults({ ...answer, path });
  if (faults.length === 0) return;
  const { body = '', method, status } = answer;
  const shown = `${method} ${path} → ${status} ${body.slice(0, 300)}`;
  throw new Error(`not as the OpenAPI document says: ${shown}\n${faults.join('\n')}`);
}

function listFaults(answer: SeenAnswer): string[] {
  const { method, path, status } = answer;
  // `/schedules/preview` is a schedule too: the method decides.
  const fitting = known.filter(({ pattern }) => pattern.test(path));
  const wanted = method === 'HEAD' ? 'get' : method.toLowerCase();
  const found = fitting.find(({ methods }) => wanted in methods) ?? fitting[0];
  const operation = found?.methods[method.toLowerCase()];
  if (found && !operation && answersWithoutOperation(answer, found.methods)) return [];
  if (!operation && !BEFORE_ALL.includes(status)) {
    const isUnnamed = !found || (status === 404 && hasLongName(path));
    const expected = isUnnamed ? 404 : 405;
    if (status !== expected) return [`unknown operation: expected ${expected}`];
    if (!isUnnamed && !answer.headers.has('allow')) return ['405 without Allow'];
  }
  const described = operation
    ? operation.responses[String(status)]
    : components.responses[`Problem${status}`];
  if (!described) return ['the status is not documented'];
  return listFaultsOf(answer, '$ref' in described ? resolve(described) : described);
}

/** Nothing has a name as long: no route is looked for. */
function hasLongName(path: string): boolean {
  return path.split('/').some((name) => name.length > MAX_NAME_CHARS);
}

/** OPTIONS, and HEAD in the place of GET, are no operations of their own. */
function answersWithoutOperation(
  { headers, method, status }: SeenAnswer,
  methods: Readonly<Record<string, unknown>>,
): boolean {
  if (method === 'OPTIONS') return status === 204 && headers.has('allow');
  return method === 'HEAD' && 'get' in methods && status !== 405;
}

type Response = z.infer<typeof response>;

function resolve({ $ref }: z.infer<typeof reference>): Response {
  const found = components.responses[$ref.replace('#/components/responses/', '')];
  if (!found) throw new Error(`${$ref} is not in the document`);
  return found;
}

function listFaultsOf(answer: SeenAnswer, described: Response): string[] {
  return [...listHeaderFaults(answer, described), ...listBodyFaults(answer, described)];
}

function listHeaderFaults({ headers }: SeenAnswer, described: Response): string[] {
  return Object.entries(described.headers).flatMap(([name, { $ref }]) => {
    const wanted = components.headers[$ref.replace('#/components/headers/', '')];
    if (!wanted) return [`${$ref} is not in the document`];
    const text = headers.get(name);
    if (text === null) return wanted.required ? [`${name} is missing`] : [];
    return validate(wanted.schema['type'] === 'integer' ? Number(text) : text, wanted.schema, name);
  });
}

function listBodyFaults({ body, headers, method }: SeenAnswer, { content }: Response): string[] {
  const [type = ''] = (headers.get('content-type') ?? '').split(';', 1);
  if (!content) return body && method !== 'HEAD' ? ['a body, although none is documented'] : [];
  const described = content[type];
  if (!described) return [`the media type is ${type}, documented: ${Object.keys(content)}`];
  if (body === undefined || method === 'HEAD' || !/^application\/(problem\+)?json$/.test(type))
    return [];
  return validate(JSON.parse(body), described.schema, 'body');
}

function validate(value: unknown, schema: object, root: string): string[] {
  const check = ajv.compile(rebase(schema));
  if (check(value)) return [];
  return (check.errors ?? []).map(({ instancePath, message, params }) => {
    return `${root}${instancePath}: ${message} ${JSON.stringify(params)}`;
  });
}

const rebased = new WeakMap<object, object>();

/** The same each time, so that it is compiled once. */
function rebase(schema: object): object {
  const before = rebased.get(schema);
  if (before) return before;
  const { $ref } = reference.partial().parse(schema);
  const after = $ref === undefined ? schema : { $ref: `openapi${$ref}` };
  rebased.set(schema, after);
  return after;
}

/** No members but those that are named. */
function close(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(close);
  if (typeof schema !== 'object' || schema === null) return schema;
  const closed = Object.fromEntries(
    Object.entries(schema).map(([key, each]) => [key, close(each)]),
  );
  const isOpen = 'properties' in closed && !('additionalProperties' in closed);
  return isOpen ? { ...closed, additionalProperties: false } : closed;
}

function toPattern(path: string): RegExp {
  return new RegExp(`^${path.replaceAll('{path}', '.*').replaceAll(/\{\w+\}/g, '[^/]+')}$`);
}
