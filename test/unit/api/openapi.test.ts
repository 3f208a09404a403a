// The OpenAPI document: that it is the one in docs/, tells of the routes that there are, and says of
// every list that it is paged and of every error that it is a problem.
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createOpenApi } from '../../../src/api/openapi.ts';
import { OPERATIONS } from '../../../src/api/operations.ts';
import { packageVersion } from '../../../src/cli/package-info.ts';
import { persistentMount } from '../../../src/wire/pod.ts';
import { PROBLEMS } from '../../../src/wire/problem.ts';
import { readJson, startPlatform } from './platform.ts';

const document = createOpenApi(packageVersion());

const said = z.object({
  operationId: z.string(),
  parameters: z.array(z.object({ name: z.string(), in: z.string() })).default([]),
  responses: z.record(z.string(), z.looseObject({})),
});
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, each]) => ({ path, method, ...said.parse(each) })),
);
const named = operations.map((operation) => [operation.operationId, operation] as const);

describe('the document', () => {
  it('is the one in docs/openapi.json: `npm run openapi` writes it anew', async () => {
    const text = `${JSON.stringify(document, null, 2)}\n`;
    await expect(text).toMatchFileSnapshot('../../../docs/openapi.json');
  });

  it('is served to whoever asks', async () => {
    const { url } = await startPlatform();
    const answer = await fetch(`${url}/openapi.json`);
    expect(answer.status).toBe(200);
    expect(await readJson(answer)).toEqual({
      ...document,
      info: { ...document.info, version: '1.2.3' },
    });
  });

  it('has references to what there is, and no operation twice', () => {
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

  it('marks the persistent mount as deprecated', () => {
    expect(document.components['schemas']).toMatchObject({ PersistentMount: { deprecated: true } });
    expect(z.toJSONSchema(persistentMount)).toMatchObject({ deprecated: true });
  });
});

describe('the operations', () => {
  it('are the routes that there are, with their scopes', async () => {
    const { routes } = await startPlatform({ engine: 'process' });
    const isTold = ({ access, url }: { access: string; url: string }) =>
      access !== 'worker' && !url.startsWith('/runpod') && !url.startsWith('/lb');
    const operations = OPERATIONS.map(({ method, path }) => `${method} ${path}`);
    // HEAD goes without saying where GET is.
    const isHeadOfGet = ({ method, url }: { method: string; url: string }) =>
      method === 'HEAD' && !operations.includes(`HEAD ${url}`) && operations.includes(`GET ${url}`);
    const served = routes
      .filter((route) => isTold(route) && !isHeadOfGet(route))
      .map(({ access, method, url }) => `${method} ${url} ${access}`);
    const told = OPERATIONS.filter(({ path }) => !path.startsWith('/lb')).map(
      ({ access, method, path }) => `${method} ${path} ${access}`,
    );
    expect(told.toSorted()).toEqual(served.toSorted());
  });

  it.each(named)('%s has no errors but problems', (_id, { responses }) => {
    const statuses = Object.values(PROBLEMS).map(([status]) => status);
    for (const [status, answer] of Object.entries(responses)) {
      if (Number(status) < 400) continue;
      if (status === 'default') continue;
      expect(statuses).toContain(Number(status));
      expect(answer).toEqual({ $ref: `#/components/responses/Problem${status}` });
    }
  });

  it.each(named.filter(([id]) => id.startsWith('list')))('%s is paged', (_id, { parameters }) => {
    const names = parameters.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(['cursor', 'limit']));
  });

  it('calls every list a list', () => {
    const lists = operations.filter(({ responses }) => /List"/.test(JSON.stringify(responses)));
    expect(lists.map(({ operationId }) => operationId)).toEqual(
      lists.map(() => expect.stringMatching(/^list/)),
    );
    expect(lists.length).toBeGreaterThan(7);
  });
});
