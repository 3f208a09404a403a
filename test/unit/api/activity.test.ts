// GET /v1/overview and GET /v1/endpoints/<id>/series.
import { describe, expect, it } from 'vitest';
import { endpointSeries, overview } from '../../../src/wire/resources/activity.ts';
import { ENDPOINT, type Platform, startPlatform } from './platform.ts';

const HOUR_MS = 3_600_000;

async function readOverview({ call }: Platform, authorization?: string) {
  const response = await call('/v1/overview', authorization ? { headers: { authorization } } : {});
  expect(response.status).toBe(200);
  return overview.parse(await response.json()).endpoints;
}

describe('the overview', () => {
  it('shows endpoints with trouble first', async () => {
    const platform = await startPlatform();
    await platform.endpoints.ensureEndpoint('busy');
    await platform.post('/v2/busy/run', { input: {} });
    const [first, second] = await readOverview(platform);
    expect(first).toMatchObject({ id: 'busy', state: 'blocked', waiting: 1, running: 0 });
    expect(first?.waitReason?.message).toBeTypeOf('string');
    expect(second).toMatchObject({ id: ENDPOINT, state: 'idle', waiting: 0, waitReason: null });
  });

  it('shows only endpoints whose jobs the key may read', async () => {
    const platform = await startPlatform();
    await platform.endpoints.ensureEndpoint('other');
    const issue = async (scopes: readonly string[], userId = 'owner') =>
      (await platform.keys.issue({ name: 'k', scopes: [...scopes], userId })).key;
    const ids = async (scopes: readonly string[], userId?: string) =>
      (await readOverview(platform, await issue(scopes, userId))).map(({ id }) => id);
    expect(await ids([`jobs:read:${ENDPOINT}`])).toEqual([ENDPOINT]);
    expect(await ids(['jobs:write'])).toEqual([]);
    expect(await ids(['admin'], 'stranger')).toEqual([]);
    expect((await platform.call('/v1/overview', { headers: { authorization: 'x' } })).status).toBe(
      401,
    );
  });

  it('shares reads of an endpoint for a second', async () => {
    let reads = 0;
    const platform = await startPlatform({
      server: {
        readActivity: async () => {
          reads += 1;
          return {};
        },
      },
    });
    const shown = await Promise.all([readOverview(platform), readOverview(platform)]);
    expect(shown[0]).toMatchObject([{ id: ENDPOINT, state: 'unreachable' }]);
    expect(reads).toBe(1);
  });
});

describe('a series', () => {
  it('has whole steps, by default of the last hour', async () => {
    const { call } = await startPlatform();
    const response = await call(`/v1/endpoints/${ENDPOINT}/series`);
    const { from, points, step, to } = endpointSeries.parse(await response.json());
    expect([from % step, to % step, step]).toEqual([0, 0, 60_000]);
    expect(points).toHaveLength((to - from) / step);
    expect(to - from).toBeLessThanOrEqual(HOUR_MS + 2 * step);
  });

  it.each([
    ['from=9&to=9', 'from'],
    ['step=1000', 'step'],
    ['step=90000', 'step'],
    ['from=0', 'step'],
    ['to=later', 'to'],
    ['hours=3', 'hours'],
  ])('is refused with %s, which the error names', async (query, name) => {
    const { call } = await startPlatform();
    const response = await call(`/v1/endpoints/${ENDPOINT}/series?${query}`);
    expect(response.status).toBe(422);
    expect(await response.text()).toContain(name);
  });

  it('needs jobs:read of its endpoint', async () => {
    const { call, keys } = await startPlatform();
    const { key } = await keys.issue({ name: 'k', scopes: ['jobs:read:other'], userId: 'owner' });
    const headers = { authorization: key };
    expect((await call(`/v1/endpoints/${ENDPOINT}/series`, { headers })).status).toBe(403);
    expect((await call('/v1/endpoints/none/series')).status).toBe(404);
  });
});
