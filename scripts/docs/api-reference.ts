// The reference of the HTTP API as Markdown: one page for each tag of the OpenAPI document, and one for what all share.
import { z } from 'zod';
import type { Page } from './pages.ts';

const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const;

const number = z.number().optional();
const text = z.string().optional();

const schema = z.object({
  $ref: text,
  type: z.union([z.string(), z.array(z.string())]).optional(),
  description: text,
  format: text,
  enum: z.array(z.unknown()).optional(),
  default: z.unknown().optional(),
  minimum: number,
  maximum: number,
  minLength: number,
  maxLength: number,
  minItems: number,
  maxItems: number,
  required: z.array(z.string()).optional(),
  get properties() {
    return z.record(z.string(), schema).optional();
  },
  get items() {
    return schema.optional();
  },
  get anyOf() {
    return z.array(schema).optional();
  },
  get oneOf() {
    return z.array(schema).optional();
  },
  get allOf() {
    return z.array(schema).optional();
  },
});

type Schema = z.infer<typeof schema>;

const content = z.record(
  z.string(),
  z.object({ schema: schema.optional(), example: z.unknown().optional() }),
);

const operation = z.object({
  tags: z.array(z.string()),
  summary: z.string(),
  description: z.string().optional(),
  'x-scope': z.string().optional(),
  parameters: z
    .array(
      z.object({
        name: z.string(),
        in: z.string(),
        required: z.boolean().optional(),
        description: z.string().optional(),
        schema: schema.optional(),
      }),
    )
    .optional(),
  requestBody: z.object({ content }).optional(),
  responses: z.record(
    z.string(),
    z.object({
      $ref: z.string().optional(),
      description: z.string().optional(),
      content: content.optional(),
    }),
  ),
});

const openApi = z.object({
  info: z.object({ description: z.string() }),
  tags: z.array(z.object({ name: z.string(), description: z.string() })),
  paths: z.record(z.string(), z.record(z.string(), z.unknown())),
  components: z.object({
    responses: z.record(z.string(), z.object({ description: z.string() })),
    schemas: z.record(z.string(), schema),
  }),
});

type OpenApi = z.infer<typeof openApi>;
type Operation = z.infer<typeof operation> & { method: string; path: string };
type Content = z.infer<typeof content>;

/** Pages of the document `docs/openapi.json`. @throws z.ZodError for another document */
export function makeApiReference(document: unknown): Page[] {
  const api = openApi.parse(document);
  const operations = listOperations(api);
  const tagPages = api.tags.map(({ description, name }) => {
    const own = operations.filter(({ tags }) => tags[0] === name);
    const text = [`# API: ${name}`, description, ...own.map((each) => renderOperation(api, each))];
    return toPage(toSlug(name), `API: ${name}`, description, text);
  });
  return [makeIndex(api, operations), ...tagPages];
}

function toPage(path: string, title: string, summary: string, text: readonly string[]): Page {
  const source = 'docs/openapi.json';
  return {
    section: 'HTTP API',
    source,
    path: `api/${path}`,
    title,
    summary,
    text: `${text.join('\n\n')}\n`,
  };
}

function listOperations({ paths }: OpenApi): Operation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method] !== undefined).map((method) => ({
      ...operation.parse(methods[method]),
      method: method.toUpperCase(),
      path,
    })),
  );
}

function toSlug(tag: string): string {
  return tag.replaceAll(/([A-Z])|\s+/g, (_, letter?: string) => `-${letter ?? ''}`).toLowerCase();
}

function makeIndex(api: OpenApi, operations: readonly Operation[]): Page {
  const tags = api.tags.map(({ description, name }) => {
    const count = operations.filter(({ tags }) => tags[0] === name).length;
    return [`[${name}](./${toSlug(name)}.md)`, escapeCell(description), String(count)];
  });
  const errors = Object.entries(api.components.responses)
    .map(([name, { description }]) => [name.replace('Problem', ''), escapeCell(description)])
    .filter(([status = '']) => /^\d+$/.test(status));
  const summary = 'Every operation of the HTTP API, from the OpenAPI document.';
  return toPage('index', 'HTTP API', summary, [
    '# HTTP API',
    `${summary} A running platform serves the document at \`/openapi.json\`; this site has it [as a file](../openapi.json).`,
    api.info.description,
    table(['operations', 'for', 'number'], tags),
    '## Errors',
    'The statuses of errors, with their codes:',
    table(['status', 'meaning'], errors),
  ]);
}

