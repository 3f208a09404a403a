import { createConfig, lintFromString } from '@redocly/openapi-core';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createOpenApi } from '../../../../src/api/openapi/openapi.ts';
import { packageVersion } from '../../../../src/base/package-info.ts';
import { OPERATIONS } from '../../../../src/wire/operations/operations.ts';
import { PROBLEMS } from '../../../../src/wire/problem.ts';
import { persistentMount } from '../../../../src/wire/resources/pod.ts';
import { readJson, startPlatform } from '../../../support/api/platform.ts';

const document = createOpenApi(packageVersion());

const said = z.object({
  operationId: z.string(),
  tags: z.array(z.string()),
  parameters: z
    .array(z.object({ name: z.string(), in: z.string(), description: z.string().exactOptional() }))
    .default([]),
  requestBody: z.looseObject({}).exactOptional(),
  responses: z.record(z.string(), z.looseObject({})),
});
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, each]) => ({ path, method, ...said.parse(each) })),
);
const named = operations.map((operation) => [operation.operationId, operation] as const);

const content = z.record(z.string(), z.object({ schema: z.looseObject({}), example: z.unknown() }));

/** What handlers take and give is theirs to say. */
const FREE = ['JobRecord.output', 'JobRecord.progress', 'ChunkPage[].output'];
const STATED = ['type', '$ref', 'enum', 'const', 'anyOf', 'oneOf'];

/** Paths of values that may be anything, and of objects whose members are not told. */
function listVague(schema: unknown, path: string): string[] {
  const {
    additionalProperties,
    anyOf = [],
    items,
    oneOf = [],
    properties,
    ...rest
  } = z
    .looseObject({
      properties: z.record(z.string(), z.unknown()).exactOptional(),
      additionalProperties: z.unknown().optional(),
      items: z.unknown().optional(),
      anyOf: z.array(z.unknown()).exactOptional(),
      oneOf: z.array(z.unknown()).exactOptional(),
    })
    .parse(schema);
  const isStated = STATED.some((word) => word in rest) || anyOf.length + oneOf.length > 0;
  const isOpaque =
    rest['type'] === 'object' && !properties && (additionalProperties ?? false) === false;
  return [
    ...(isStated && !isOpaque ? [] : [path]),
    ...Object.entries(properties ?? {}).flatMap(([key, each]) => listVague(each, `${path}.${key}`)),
    ...[...anyOf, ...oneOf].flatMap((each) => listVague(each, path)),
    ...(items === undefined ? [] : listVague(items, `${path}[]`)),
  ];
}

