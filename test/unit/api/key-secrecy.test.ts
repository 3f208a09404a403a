// Whatever is done with a key, however wrongly, the log does not have it.
import { describe, expect, it } from 'vitest';
import type { ServedRoute } from '../../../src/api/http/guard.ts';
import { type Platform, startPlatform } from '../../support/api/platform.ts';

const ANY_KEY = /mr_[A-Za-z0-9_-]{43}/;

interface Place {
  query: string;
  headers: Record<string, string>;
}

function listMachines({ admin: key, worker }: Platform): Place[] {
  return [
    { query: '', headers: { authorization: `Bearer ${key}` } },
    { query: '', headers: { authorization: key } },
    { query: '', headers: { authorization: `Basic ${key}` } },
    { query: `?key=${key}&cursor=${key}&wait=${key}`, headers: {} },
    { query: `?status=unhealthy&reason=${key}&check=${key}`, headers: { authorization: worker } },
    { query: '', headers: { 'x-api-key': key, cookie: `key=${key}`, traceparent: key } },
  ];
}

/** With the key in the body and in the path as well. */
function callEverywhere(platform: Platform, { method, url }: ServedRoute): Promise<unknown>[] {
  const { admin: key } = platform;
  const hasBody = method === 'POST' || method === 'PATCH';
  return listMachines(platform).flatMap(({ headers, query }) =>
    ['demo', key].map(async (thing) => {
      const path = url.replaceAll(/:[a-z]+/g, thing).replace('*', `${key}/${key}`);
      const response = await fetch(platform.url + path + query, {
        method,
        headers: { ...headers, ...(hasBody && { 'content-type': 'application/json' }) },
        ...(hasBody && { body: JSON.stringify({ input: key, key, workerId: key }) }),
      });
      return response.arrayBuffer();
    }),
  );
}

describe('a key', () => {
  it('is in no line of the log, on any route and in any part of the call', async () => {
    const platform = await startPlatform();
    const { logged, routes } = platform;
    const callAll = (called: readonly ServedRoute[]) =>
      Promise.all(called.flatMap((route) => callEverywhere(platform, route)));
    // Those that wait for jobs or their end do nothing else; what is deleted, the others need.
    const quick = routes.filter(
      ({ url }) => !/\/job-(take|take-batch|stop)\/|\/runsync$|\/openai\//.test(url),
    );
    await callAll(quick.filter(({ method }) => method !== 'DELETE'));
    await callAll(quick.filter(({ method }) => method === 'DELETE'));
    expect(logged()).toContain('worker reported itself unfit');
    expect(logged()).not.toMatch(ANY_KEY);
  });

  it('is removed from the error of a failed request and from its cause', async () => {
    const { admin, call, logged, queue } = await startPlatform();
    queue.health = () => {
      const cause = Object.assign(new Error(`cause ${admin}`), { headers: { 'x-key': admin } });
      throw new Error(`failed with ${admin}`, { cause });
    };
    const response = await call('/v2/demo/health');
    expect(response.status).toBe(500);
    expect(await response.text()).not.toMatch(ANY_KEY);
    expect(logged()).toContain('failed with [key]');
    expect(logged()).not.toMatch(ANY_KEY);
  });
});

describe('the secret of a registry', () => {
  const SECRET = 'the-token-that-nobody-sees';
  const login = { name: 'r', server: 'r.example.com', username: 'ci', secret: SECRET };

  it('is in no answer and no line of the log, whatever is wrong with the call', async () => {
    const { call, logged, post } = await startPlatform();
    const answers: string[] = [];
    const read = async (response: Response) => {
      const text = await response.text();
      answers.push(text);
      return text;
    };
    const made: unknown = JSON.parse(await read(await post('/v1/registries', login)));
    const path = `/v1/registries/${Reflect.get(Object(made), 'id')}`;
    await read(await call(path));
    await read(await call('/v1/registries'));
    for (const change of [
      { secret: `${SECRET}2` },
      { username: 'other' },
      { secret: SECRET, more: SECRET },
      { secret: { [SECRET]: SECRET } },
    ]) {
      await read(await post(path, change, { method: 'PATCH' }));
    }
    await read(await post('/v1/registries', { ...login, server: 'a b' }));
    await read(await post('/v1/registries', { ...login, secret: [SECRET] }));
    await read(await post('/v1/registries', { ...login, secret: SECRET.repeat(1_000) }));
    await read(await post('/v1/registries', `{"secret":"${SECRET}`));
    expect(answers.join()).toContain('r.example.com');
    expect(answers).toHaveLength(11);
    for (const text of [...answers, logged()]) expect(text).not.toContain(SECRET);
  });
});
