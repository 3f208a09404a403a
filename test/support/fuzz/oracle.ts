// Decides from the OpenAPI document alone whether a platform may accept a request, or may call it
// invalid. It uses none of the platform's code.
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { createOpenApi } from '../../../src/api/openapi/openapi.ts';
import type { Asked } from './framing.ts';

const reference = z.object({ $ref: z.string() }).partial();
const schema = z.looseObject({ type: z.string().exactOptional() });
const parameter = z.object({
  ...{ name: z.string(), in: z.string(), schema, description: z.string() },
  required: z.boolean().default(false),
});
const operation = z.object({
  parameters: z.array(parameter).default([]),
  requestBody: z
    .object({ required: z.boolean(), content: z.record(z.string(), z.object({ schema })) })
    .exactOptional(),
});
const openApi = z.object({
  paths: z.record(z.string(), z.record(z.string(), operation)),
  components: z.object({ schemas: z.record(z.string(), z.unknown()) }),
});

const { components, paths } = openApi.parse(createOpenApi('0.0.0'));
const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;
const ajv = new Ajv2020({
  ...{ strict: false, allErrors: false },
  formats: {
    'date-time': (text: string) => DATE_TIME.test(text) && !Number.isNaN(Date.parse(text)),
  },
});
ajv.addSchema({ $id: 'openapi', components });

/** On other paths, probes and scrapers may add any parameters. */
const OWN_PATHS = /^\/v[12]\//;

interface Known {
  route: string;
  path: string;
  /** By name. */
  query: Map<string, { isNumber: boolean; isRequired: boolean; check: ValidateFunction }>;
  body: { isRequired: boolean; check: ValidateFunction } | undefined;
  /** All descriptions in the document that concern the request. */
  words: string;
  /** Returns the descriptions of a schema, with the rules that compose it. */
  rules: ReadonlySet<string>;
}

const operations = new Map(
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, each]) => {
      const route = `${method.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ':$1')}`;
      return [route, { route, ...know(path, each) }] as const;
    }),
  ),
);

function know(
  path: string,
  { parameters, requestBody }: z.infer<typeof operation>,
): Omit<Known, 'route'> {
  const query = parameters
    .filter((each) => each.in === 'query')
    .map(({ name, required: isRequired, schema: value }) => {
      const isNumber = value.type === 'integer' || value.type === 'number';
      return [name, { isNumber, isRequired, check: ajv.compile(value) }] as const;
    });
  const json = requestBody?.content['application/json']?.schema;
  const body = json && requestBody && { isRequired: requestBody.required, check: compile(json) };
  const words = spell([parameters, json]);
  return { path, query: new Map(query), body, words, rules: listRules(words) };
}

