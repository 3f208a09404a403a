// GET /v1/overview and GET /v1/endpoints/<id>/series.
import { describe, expect, it } from 'vitest';
import { judgeEndpoint } from '../../../src/api/overviews.ts';
import {
  type EndpointActivity,
  endpointSeries,
  overview,
} from '../../../src/wire/resources/activity.ts';
import { ENDPOINT, type Platform, startPlatform } from '../../support/api/platform.ts';

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

describe('the state of an endpoint', () => {
  const workers = { starting: 0, idle: 1, running: 0, draining: 0, parked: 0 };
  const quiet: EndpointActivity = {
    ...{ waiting: 0, running: 0, oldestWaitMs: null, waitReason: null, jobsPerSecond: 0 },
    ...{ failedLastHour: 0, failureRate: null, workers },
  };
  const waits = { waiting: 1, oldestWaitMs: 5 };
  const nobody = { ...workers, idle: 0 };

  it.each<[string, Partial<EndpointActivity>, string]>([
    ['no jobs, and a worker', {}, 'ready'],
    ['no jobs and no worker', { workers: nobody }, 'idle'],
    ['a job that waits without a worker', { ...waits, workers: nobody }, 'blocked'],
    ['a worker that starts', { ...waits, workers: { ...nobody, starting: 1 } }, 'waiting'],
    ['a parked worker', { workers: { ...nobody, parked: 1 } }, 'idle'],
    [
      'a job that waits for a parked one',
      { ...waits, workers: { ...nobody, parked: 1 } },
      'waiting',
    ],
    ['a busy worker', { ...waits, running: 1 }, 'waiting'],
    ['a running job', { running: 1 }, 'running'],
    ['1 failure of 100', { failedLastHour: 1, failureRate: 0.01 }, 'ready'],
    ['1 failure of 10', { failedLastHour: 1, failureRate: 0.1 }, 'failing'],
    ['refused inputs only', { failedLastHour: 9, failureRate: null }, 'ready'],
  ])('with %s', (_case, activity, state) => {
    expect(judgeEndpoint({ ...quiet, ...activity }, undefined)).toBe(state);
  });

  it('is unreachable if no node answers', () => {
    expect(judgeEndpoint(undefined, undefined)).toBe('unreachable');
  });

  it('is the same for one endpoint and in the overview', async () => {
    const platform = await startPlatform();
    const one = await platform.call(`/v1/endpoints/${ENDPOINT}/activity`);
    expect(await one.json()).toEqual((await readOverview(platform))[0]);
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
