// GET /v1/billing.
import { expect, it } from 'vitest';
import { addToBill, type BilledResource } from '../../../src/control/billing/bill-rows.ts';
import type { Store } from '../../../src/store/store.ts';
import { billingPage } from '../../../src/wire/resources/billing.ts';
import { type Platform, startPlatform } from '../../support/api/platform.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MIDNIGHT = Date.UTC(2026, 2, 1);

async function startBilled(): Promise<{ platform: Platform; store: Store }> {
  let kept: Store | undefined;
  const wrapStore = (store: Store) => {
    kept = store;
    return store;
  };
  const platform = await startPlatform({ wrapStore });
  if (!kept) throw new Error('the platform has no store');
  return { platform, store: kept };
}

function bill(store: Store, resource: Partial<BilledResource>, [from, to]: [number, number]) {
  const usual = { kind: 'pod', id: 'pod_1', userId: 'owner', name: 'a' } as const;
  const intervals = [{ from: MIDNIGHT + from, to: MIDNIGHT + to, price: 3_600_000, gpus: 2 }];
  return store.write((tx) => addToBill(tx, { ...usual, ...resource }, intervals));
}

async function read({ call }: Platform, query: string, authorization?: string) {
  const range = `from=${MIDNIGHT}&to=${MIDNIGHT + 2 * DAY_MS}`;
  const headers = authorization ? { headers: { authorization } } : {};
  const response = await call(`/v1/billing?${range}&${query}`, headers);
  expect(response.status).toBe(200);
  return billingPage.parse(await response.json());
}

it('shows resources by hour and by day, and exact totals', async () => {
  const { platform, store } = await startBilled();
  await bill(store, {}, [0, 2 * HOUR_MS + 1_000]);
  await bill(store, { kind: 'endpoint', id: 'ep', name: null }, [DAY_MS, DAY_MS + 500]);
  const hours = await read(platform, 'step=hour');
  expect(
    hours.records.map(({ at, cost, id }) => [((at ?? 0) - MIDNIGHT) / HOUR_MS, id, cost]),
  ).toEqual([
    [24, 'ep', '0.000500'],
    [2, 'pod_1', '0.001000'],
    [1, 'pod_1', '3.600000'],
    [0, 'pod_1', '3.600000'],
  ]);
  expect(hours.total).toEqual({
    ...{ seconds: 7_201.5, gpuSeconds: 14_403, busyGpuSeconds: 0, cost: '7.201500' },
  });
  expect((await read(platform, 'step=day')).records).toMatchObject([
    { at: MIDNIGHT + DAY_MS, id: 'ep', kind: 'endpoint' },
    { at: MIDNIGHT, id: 'pod_1', name: 'a', seconds: 7_201, cost: '7.201000' },
  ]);
  expect((await read(platform, 'group=step')).records).toMatchObject([
    { at: MIDNIGHT + DAY_MS, id: null, cost: '0.000500' },
    { at: MIDNIGHT, id: null, cost: '7.201000' },
  ]);
  expect((await read(platform, 'group=resource&kind=pod')).records).toMatchObject([
    { at: null, id: 'pod_1', cost: '7.201000' },
  ]);
});

it('is split into pages', async () => {
  const { platform, store } = await startBilled();
  for (const id of ['a', 'b', 'c']) await bill(store, { id }, [0, 1_000]);
  const seen: (string | null)[] = [];
  let cursor = '';
  for (let page = 0; page < 3; page++) {
    const answer = await read(platform, `limit=1${cursor && `&cursor=${cursor}`}`);
    expect(answer.total.cost).toBe('0.003000');
    seen.push(...answer.records.map(({ id }) => id));
    cursor = answer.cursor ?? '';
  }
  expect(seen).toEqual(['a', 'b', 'c']);
  expect(cursor).toBe('');
});

it('shows the bills of other users to the operator only', async () => {
  const { platform, store } = await startBilled();
  await bill(store, { userId: 'ada' }, [0, 1_000]);
  await bill(store, { userId: 'bob', id: 'pod_2' }, [0, 1_000]);
  const { key } = await platform.keys.issue({ name: 'k', scopes: ['admin'], userId: 'ada' });
  const costs = async (query: string, authorization?: string) =>
    (await read(platform, query, authorization)).records.map(({ userId }) => userId);
  expect(await costs('')).toEqual([]);
  expect(await costs('userId=bob')).toEqual(['bob']);
  expect(await costs('userId=*')).toEqual(['ada', 'bob']);
  expect(await costs('', `Bearer ${key}`)).toEqual(['ada']);
  const headers = { authorization: `Bearer ${key}` };
  for (const other of ['bob', '*']) {
    expect((await platform.call(`/v1/billing?userId=${other}`, { headers })).status).toBe(403);
  }
  const star = await platform.keys.issue({ name: 'k', scopes: ['admin'], userId: '*' });
  expect(await costs('', `Bearer ${star.key}`)).toEqual([]);
});

it('refuses ranges that are too long, and unknown values', async () => {
  const { platform } = await startBilled();
  const status = async (query: string) => (await platform.call(`/v1/billing?${query}`)).status;
  expect(await status('step=hour&from=0')).toBe(422);
  expect(await status('step=week')).toBe(422);
  expect(await status('group=user')).toBe(422);
  expect(await status('from=10&to=5')).toBe(422);
});