describe('the document', () => {
  it('equals docs/openapi.json, which `npm run openapi` regenerates', async () => {
    const text = `${JSON.stringify(document, null, 2)}\n`;
    await expect(text).toMatchFileSnapshot('../../../../docs/openapi.json');
  });

  it('is served without a key', async () => {
    const { url } = await startPlatform();
    const answer = await fetch(`${url}/openapi.json`);
    expect(answer.status).toBe(200);
    expect(await readJson(answer)).toEqual({
      ...document,
      info: { ...document.info, version: '1.2.3' },
    });
  });

  it('has no broken references and no duplicate operations', () => {
    const text = JSON.stringify(document);
    const targets = [...text.matchAll(/"\$ref":"#\/components\/(\w+)\/([^"]+)"/g)];
    expect(targets.length).toBeGreaterThan(50);
    for (const [, kind = '', name = ''] of targets) {
      expect(document.components[kind], kind).toHaveProperty([name]);
    }
    const ids = operations.map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('has schemas that are JSON Schema of 2020', () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    const { schemas } = document.components;
    expect(ajv.validateSchema({ $defs: schemas })).toBe(true);
    ajv.addSchema({ $id: 'd', components: { schemas } });
    for (const name of Object.keys(schemas ?? {})) {
      expect(ajv.compile({ $ref: `d#/components/schemas/${name}` })).toBeTypeOf('function');
    }
  });

  it.each(Object.entries(document.components['schemas'] ?? {}))(
    'types each value in %s, because generators turn untyped ones into `never` or `unknown`',
    (name, schema) => {
      const vague = listVague(schema, name);
      expect(vague).toEqual(FREE.filter((path) => /^\w+/.exec(path)?.[0] === name));
    },
  );

  it('has no defaults in requests, because generators turn them into required members', () => {
    const requests = operations.flatMap(({ requestBody }) => requestBody ?? []);
    expect(requests.length).toBeGreaterThan(8);
    const text = JSON.stringify(requests);
    const names = [...text.matchAll(/#\/components\/schemas\/(\w+)/g)].map(([, name = '']) => name);
    const schemas = names.map((name) => document.components['schemas']?.[name]);
    expect(JSON.stringify(schemas)).not.toContain('"default":');
  });

  it('describes every parameter', () => {
    const parameters = operations.flatMap((operation) => operation.parameters);
    expect(parameters.length).toBeGreaterThan(50);
    expect(parameters.filter(({ description }) => description === undefined)).toEqual([]);
  });

  it('marks the persistent mount as deprecated', () => {
    expect(document.components['schemas']).toMatchObject({ PersistentMount: { deprecated: true } });
    expect(z.toJSONSchema(persistentMount)).toMatchObject({ deprecated: true });
  });
});

/** Of bodies that a caller or a handler decides there is no example. */
const isPassedOn = ({ path }: { path: string }) => path.startsWith('/lb/');
const described = OPERATIONS.filter((operation) => !isPassedOn(operation));
const byId = described.map((operation) => [operation.id, operation] as const);

describe('the examples', () => {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema({ $id: 'd', components: { schemas: document.components['schemas'] } });

  it.each(byId)('exist for each body of %s and match its schema', (id, operation) => {
    const answers = Object.values(operation.answers).flatMap(({ content = {} }) =>
      Object.values(content),
    );
    const { body, errors } = operation;
    const bodies = [...(body ? [body] : []), ...answers, ...(errors ? [errors, errors] : [])];
    for (const { example, schema } of bodies) {
      expect(example, id).toBeDefined();
      expect(schema.safeParse(example).error, id).toBeUndefined();
    }
    const shown = operations.find(({ operationId }) => operationId === id);
    const contents = [shown?.requestBody, ...Object.values(shown?.responses ?? {})].flatMap(
      (each) => Object.values(content.parse(each?.['content'] ?? {})),
    );
    for (const { example, schema } of contents) {
      const text = JSON.stringify(schema).replaceAll('"#/', '"d#/');
      const validate = ajv.compile(JSON.parse(text));
      expect(validate(example), JSON.stringify(validate.errors)).toBe(true);
    }
    expect(contents).toHaveLength(bodies.length);
  });

  it('belong to an operation whose tag is described', () => {
    const tags = document.tags.map(({ name }) => name);
    expect(tags).toEqual(expect.arrayContaining(OPERATIONS.map(({ tag }) => tag)));
    expect(new Set(tags)).toEqual(new Set(OPERATIONS.map(({ tag }) => tag)));
  });
});

describe('the operations', () => {
  it('are the served routes, with their scopes', async () => {
    const { routes } = await startPlatform({ engine: 'process' });
    const isPage = (url: string) => url === '/' || url.startsWith('/console');
    const isTold = ({ access, url }: { access: string; url: string }) =>
      access !== 'worker' && !/^\/(runpod|lb)/.test(url) && !isPage(url);
    // A path with a wildcard has its parameter's name in the document.
    const name = (url: string) => url.replace(/models\/\*$/, 'models/:model').replace('*', ':path');
    const operations = OPERATIONS.map(({ method, path }) => `${method} ${path}`);
    // HEAD goes without saying where GET is.
    const isHeadOfGet = ({ method, url }: { method: string; url: string }) =>
      method === 'HEAD' && !operations.includes(`HEAD ${url}`) && operations.includes(`GET ${url}`);
    const served = routes
      .filter((route) => isTold(route) && !isHeadOfGet(route))
      .map(({ access, method, url }) => `${method} ${name(url)} ${access}`);
    const told = OPERATIONS.filter(({ path }) => !path.startsWith('/lb')).map(
      ({ access, method, path }) => `${method} ${path} ${access}`,
    );
    expect(told.toSorted()).toEqual(served.toSorted());
  });

  const withProblems = named.filter(([, { tags }]) => !tags.includes('openai'));
  it.each(withProblems)('have only problems as errors: %s', (_id, { responses }) => {
    const statuses = Object.values(PROBLEMS).map(([status]) => status);
    for (const [status, answer] of Object.entries(responses)) {
      if (Number(status) < 400) continue;
      if (status === 'default') continue;
      expect(statuses).toContain(Number(status));
      expect(answer).toEqual({ $ref: `#/components/responses/Problem${status}` });
    }
  });

  it.each(named.filter(([id]) => id.startsWith('list')))('are paged: %s', (id, { parameters }) => {
    const names = parameters.map(({ name }) => name);
    const cursor = id.includes('OpenAi') ? 'after' : 'cursor';
    expect(names).toEqual(expect.arrayContaining([cursor, 'limit']));
  });

  it('have IDs that begin with list if they return a list', () => {
    const lists = operations.filter(({ responses }) => /List"/.test(JSON.stringify(responses)));
    expect(lists.map(({ operationId }) => operationId)).toEqual(
      lists.map(() => expect.stringMatching(/^list/)),
    );
    expect(lists.length).toBeGreaterThan(7);
  });
});

/** Each schema that has a pattern or consists of several. */
function listPatterns(value: unknown): { patterns: string[]; several: unknown[] } {
  if (typeof value !== 'object' || value === null) return { patterns: [], several: [] };
  const found = Object.values(value).map(listPatterns);
  const patterns = found.flatMap((each) => each.patterns);
  const several = found.flatMap((each) => each.several);
  if ('pattern' in value && typeof value.pattern === 'string') patterns.push(value.pattern);
  if ('allOf' in value && JSON.stringify(value.allOf).includes('"pattern"')) several.push(value);
  return { patterns, several };
}

it('has patterns that generated clients can use: one for a text, the same with and without flags', () => {
  const { patterns, several } = listPatterns(document);
  expect(several).toEqual([]);
  expect(patterns.filter((pattern) => /\\[pP]\{|\\u\{/.test(pattern))).toEqual([]);
  for (const flags of ['', 'u'])
    expect(() => patterns.map((one) => new RegExp(one, flags))).not.toThrow();
  expect(patterns.length).toBeGreaterThan(10);
});

/** Findings that stay, by rule. */
const EXPLAINED: Readonly<Record<string, string>> = {
  // The service's API has both `/v2/{endpoint}/run` and `/v2/pods/{pod}`; no endpoint can be called `pods`.
  'no-ambiguous-paths': '/v2/{endpoint}/',
  // It answers methods that the document does not have.
  'no-unused-components': 'Problem405',
};

it('has no unexplained Redocly finding', async () => {
  const source = JSON.stringify(createOpenApi(packageVersion()));
  const config = await createConfig({ extends: ['recommended'] });
  const findings = await lintFromString({ source, absoluteRef: 'openapi.json', config });
  const unexplained = findings.filter(({ message, ruleId }) => {
    const known = EXPLAINED[ruleId];
    return known === undefined || !message.includes(known);
  });
  const lines = unexplained.map(({ location, message, ruleId, severity }) => {
    const [{ pointer = '' } = {}] = location;
    return `${severity} ${ruleId} at ${pointer}: ${message}`;
  });
  expect(lines).toEqual([]);
});