function listRules(words: string): Set<string> {
  const found = [...words.matchAll(/"description":("(?:[^"\\]|\\.)*")/g)];
  const descriptions = found.map(([, text = '""']) => z.string().parse(JSON.parse(text)));
  return new Set(descriptions.flatMap((text) => [text, ...text.split('; ')]));
}

function compile(value: z.infer<typeof schema>): ValidateFunction {
  const { $ref } = reference.parse(value);
  return ajv.compile($ref === undefined ? value : { $ref: `openapi${$ref}` });
}

/** Returns the descriptions of a schema, with those of referenced schemas. */
function spell(value: unknown): string {
  const text = JSON.stringify(value);
  const names = [...text.matchAll(/#\/components\/schemas\/(\w+)/g)].map(([, name = '']) => name);
  return [text, ...names.map((name) => spell(components.schemas[name]))].join('\n');
}

interface Judged {
  /** As the operations have it. */
  route: string;
  asked: Asked;
  status: number;
  /** Status of the answer. */
  body: string;
}

/** @returns the fault: accepted although the document forbids it, or refused although it fits */
export function judgeAcceptance({ asked, body, route, status }: Judged): string[] {
  const known = operations.get(route);
  if (!known || known.path.startsWith('/lb/')) return [];
  if (status !== 422 && status >= 300) return [];
  const violations = listViolations(known, asked);
  if (status < 300) {
    return violations.map((violation) => `${status} against the document: ${violation}`);
  }
  if (violations.length > 0) return [];
  const unexplained = readErrors(body).filter((error) => !isExplained(known, error));
  return unexplained.map((error) => `422 for what fits the document: ${error}`);
}

function listViolations({ body, path, query, route }: Known, asked: Asked): string[] {
  const isOwn = OWN_PATHS.test(path);
  const isRead = !/^(GET|HEAD) /.test(route);
  const named = asked.query.map(([name, value]) => [decode(name), decode(value)] as const);
  const names = named.map(([name]) => name);
  const wrong = named.flatMap(([name, text]) => {
    const known = query.get(name);
    if (!known) return isOwn ? [`unknown parameter ${JSON.stringify(name.slice(0, 100))}`] : [];
    const value = known.isNumber && /^-?\d{1,15}$/.test(text) ? Number(text) : text;
    return known.check(value) ? [] : [`${name}: ${ajv.errorsText(known.check.errors)}`];
  });
  const twice = [...query.keys()].filter((name) => names.indexOf(name) !== names.lastIndexOf(name));
  const missing = [...query].filter(
    ([name, { isRequired }]) => isRequired && !names.includes(name),
  );
  return [
    ...wrong,
    ...missing.map(([name]) => `${name} is missing`),
    ...twice.map((name) => `${name} is there twice`),
    ...(isRead ? listBodyViolations(body, asked.body) : []),
  ];
}

function listBodyViolations(wanted: Known['body'], bytes: Buffer | undefined): string[] {
  if (!bytes || bytes.length === 0) return wanted?.isRequired ? ['there is no body'] : [];
  try {
    const value: unknown = JSON.parse(utf8.decode(bytes));
    if (!wanted) return JSON.stringify(value) === '{}' ? [] : ['there is a body'];
    return wanted.check(value) ? [] : [ajv.errorsText(wanted.check.errors)];
  } catch (error) {
    return [String(error)];
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

const problem = z.looseObject({ detail: z.string(), errors: z.array(z.string()).exactOptional() });

function readErrors(body: string): string[] {
  const { detail, errors } = problem.parse(JSON.parse(body));
  return errors && errors.length > 0 ? errors : [detail];
}

/**
 * Finds errors that contain a value of the request, and the text of the document that states their
 * rule.
 */
const RULES: readonly (readonly [error: RegExp, words: string])[] = [
  [/^args: args (have a .* that is not closed|end with a backslash)/, 'every quote must be closed'],
  [/^webhook: .* is not an allowed address/, 'public address'],
  [/^endpointId: endpoint .* not found/, 'ID or name of the endpoint'],
  [/^timeZone: must be an IANA time zone/, 'IANA time zone'],
  [/^cron: exactly one of /, 'One of `cron`, `every` and `at` must be set'],
  [/^cron: /, 'Cron expression'],
  [/^phase: must be less than every, /, 'less than `every`'],
  [/^at: must be in the future/, 'in the future'],
  [/^until: no tick comes /, 'No tick comes after this time'],
  [/^input: must have at most 32768 bytes/, 'at most 32768 bytes of JSON'],
  [/^from: must be before `to`$/, 'before `to`'],
  [/^from: is too long ago: /, 'in one answer'],
  [/^template: template .* not found/, 'ID or name of a template'],
  [/^templateId: template .* not found/, 'ID or name of one of your templates'],
  [/^cursor: must be the cursor of an earlier response$/, '`cursor` of an earlier answer'],
  [/^jobs\[\d+\]\.name: jobs\[\d+\] is named /, 'unique in the flow'],
  [/^filter\.status: must be one of .* to /, 'A status that allows the change'],
  [/^templateId: template \S+ has no http port/, 'with an http port'],
  [/^templateId: template \S+ has neither handler nor args/, 'with args or a handler'],
  [/^registry: you have no registry with the ID or name /, 'one of your registries'],
  [/^mounts\.network\[0\]\.volumeId: /, 'one of your network volumes'],
  [/^dataCenterId: data center .* not found/, 'ID of a data center'],
  [/^handler: (no file .* on the platform's machine|.* is not a file)$/, 'an existing file'],
  [/^kubernetes: not available/, 'Only on the engine Kubernetes'],
  [/^globalNetworking: not available on the engine process/, 'Not available on the process engine'],
  [/^args: required, because the process engine/, 'a pod without a handler needs it'],
  [/^(gpu\.id|gpuTypeIds\[\d+\]): GPU type .* is not in the catalog/, 'GPU type'],
  [/^gpu\.count: there are /, 'as many as the catalog has'],
  [/^cpu\.id: CPU flavor .* is not in the catalog/, 'CPU flavor of the catalog'],
  [/^cpu\.vcpuCount: .* has /, '`vcpuCounts`'],
  [/^cpu\.memory: .* has at most /, '`maxMemory`'],
  [/^(disk|size|mounts\.persistent\.size): can only grow/, 'can only grow'],
  [/^scopes\[\d+\]: must be one of /, 'binds it to one endpoint'],
  // JSON parsers may round such numbers.
  [/: Too big: expected int to be <=9007199254740991$/, ''],
  [/^input: must be nested at most 1000 levels deep$/, 'at most 1000 levels deep'],
  [/^after: attempt \d+ has not started/, 'an attempt that has begun'],
];

/** Descriptions state the rules that JSON Schema cannot express, with the words of their errors. */
function isExplained({ rules, words }: Known, error: string): boolean {
  if (RULES.some(([pattern, said]) => pattern.test(error) && words.includes(said))) return true;
  const [, message = error] = /^\S*: (.+)$/s.exec(error) ?? [];
  return rules.has(message) || rules.has(error);
}
