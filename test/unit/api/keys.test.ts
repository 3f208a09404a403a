// Keys over HTTP, and that no log has them.
import { describe, expect, it } from 'vitest';
import type { ServedRoute } from '../../../src/api/http/guard.ts';
import { nextTake, type Platform, readJson, startPlatform } from '../../support/api/platform.ts';

const withKey = (key: string) => ({ headers: { authorization: key } });

async function makeKey(platform: Platform, body: object): Promise<{ id: string; key: string }> {
  const response = await platform.post('/v1/keys', body);
  expect(response.status).toBe(201);
  const { id, key } = await readJson(response);
  return { id: String(id), key: String(key) };
}

describe('/v1/keys', () => {
  it('creates a key with 201, Location and Cache-Control: no-store', async () => {
    const platform = await startPlatform();
    const body = { name: 'ci', scopes: ['jobs:read:demo'], expiresAt: '2999-01-01T01:00:00+01:00' };
    const response = await platform.post('/v1/keys', body);
    expect(response.status).toBe(201);
    expect(response.headers.get('cache-control')).toBe('no-store');
    const made = await readJson(response);
    expect(made).toEqual({
      id: expect.stringMatching(/^key_/),
      ...{ name: 'ci', userId: 'owner', scopes: ['jobs:read:demo'] },
      createdAt: expect.stringMatching(/Z$/),
      expiresAt: '2999-01-01T00:00:00.000Z',
      key: expect.stringMatching(/^mr_/),
    });
    expect(response.headers.get('location')).toBe(`/v1/keys/${made['id']}`);
    expect((await platform.call('/v2/demo/health', withKey(String(made['key'])))).status).toBe(200);
  });

  it('lists and shows keys without key or hash', async () => {
    const platform = await startPlatform();
    const { id, key } = await makeKey(platform, { name: 'ci', scopes: ['worker'] });
    const list = await (await platform.call('/v1/keys?limit=1')).text();
    const one = await (await platform.call(`/v1/keys/${id}`)).text();
    expect(JSON.parse(list)).toEqual({ keys: [JSON.parse(one)], cursor: expect.any(String) });
    for (const text of [list, one]) expect(text).not.toMatch(/mr_|hash/);
    const { cursor } = JSON.parse(list);
    const rest = await readJson(await platform.call(`/v1/keys?cursor=${cursor}`));
    expect(rest).toEqual({ keys: [expect.any(Object), expect.any(Object)] });
    expect(JSON.stringify(rest)).not.toContain(key);
  });

  it("lists another user's for the operator", async () => {
    const platform = await startPlatform();
    const { id } = await makeKey(platform, { name: 'x', scopes: ['admin'], userId: 'ann' });
    const { keys } = await readJson(await platform.call('/v1/keys?userId=ann'));
    expect(keys).toEqual([expect.objectContaining({ id, userId: 'ann' })]);
    expect((await platform.call('/v1/keys?userId=')).status).toBe(422);
  });

  it('revokes a key with 204, and its next call gets 401', async () => {
    const platform = await startPlatform();
    const { id, key } = await makeKey(platform, { name: 'x', scopes: ['worker'] });
    const worker = { workerId: 'w1', incarnation: 1 };
    const hello = { ...worker, protocol: 1, version: '1', slots: 1, devices: [], outbox: [] };
    const send = (verb: string, body: object) =>
      platform.post(`/v2/demo/worker/${verb}`, body, withKey(key));
    const taking = nextTake(platform);
    expect((await send('hello', hello)).status).toBe(200);
    const take = { ...worker, max: 1, waitMs: 20_000, held: [] };
    const poll = send('take', { ...take, takeId: 'a' });
    poll.catch(() => {});
    await taking;
    expect((await platform.call(`/v1/keys/${id}`, { method: 'DELETE' })).status).toBe(204);
    await expect(poll).rejects.toThrow();
    expect((await send('take', { ...take, takeId: 'b' })).status).toBe(401);
    expect((await platform.call(`/v1/keys/${id}`)).status).toBe(404);
  });

  it('refuses to revoke a stronger key with 403, and that key stays valid', async () => {
    const platform = await startPlatform();
    const { key } = await makeKey(platform, { name: 'ci', scopes: ['keys:write'] });
    const stronger = await makeKey(platform, { name: 'ops', scopes: ['pods:read'] });
    const init = { method: 'DELETE', ...withKey(key) };
    const refused = await platform.call(`/v1/keys/${stronger.id}`, init);
    expect(refused.status).toBe(403);
    expect((await readJson(refused))['detail']).toContain('pods:read');
    expect((await platform.call(`/v1/keys/${stronger.id}`)).status).toBe(200);
  });

  it('keeps the last admin key of the operator with 409', async () => {
    const platform = await startPlatform();
    const { keys } = platform;
    const id = keys.authenticate(platform.admin)?.keyId;
    const refused = await platform.call(`/v1/keys/${id}`, { method: 'DELETE' });
    expect(refused.status).toBe(409);
    expect((await platform.call('/v1/keys')).status).toBe(200);
  });

  it('rotates a key, at once if no body says otherwise', async () => {
    const platform = await startPlatform();
    const { id, key } = await makeKey(platform, { name: 'x', scopes: ['jobs:read'] });
    const graced = await platform.post(`/v1/keys/${id}/rotate`, { graceSeconds: 60 });
    expect(graced.status).toBe(201);
    const next = await readJson(graced);
    for (const each of [key, String(next['key'])]) {
      expect((await platform.call('/v2/demo/health', withKey(each))).status).toBe(200);
    }
    const again = await platform.call(`/v1/keys/${next['id']}/rotate`, { method: 'POST' });
    expect(again.status).toBe(201);
    const old = await platform.call('/v2/demo/health', withKey(String(next['key'])));
    expect(old.status).toBe(401);
  });

  it.each([
    [{ name: 'x' }, 422, 'scopes'],
    [{ name: 'x', scopes: [] }, 422, 'scopes'],
    [{ name: 'x', scopes: ['root'] }, 422, 'scopes[0]'],
    [{ name: 'x', scopes: ['admin'], userId: 'a b' }, 422, 'userId'],
    [{ name: 'x', scopes: ['admin'], expiresAt: 'tomorrow' }, 422, 'expiresAt'],
    [{ name: 'x', scopes: ['admin'], expiresAt: '2001-01-01T00:00:00Z' }, 422, 'expiresAt'],
    [{ name: 'x', scopes: ['admin'], key: 'mine' }, 422, 'key'],
    ['{', 400, ''],
  ])('refuses %j with %i, naming %s', async (body, status, path) => {
    const { post } = await startPlatform();
    const response = await post('/v1/keys', body);
    expect(response.status).toBe(status);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    const { errors = [''] } = await readJson(response);
    expect(errors).toEqual([expect.stringContaining(path)]);
  });

  it('needs keys:write to create keys and keys:read to read them', async () => {
    const { call, keys, post } = await startPlatform();
    const reader = await keys.issue({ name: 'r', scopes: ['keys:read'] });
    const writer = await keys.issue({ name: 'w', scopes: ['keys:write'] });
    const body = { name: 'x', scopes: ['keys:read'] };
    expect((await call('/v1/keys', withKey(reader.key))).status).toBe(200);
    expect((await call('/v1/keys', withKey(writer.key))).status).toBe(403);
    expect((await post('/v1/keys', body, withKey(reader.key))).status).toBe(403);
    const more = await post('/v1/keys', body, withKey(writer.key));
    expect(await readJson(more)).toMatchObject({
      ...{ status: 403, code: 'forbidden', detail: expect.stringContaining('keys:read') },
    });
  });
});

describe('the log', () => {
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
});
