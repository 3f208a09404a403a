// `platform.events()`: snapshots over outages, refusals, and the end.
import { describe, expect, it } from 'vitest';
import { ApiError, createPlatform, type TopicEvent } from '../../../src/client.ts';
import { ENDPOINT, startPlatform, submitJob } from '../../support/api/platform.ts';

const TOPIC = `health:${ENDPOINT}`;

async function next(events: AsyncGenerator<TopicEvent, void, void>): Promise<TopicEvent> {
  const { value } = await events.next();
  if (!value) throw new Error('the events have ended');
  return value;
}

describe('the events of a platform', () => {
  it('go on with the present data after the connection was lost', async () => {
    const platform = await startPlatform();
    const lost = new AbortController();
    const states: string[] = [];
    const client = createPlatform({
      ...{ url: platform.url, key: platform.admin },
      fetch: (url, init) => {
        const isFirst = states.length === 0;
        return fetch(url, isFirst ? { ...init, signal: lost.signal } : init);
      },
    });
    const abort = new AbortController();
    const events = client.events([TOPIC], {
      signal: abort.signal,
      onConnection: (state) => states.push(state),
    });
    expect((await next(events)).data).toMatchObject({ jobs: { inQueue: 0 } });
    lost.abort();
    await submitJob(platform);
    const seen = async () => (await next(events)).data;
    await expect.poll(seen, { timeout: 20_000 }).toMatchObject({ jobs: { inQueue: 1 } });
    expect(states).toEqual(['open', 'ended', 'open']);
    const last = events.next();
    abort.abort();
    await expect(last).rejects.toThrow('abort');
  });

  it('end when no topic is left', async () => {
    const platform = await startPlatform();
    const client = createPlatform({ url: platform.url, key: platform.admin });
    const events = await Array.fromAsync(client.events(['health:none', 'pods']));
    expect(events.map(({ problem }) => problem?.code).toSorted()).toEqual([
      'conflict',
      'not_found',
    ]);
  });

  it('are refused with the problem of the platform', async () => {
    const platform = await startPlatform();
    const client = createPlatform({ url: platform.url, key: platform.admin });
    await expect(client.events(['weather']).next()).rejects.toThrow(ApiError);
    const stranger = createPlatform({ url: platform.url, key: 'mr_wrong' });
    await expect(stranger.events(['overview']).next()).rejects.toThrow('401');
  });
});
