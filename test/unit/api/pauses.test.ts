// Pausing and resuming over HTTP and with the client: bodies, answers, refusals.
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { createClient } from '../../../src/client.ts';
import { readJson, startPlatform, submitJob } from '../../support/api/platform.ts';

describe('a pause', () => {
  it('is made, shown and ended with the client', async () => {
    const platform = await startPlatform();
    const client = createClient({ url: platform.url, key: platform.admin, endpoint: 'demo' });
    const until = systemClock.now() + 60_000;
    const pause = await client.pause({ until, reason: 'the database is being moved' });
    expect(pause).toMatchObject({ group: null, until, reason: 'the database is being moved' });
    await client.pause({ group: 'a' });
    expect(await client.pauses()).toMatchObject([pause, { group: 'a', until: null }]);
    expect(await client.health()).toMatchObject({ paused: pause, pausedGroups: 1 });
    const id = await submitJob(platform);
    expect((await client.status(id)).waitReason).toMatchObject({ code: 'paused', until });
    await client.resume();
    await client.resume({ group: 'a' });
    expect(await client.pauses()).toEqual([]);
    expect(await client.pause({ group: '' })).toMatchObject({ group: '' });
    await client.resume({ group: '' });
    expect(await client.pauses()).toEqual([]);
    expect(Object.keys(await client.health())).toEqual(['jobs', 'workers']);
  });

  it.each([
    ['an unknown member', { groups: ['a'] }, 422],
    ['a group of 65 characters', { group: 'x'.repeat(65) }, 422],
    ['a time that is no number', { until: 'tomorrow' }, 422],
    ['a reason of 501 characters', { reason: 'x'.repeat(501) }, 422],
    ['an array', [], 422],
  ])('is refused with %s', async (_, body, status) => {
    const platform = await startPlatform();
    const response = await platform.post('/v2/demo/pause', body);
    expect(response.status).toBe(status);
    expect(await readJson(await platform.call('/v2/demo/pauses'))).toEqual({ pauses: [] });
  });

  it('of an unknown endpoint is not found', async () => {
    const platform = await startPlatform();
    for (const verb of ['pause', 'resume']) {
      expect((await platform.post(`/v2/none/${verb}`, {})).status).toBe(404);
    }
    expect((await platform.call('/v2/none/pauses')).status).toBe(404);
  });
});
