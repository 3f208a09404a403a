// Every operation of the OpenAPI document, called wrongly: the answer is a problem, as documented. And
// every list, asked for pages.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RateGate } from '../../../../src/api/limits/rate-limit.ts';
import type { Operation } from '../../../../src/wire/operations/operation.ts';
import { OPERATIONS } from '../../../../src/wire/operations/operations.ts';
import { errorAt } from '../../../support/answers.ts';
import { ENDPOINT, openPlatform, type Platform, readJson } from '../../../support/api/platform.ts';
import { PodWorld } from '../../../support/containers/pod-world.ts';
import { fetchChecked } from '../../../support/network/checked-fetch.ts';

/** Load-balanced workers have errors of their own, and so has the OpenAI API. */
const told = OPERATIONS.filter(({ errors, path }) => !path.startsWith('/lb') && !errors);
const guarded = told.filter(({ access }) => access !== 'open');
const named = (operations: readonly Operation[]) =>
  operations.map((operation) => [operation.id, operation] as const);

let world: PodWorld;
/** For all tests: wrong calls change nothing. */
let platform: Platform;
/** Takes one request a day from a user: a window of a minute ends while the tests run on a loaded machine. */
let limited: Platform;

beforeAll(async () => {
  world = await PodWorld.open();
  platform = await openPlatform({ engine: 'process', server: { pods: world.pods } });
  limited = await openPlatform({ server: { rateGate: new RateGate({ day: 1 }) } });
  await limited.call(`/v2/${ENDPOINT}/health`);
});

afterAll(async () => {
  await limited.close();
  await platform.close();
  await world.close();
});

/** With what there is not in the place of each parameter, but for an endpoint. */
const fill = ({ path }: Operation) =>
  path.replace(':endpoint', ENDPOINT).replaceAll(/:[a-z]+/g, 'none');

async function expectProblem(response: Response, statuses: readonly number[]): Promise<void> {
  expect(statuses).toContain(response.status);
  expect(response.headers.get('content-type')).toBe('application/problem+json');
  expect(await readJson(response)).toMatchObject({
    status: response.status,
    title: expect.any(String),
    detail: expect.any(String),
  });
}

describe('every operation', () => {
  it.each(named(guarded))('returns a problem without a key: %s', async (_id, operation) => {
    const { url } = platform;
    const { method } = operation;
    await expectProblem(await fetchChecked(url + fill(operation), { method }), [401]);
  });

  it.each(named(guarded.filter(({ access }) => access !== 'key')))(
    'returns a problem for a key with other scopes: %s',
    async (_id, operation) => {
      const { call, keys } = platform;
      const scope = operation.access === 'keys:read' ? 'pods:read' : 'keys:read';
      const { key } = await keys.issue({ name: 'k', scopes: [scope] });
      const { method } = operation;
      const headers = { authorization: key };
      await expectProblem(await call(fill(operation), { method, headers }), [403]);
    },
  );

  const onThings = guarded.filter(({ path }) => /:(?!endpoint)/.test(path));
  it.each(named(onThings))('returns a problem for unknown IDs: %s', async (_id, operation) => {
    const { call } = platform;
    const body = { actOnPod: '{"action":"stop"}' }[operation.id] ?? '{}';
    const sent = operation.body ? { body, headers: { 'content-type': 'application/json' } } : {};
    await expectProblem(await call(fill(operation), { method: operation.method, ...sent }), [404]);
  });

  const withBody = guarded.filter(({ body }) => body && body.mediaType === undefined);
  it.each(named(withBody))('returns a problem for an invalid body: %s', async (_id, operation) => {
    const { call } = platform;
    const send = (body: string, type = 'application/json') =>
      call(fill(operation), {
        ...{ method: operation.method, body, headers: { 'content-type': type } },
      });
    await expectProblem(await send('{'), [400]);
    await expectProblem(await send('{"nothing of this kind":1}'), [422]);
    await expectProblem(await send('[]'), [422]);
    await expectProblem(await send('{}', 'text/plain'), [415]);
    await expectProblem(await send(`"${'x'.repeat(21 * 1_048_576)}"`), [413]);
  });

  const own = guarded.filter(({ path }) => /^\/v[12]\//.test(path));
  it.each(named(own))('refuses an unknown query parameter: %s', async (_id, operation) => {
    const { call } = platform;
    const wrong = `${fill(operation)}?nothing_of_this_kind=1`;
    const answer = await call(wrong, { method: operation.method });
    expect(await readJson(answer.clone())).toMatchObject({
      errors: [errorAt('nothing_of_this_kind')],
    });
    await expectProblem(answer, [422]);
  });

  const withQuery = guarded.filter(({ method, query }) => method === 'GET' && query);
  it.each(named(withQuery))(
    'needs its required query parameters alone: %s',
    async (_id, operation) => {
      const answer = await platform.call(fill(operation));
      const required = (operation.query ?? []).filter(({ presence }) => presence === 'required');
      if (answer.status !== 422) {
        expect(required).toEqual([]);
        await answer.body?.cancel();
        return;
      }
      const errors = required.map(({ name }) => errorAt(name));
      expect(await readJson(answer)).toMatchObject({ errors });
    },
  );

  it('lists up to 20 unknown query parameters when it refuses them', async () => {
    const { call } = platform;
    const names = Array.from({ length: 21 }, (_, n) => `unknown_${n}`);
    const answer = await call(`/v2/pods?${names.map((name) => `${name}=1`).join('&')}`);
    const listed = names.slice(0, 20);
    expect(await readJson(answer)).toMatchObject({ errors: listed.map(errorAt) });
  });

  const read = guarded.filter(({ isStream, method }) => method === 'GET' && !isStream);
  it.each(named(read))('answers HEAD like GET, without a body: %s', async (_id, operation) => {
    const { call, admin: authorization, url } = platform;
    const get = await call(fill(operation));
    const head = await fetch(url + fill(operation), { method: 'HEAD', headers: { authorization } });
    expect([head.status, await head.text()]).toEqual([get.status, '']);
    expect(head.headers.get('content-type')).toBe(get.headers.get('content-type'));
    await get.arrayBuffer();
  });

  it.each(named(told))('returns a problem for another method: %s', async (_id, operation) => {
    const { call } = platform;
    await expectProblem(await call(fill(operation), { method: 'PUT' }), [405]);
  });

  it.each(named(guarded))('returns a problem beyond the rate limit: %s', async (_id, operation) => {
    await expectProblem(await limited.call(fill(operation), { method: operation.method }), [429]);
  });
});

const lists = told.filter(({ id }) => id.startsWith('list'));

describe('every list', () => {
  it.each(named(lists))('returns pages and refuses invalid ones: %s', async (_id, operation) => {
    const { call } = platform;
    const ask = (query: string) => call(`${fill(operation)}?${query}`);
    expect((await ask('limit=1')).status).toBe(200);
    for (const query of ['limit=0', 'limit=1001', 'limit=x', 'cursor=%21', 'limit=1&limit=2']) {
      await expectProblem(await ask(query), [422]);
    }
  });
});
