// Budgets over HTTP: users have their own, and the operator sets budgets for everybody.
import { describe, expect, it } from 'vitest';
import { DEFAULT_QUOTAS } from '../../../src/control/limits/quotas.ts';
import { type Platform, readJson, startPlatform } from '../../support/api/platform.ts';

async function start() {
  const quotas = { ...DEFAULT_QUOTAS, budgets: 2 };
  const platform = await startPlatform({ engine: 'docker', quotas });
  const keyOf = async (userId: string) => {
    const made = await platform.post('/v1/keys', { name: 'k', scopes: ['admin'], userId });
    return `Bearer ${String((await readJson(made))['key'])}`;
  };
  return { platform, ann: await keyOf('ann'), bob: await keyOf('bob') };
}

const as = (authorization: string, method = 'GET') => ({ method, headers: { authorization } });

async function create(platform: Platform, body: object, key?: string) {
  const init = key === undefined ? {} : { headers: { authorization: key } };
  return platform.post('/v1/budgets', { name: 'b', limit: 1, ...body }, init);
}

describe('a budget that the operator sets for a user', () => {
  it('is seen by the user, who can neither change nor delete it', async () => {
    const { ann, bob, platform } = await start();
    const made = await create(platform, { userId: 'ann' });
    expect(made.status).toBe(201);
    const budget = await readJson(made);
    expect(budget).toMatchObject({ userId: 'ann', setBy: 'operator', endpointName: null });
    const path = `/v1/budgets/${String(budget['id'])}`;
    expect(await readJson(await platform.call(path, as(ann)))).toEqual(budget);
    expect(await readJson(await platform.call('/v1/budgets', as(ann)))).toMatchObject({
      budgets: [budget],
    });
    const refusals = [
      await platform.post(path, { limit: 9 }, as(ann, 'PATCH')),
      await platform.call(path, as(ann, 'DELETE')),
    ];
    for (const refused of refusals) {
      expect(refused.status).toBe(403);
      expect(await readJson(refused)).toMatchObject({
        detail: expect.stringContaining('only the operator can change or delete it'),
      });
    }
    // For everybody else it does not exist.
    for (const method of ['GET', 'DELETE']) {
      expect((await platform.call(path, as(bob, method))).status).toBe(404);
    }
    expect((await platform.post(path, { limit: 9 }, as(bob, 'PATCH'))).status).toBe(404);
    expect(await readJson(await platform.call('/v1/budgets', as(bob)))).toEqual({ budgets: [] });
    const changed = await platform.post(path, { limit: 9 }, { method: 'PATCH' });
    expect(await readJson(changed)).toMatchObject({ limit: 9, setBy: 'operator', userId: 'ann' });
    expect((await platform.call(path, { method: 'DELETE' })).status).toBe(204);
  });

  it('keeps its webhook from the user: the address may be a secret of the operator', async () => {
    const { ann, platform } = await start();
    const webhook = 'https://example.com/hooks/operator-secret';
    const made = await readJson(await create(platform, { userId: 'ann', webhook }));
    expect(made).toMatchObject({ webhook });
    const path = `/v1/budgets/${String(made['id'])}`;
    expect(await readJson(await platform.call(path))).toMatchObject({ webhook });
    for (const each of [path, '/v1/budgets']) {
      const seen = await (await platform.call(each, as(ann))).text();
      expect(seen).toContain('"webhook":null');
      expect(seen).not.toContain('operator-secret');
    }
    const own = await readJson(await create(platform, { webhook }, ann));
    expect(own).toMatchObject({ setBy: 'user', webhook });
  });

  it('is for the operator only', async () => {
    const { ann, platform } = await start();
    expect((await create(platform, { userId: 'bob' }, ann)).status).toBe(403);
    expect((await create(platform, { userId: 'owner' }, ann)).status).toBe(403);
    expect((await create(platform, { userId: 'a b' })).status).toBe(422);
    for (const userId of ['bob', '*']) {
      const listed = await platform.call(`/v1/budgets?userId=${userId}`, as(ann));
      expect(listed.status).toBe(403);
    }
    // Their own name is no other user.
    const own = await create(platform, { userId: 'ann' }, ann);
    expect(await readJson(own)).toMatchObject({ userId: 'ann', setBy: 'user' });
  });

  it('is listed by user, and with those of all users', async () => {
    const { ann, platform } = await start();
    await create(platform, { name: 'mine' });
    await create(platform, { name: 'own' }, ann);
    await create(platform, { name: 'set', userId: 'ann' });
    const names = async (query: string) => {
      const { budgets } = await readJson(await platform.call(`/v1/budgets${query}`));
      return Array.isArray(budgets) ? budgets.map(({ name }) => name) : undefined;
    };
    expect(await names('')).toEqual(['mine']);
    expect(await names('?userId=ann')).toEqual(['set', 'own']);
    expect(await names('?userId=*')).toEqual(['set', 'own', 'mine']);
    expect(await names('?userId=*&limit=2')).toEqual(['set', 'own']);
  });

  it('leaves the quota of the user alone, and is bounded for each user', async () => {
    const { ann, platform } = await start();
    for (const status of [201, 201, 409]) {
      expect((await create(platform, {}, ann)).status).toBe(status);
    }
    for (const status of [201, 201, 409]) {
      expect((await create(platform, { userId: 'ann' })).status).toBe(status);
    }
    expect((await create(platform, { userId: 'bob' })).status).toBe(201);
  });
});

it('names the endpoint of a budget as it is called now', async () => {
  const { ann, platform } = await start();
  const template = await platform.post(
    '/v1/templates',
    { name: 't', image: 'i', handler: 'h.ts' },
    as(ann, 'POST'),
  );
  const templateId = (await readJson(template))['id'];
  const endpoint = await readJson(
    await platform.post('/v1/endpoints', { name: 'sdxl', templateId }, as(ann, 'POST')),
  );
  const id = String(endpoint['id']);
  const made = await create(platform, { endpointId: id, userId: 'ann' });
  expect(await readJson(made)).toMatchObject({ endpointId: id, endpointName: 'sdxl' });
  const unknown = await create(platform, { endpointId: id, userId: 'bob' });
  expect(unknown.status).toBe(422);
});
