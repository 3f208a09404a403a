// GET /v1/events: topics, rights, bounds, and the end of a stream.
import { describe, expect, it } from 'vitest';
import { createClient } from '../../../../src/client.ts';
import { EVENT_LIMITS } from '../../../../src/wire/routes/event-topics.ts';
import {
  type EventReader,
  readEvents,
  type TopicEvent,
} from '../../../support/api/event-reader.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';
import { startNodes } from '../../../support/api/two-nodes.ts';

function open(platform: Platform, topics: readonly string[], key = platform.admin) {
  const url = `${platform.url}/v1/events?topics=${encodeURIComponent(topics.join(','))}`;
  return readEvents(url, { authorization: key });
}

async function readUntil(
  { next }: EventReader,
  isWanted: (event: TopicEvent) => boolean,
): Promise<TopicEvent> {
  for (;;) {
    const event = await next();
    if (!event) throw new Error('the stream has ended');
    if (isWanted(event)) return event;
  }
}

describe('the event stream', () => {
  it('begins with a snapshot of each topic, which is the answer of an operation', async () => {
    const platform = await startPlatform();
    const job = await submitJob(platform);
    const paths = {
      [`health:${ENDPOINT}`]: `/v2/${ENDPOINT}/health`,
      [`endpoint:${ENDPOINT}`]: `/v1/endpoints/${ENDPOINT}`,
      endpoints: '/v1/endpoints?limit=1000',
      [`decisions:${ENDPOINT}`]: `/v1/endpoints/${ENDPOINT}/scaler`,
      [`versions:${ENDPOINT}`]: `/v1/endpoints/${ENDPOINT}/versions`,
    };
    const topics = [...Object.keys(paths), 'overview', `job:${ENDPOINT}/${job}`];
    const reader = await open(platform, topics);
    expect(reader.response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const seen = new Map<string, TopicEvent['data']>();
    while (seen.size < topics.length) {
      const event = await reader.next();
      if (event?.data) seen.set(event.topic, event.data);
    }
    for (const [topic, path] of Object.entries(paths)) {
      expect(seen.get(topic)).toEqual(await readJson(await platform.call(path)));
    }
    expect(seen.get('overview')).toMatchObject({ endpoints: [{ id: ENDPOINT, waiting: 1 }] });
    const shown = seen.get(`job:${ENDPOINT}/${job}`);
    expect(shown).toMatchObject({ id: job, status: 'IN_QUEUE', waitReason: {} });
    expect(shown).not.toHaveProperty('input');
  });

  it('follows a job from the queue to its end', async () => {
    const platform = await startPlatform();
    const job = await submitJob(platform);
    const reader = await open(platform, [`job:${ENDPOINT}/${job}`]);
    const until = (status: string, more: object = {}) =>
      readUntil(reader, ({ data }) => {
        return data?.['status'] === status && Object.entries(more).every(([k, v]) => data[k] === v);
      });
    await until('IN_QUEUE');
    const running = await takeJob(platform);
    await until('IN_PROGRESS');
    await running.yieldChunks('"a"', '"b"');
    await until('IN_PROGRESS', { chunks: 2 });
    await running.complete();
    await until('COMPLETED');
  });

  it('follows a flow as its jobs end', async () => {
    const platform = await startPlatform();
    const jobs = [
      { name: 'first', input: {} },
      { name: 'second', input: {}, after: ['first'] },
    ];
    const flow = await readJson(await platform.post(`/v2/${ENDPOINT}/flows`, { jobs }));
    const reader = await open(platform, [`flow:${ENDPOINT}/${flow['id']}`]);
    const until = (...states: string[]) =>
      readUntil(reader, ({ data }) => {
        const shown: unknown = data?.['jobs'];
        return Array.isArray(shown) && shown.map(({ state }) => state).join() === states.join();
      });
    await until('IN_QUEUE', 'WAITING');
    await (await takeJob(platform)).complete();
    await until('COMPLETED', 'IN_QUEUE');
  });

  it('follows a batch as its lines get results', async () => {
    const platform = await startPlatform();
    const { batches } = createClient({
      ...{ url: platform.url, key: platform.admin, endpoint: ENDPOINT },
    });
    const { id } = await batches.submit('{"id":"a","input":{}}\n{"id":"b","input":{}}\n');
    const reader = await open(platform, [`batch:${ENDPOINT}/${id}`]);
    const until = (completed: number, state: string) =>
      readUntil(reader, ({ data }) => data?.['completed'] === completed && data['state'] === state);
    await until(0, 'running');
    await (await takeJob(platform)).complete();
    await until(1, 'running');
    await (await takeJob(platform)).complete();
    await until(2, 'completed');
  });

  it('tells a client that connects again of what happened meanwhile', async () => {
    const platform = await startPlatform();
    const topic = `health:${ENDPOINT}`;
    const first = await open(platform, [topic]);
    expect((await first.next())?.data).toMatchObject({ jobs: { inQueue: 0 } });
    first.close();
    await submitJob(platform);
    const again = await open(platform, [topic]);
    expect((await again.next())?.data).toMatchObject({ jobs: { inQueue: 1 } });
  });

  it('ends a topic that the key may not read, and keeps the others', async () => {
    const platform = await startPlatform();
    await platform.endpoints.ensureEndpoint('other');
    const scopes = [`jobs:read:${ENDPOINT}`];
    const { key } = await platform.keys.issue({ name: 'k', scopes, userId: 'owner' });
    const refused = ['health:other', `endpoint:${ENDPOINT}`, 'pods', 'health:none', 'endpoints'];
    const reader = await open(platform, [...refused, `health:${ENDPOINT}`, 'overview'], key);
    const seen = new Map<string, string>();
    while (seen.size < refused.length + 2) {
      const event = await reader.next();
      if (event) seen.set(event.topic, event.problem?.code ?? 'data');
      if (event?.problem) expect(event.final).toBe(true);
    }
    expect(Object.fromEntries(seen)).toEqual({
      'health:other': 'forbidden',
      [`endpoint:${ENDPOINT}`]: 'forbidden',
      pods: 'forbidden',
      'health:none': 'not_found',
      endpoints: 'forbidden',
      [`health:${ENDPOINT}`]: 'data',
      overview: 'data',
    });
  });

  it('hides what belongs to other users', async () => {
    const platform = await startPlatform();
    const job = await submitJob(platform);
    const { key } = await platform.keys.issue({ name: 'k', scopes: ['admin'], userId: 'bob' });
    const reader = await open(
      platform,
      [`job:${ENDPOINT}/${job}`, `activity:${ENDPOINT}`, 'overview'],
      key,
    );
    const events = [await reader.next(), await reader.next(), await reader.next()];
    const told = Object.fromEntries(
      events.map((event) => [event?.topic, event?.problem?.code ?? event?.data?.['endpoints']]),
    );
    expect(told).toEqual({
      [`job:${ENDPOINT}/${job}`]: 'not_found',
      [`activity:${ENDPOINT}`]: 'not_found',
      overview: [],
    });
  });

  it('ends a topic when its endpoint is deleted', async () => {
    const platform = await startPlatform();
    await platform.endpoints.ensureEndpoint('gone');
    const reader = await open(platform, ['activity:gone']);
    await reader.next();
    await platform.call('/v1/endpoints/gone', { method: 'DELETE' });
    const { problem } = await readUntil(reader, (event) => event.final === true);
    expect(problem?.code).toBe('not_found');
  });

  it('ends when its key is revoked', async () => {
    const platform = await startPlatform();
    const { holder, key } = await platform.keys.issue({
      ...{ name: 'k', scopes: ['admin'], userId: 'owner' },
    });
    const reader = await open(platform, ['overview'], key);
    await reader.next();
    await platform.keys.remove(holder.keyId);
    expect(await reader.next()).toBeUndefined();
  });

  it('ends when its session ends, and pages of other sites get none', async () => {
    const platform = await startPlatform();
    const own = { 'millrace-console': '1', 'sec-fetch-site': 'same-origin' };
    const signedIn = await fetch(`${platform.url}/v1/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...own },
      body: JSON.stringify({ key: platform.admin }),
    });
    const [cookie = ''] = (signedIn.headers.get('set-cookie') ?? '').split(';');
    const url = `${platform.url}/v1/events?topics=overview`;
    const other = { cookie, 'sec-fetch-site': 'cross-site' };
    expect((await readEvents(url, other)).response.status).toBe(403);
    const reader = await readEvents(url, { cookie, 'sec-fetch-site': 'same-origin' });
    expect((await reader.next())?.topic).toBe('overview');
    await fetch(`${platform.url}/v1/session`, { method: 'DELETE', headers: { cookie, ...own } });
    expect(await reader.next()).toBeUndefined();
  });

  it('ends when the platform stops', async () => {
    const platform = await startPlatform();
    const reader = await open(platform, ['overview']);
    await reader.next();
    const closed = platform.close();
    expect(await reader.next()).toBeUndefined();
    await closed;
  });

  it.each([
    ['', 'topics'],
    ['?topics=', 'topics'],
    ['?topics=weather', 'weather'],
    ['?topics=health', 'health'],
    ['?topics=job:demo', 'job:demo'],
    [`?topics=${Array.from({ length: 17 }, (_, n) => `pod:${n}`).join()}`, 'at most 16'],
    ['?topic=overview', 'topic'],
  ])('is refused with %j, which the error names', async (query, named) => {
    const { call } = await startPlatform();
    const response = await call(`/v1/events${query}`);
    expect(response.status).toBe(422);
    expect(await response.text()).toContain(named);
  });

  it('has a bound of connections for each key, which frees with each end', async () => {
    const platform = await startPlatform();
    const all = Array.from({ length: EVENT_LIMITS.callerConnections }, () =>
      open(platform, ['overview']),
    );
    const [first] = await Promise.all(all);
    const refused = await platform.call('/v1/events?topics=overview');
    expect([refused.status, refused.headers.has('retry-after')]).toEqual([429, true]);
    const { key } = await platform.keys.issue({ name: 'k', scopes: ['admin'], userId: 'owner' });
    expect((await open(platform, ['overview'], key)).response.status).toBe(200);
    first?.close();
    await expect
      .poll(async () => (await open(platform, ['overview'])).response.status, { timeout: 20_000 })
      .toBe(200);
  });

  it('has a bound of connections for the node, which metrics show', async () => {
    const platform = await startPlatform({ server: { bounds: { maxEventStreams: 1 } } });
    await open(platform, ['overview', `health:${ENDPOINT}`]);
    expect((await platform.call('/v1/events?topics=overview')).status).toBe(429);
    const metrics = await (await platform.call('/metrics')).text();
    expect(metrics).toContain('millrace_event_connections 1\n');
    expect(metrics).toContain('millrace_event_topics 2\n');
  });

  it('shows data that other nodes have, with the rights of the key', async () => {
    const { other, owner } = await startNodes();
    const job = await submitJob(owner);
    const topics = [`health:${ENDPOINT}`, `job:${ENDPOINT}/${job}`, `endpoint:${ENDPOINT}`, 'pods'];
    const reader = await open(other, topics);
    const seen = new Map<string, unknown>();
    while (seen.size < topics.length) {
      const event = await reader.next();
      if (event) seen.set(event.topic, event.problem?.code ?? event.data?.['id'] ?? event.data);
    }
    expect([...seen.values()]).toHaveLength(topics.length);
    expect(seen.get(`health:${ENDPOINT}`)).toMatchObject({ jobs: { inQueue: 1 } });
    expect(seen.get(`job:${ENDPOINT}/${job}`)).toBe(job);
    expect(seen.get(`endpoint:${ENDPOINT}`)).toBe(ENDPOINT);
    // As the owner answers without an engine.
    expect(seen.get('pods')).toBe('conflict');
    const running = await takeJob(owner);
    await running.complete('1');
    await readUntil(reader, ({ data }) => data?.['status'] === 'COMPLETED');
  });

  it('waits for a node that has no data now, and goes on', async () => {
    const { learn, move, other, owner } = await startNodes();
    move(undefined);
    learn();
    const reader = await open(other, [`health:${ENDPOINT}`]);
    expect(await reader.next()).toMatchObject({ problem: { code: 'unavailable' }, final: false });
    move(owner.nodeUrl);
    learn();
    expect((await reader.next())?.data).toMatchObject({ jobs: { inQueue: 0 } });
  });

  it('shares reads between keys with the same rights', async () => {
    let reads = 0;
    const platform = await startPlatform({
      server: {
        readActivity: async () => {
          reads += 1;
          return {};
        },
      },
    });
    const readers = await Promise.all(
      [1, 2, 3].map(() => open(platform, [`activity:${ENDPOINT}`])),
    );
    for (const { next } of readers) expect((await next())?.data).toMatchObject({ id: ENDPOINT });
    expect(reads).toBe(1);
  });
});