function renderOperation(api: OpenApi, each: Operation): string {
  const { description, method, parameters = [], path, requestBody, responses, summary } = each;
  const scope = each['x-scope'];
  const blocks = [
    `## ${summary}`,
    `\`\`\`http\n${method} ${path}\n\`\`\``,
    description,
    scope === undefined ? undefined : `Scope: \`${scope}\`.`,
    parameters.length > 0 &&
      table(
        ['parameter', 'in', 'values', 'meaning'],
        parameters.map((one) => [
          `\`${one.name}\`${one.required === true ? ', required' : ''}`,
          one.in,
          describeType(one.schema ?? {}),
          escapeCell(one.description ?? ''),
        ]),
      ),
    requestBody && renderContent(api, 'Body', requestBody.content),
    ...Object.entries(responses)
      .filter(([status]) => /^[123]/.test(status))
      .map(([status, response]) =>
        [
          `**${status}**: ${response.description ?? ''}`,
          renderContent(api, undefined, response.content),
        ]
          .filter(Boolean)
          .join('\n\n'),
      ),
    renderErrors(Object.keys(responses)),
  ];
  return blocks.filter(Boolean).join('\n\n');
}

function renderErrors(statuses: readonly string[]): string | undefined {
  const errors = statuses.filter((status) => /^[45]/.test(status));
  return errors.length > 0 ? `[Errors](./index.md#errors): ${errors.join(', ')}.` : undefined;
}

function renderContent(api: OpenApi, title: string | undefined, content: Content = {}): string {
  return Object.entries(content)
    .map(([type, { example, schema = {} }]) => {
      const rows = listMembers(api, schema);
      const blocks = [
        title && `**${title}:**`,
        `\`${type}\``,
        rows.length > 0 && table(['member', 'values', 'meaning'], rows),
        example !== undefined && `\`\`\`json\n${JSON.stringify(example, undefined, 2)}\n\`\`\``,
      ];
      return blocks.filter(Boolean).join('\n\n');
    })
    .join('\n\n');
}

/** Members of members that the table shows; deeper ones are in the OpenAPI document. */
const MAX_DEPTH = 3;

function listMembers(api: OpenApi, given: Schema, prefix = '', depth = 1): string[][] {
  const { items, properties = {}, required = [], ...rest } = resolve(api, given);
  const inner = [...(rest.allOf ?? []), ...(rest.anyOf ?? []), ...(rest.oneOf ?? [])];
  const own = Object.entries(properties).flatMap(([name, member]) => {
    const resolved = resolve(api, member);
    const path = `${prefix}${name}`;
    const row = [
      `\`${path}\`${required.includes(name) ? ', required' : ''}`,
      describeType(resolved),
      escapeCell(resolved.description ?? ''),
    ];
    return depth < MAX_DEPTH ? [row, ...listMembers(api, resolved, `${path}.`, depth + 1)] : [row];
  });
  const others = inner.flatMap((each) => listMembers(api, each, prefix, depth));
  const ofItems = items ? listMembers(api, items, prefix.replace(/\.?$/, '[].'), depth) : [];
  const seen = new Set<string | undefined>();
  return [...own, ...others, ...ofItems].filter(([name]) => !seen.has(name) && seen.add(name));
}

function resolve(api: OpenApi, given: Schema): Schema {
  const name = given.$ref?.split('/').at(-1);
  const found = name === undefined ? undefined : api.components.schemas[name];
  return found ? { ...found, ...withoutUndefined(given) } : given;
}

function withoutUndefined(given: Schema): Schema {
  return Object.fromEntries(
    Object.entries(given).filter(([name, value]) => value !== undefined && name !== '$ref'),
  );
}

function describeType(given: Schema): string {
  const { anyOf, enum: values, items, type } = given;
  const kinds =
    values?.map((value) => `\`${JSON.stringify(value)}\``).join(', ') ??
    anyOf?.map(describeType).filter(Boolean).join(' or ') ??
    [type].flat().filter(Boolean).join(' or ');
  const notes = [
    given.format,
    range(given.minimum, given.maximum),
    range(given.minLength, given.maxLength, 'characters'),
    range(given.minItems, given.maxItems, 'items'),
    given.default === undefined ? undefined : `default \`${JSON.stringify(given.default)}\``,
  ];
  const what = type === 'array' && items?.type ? `array of ${[items.type].flat()[0]}` : kinds;
  return escapeCell([what, ...notes].filter(Boolean).join('; '));
}

function range(from: number | undefined, to: number | undefined, unit = ''): string | undefined {
  if (from === undefined && (to === undefined || to === Number.MAX_SAFE_INTEGER)) return;
  const isOpen = to === undefined || to === Number.MAX_SAFE_INTEGER;
  const text = isOpen ? `${from} or more` : from === undefined ? `to ${to}` : `${from} to ${to}`;
  return `${text} ${unit}`.trim();
}

function escapeCell(text: string): string {
  return text.replaceAll(/[|<]/g, String.raw`\$&`).replaceAll('\n', ' ');
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), `|${head.map(() => '---|').join('')}`, ...rows.map(line)].join('\n');
}
