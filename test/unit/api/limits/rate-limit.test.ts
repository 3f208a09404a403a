import { type FastifyInstance, fastify } from 'fastify';
import { parseList } from 'structured-headers';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ClientOrigins } from '../../../../src/api/http/client-origin.ts';
import { ProblemReplies } from '../../../../src/api/http/problem-reply.ts';
import { DEFAULT_BOUNDS } from '../../../../src/api/limits/bounds.ts';
import {
  DEFAULT_RATE_LIMITS,
  RateGate,
  type RateLimits,
} from '../../../../src/api/limits/rate-limit.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import {
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';

const LIMITS = { minute: 3, hour: 100, day: 1_000 };

const start = (limits: RateLimits = LIMITS) =>
  startPlatform({ server: { rateGate: new RateGate(limits) } });

/** Window → its parameters. */
function parse(text: string | null): Record<string, Record<string, unknown>> {
  const members = parseList(text ?? '').map(([name, parameters]) => [
    String(name),
    Object.fromEntries(parameters),
  ]);
  return Object.fromEntries(members);
}

const read = ({ headers }: Response) => parse(headers.get('ratelimit'));

const left = (response: Response) =>
  Object.entries(read(response)).map(([name, { r }]) => `${name} ${r}`);

const HEALTH = '/v2/demo/health';
const withKey = (key: string) => ({ headers: { authorization: key } });

async function spend({ call }: Platform, calls: number): Promise<void> {
  for (let made = 0; made < calls; made++) await call(HEALTH);
}

describe('the headers of an answer', () => {
  it('are lists of structured fields with one member per window', async () => {
    const { call } = await start(DEFAULT_RATE_LIMITS);
    const response = await call(HEALTH);
    expect(response.status).toBe(200);
    expect(parse(response.headers.get('ratelimit-policy'))).toEqual({
      minute: { q: 6_000, w: 60 },
      hour: { q: 200_000, w: 3_600 },
      day: { q: 2_000_000, w: 86_400 },
    });
    expect(read(response)).toEqual({
      minute: { r: 5_999, t: 60 },
      hour: { r: 199_999, t: 3_600 },
      day: { r: 1_999_999, t: 86_400 },
    });
  });

  it('omit windows that are not counted', async () => {
    const { call } = await start({ hour: 10 });
    const { headers } = await call(HEALTH);
    expect(parse(headers.get('ratelimit-policy'))).toEqual({ hour: { q: 10, w: 3_600 } });
    expect(parse(headers.get('ratelimit'))).toEqual({ hour: { r: 9, t: 3_600 } });
  });

  it('are also on refusals, streams and large answers, and each of these counts', async () => {
    const platform = await start({ day: 1_000 });
    const { call, keys, post } = platform;
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(JSON.stringify({ output: 'x'.repeat(100_000), metrics: {} }));
    await job.complete();
    const { key } = await keys.issue({ name: 'x', scopes: ['worker'] });
    const events = { headers: { accept: 'text/event-stream' } };
    const answers = [
      await call(`/v2/demo/stream/${id}`, events),
      await call(`/v2/demo/status/${id}`),
      await call('/v2/demo/status/none'),
      await post('/v2/demo/run', { input: 1 }),
      await call(HEALTH, withKey(key)),
      await call('/v2/elsewhere/health'),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 404, 422, 403, 404]);
    expect(answers.map((answer) => read(answer)['day']?.['r'])).toEqual([
      998, 997, 996, 995, 994, 993,
    ]);
  });

  it('are not on the answers of a platform without limits', async () => {
    const { call } = await startPlatform();
    expect((await call(HEALTH)).headers.has('ratelimit')).toBe(false);
  });
});

describe('a call beyond the limit', () => {
  it('gets 429, with the window in its detail and the wait in Retry-After', async () => {
    const platform = await start();
    await spend(platform, 3);
    const response = await platform.call(HEALTH);
    expect(response.status).toBe(429);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    expect(await readJson(response)).toEqual({
      title: expect.any(String),
      status: 429,
      detail: expect.stringContaining('minute'),
      code: 'rate_limited',
    });
    expect(response.headers.get('retry-after')).toBe(String(read(response)['minute']?.['t']));
    expect(read(response)['minute']).toMatchObject({ r: 0 });
    expect(response.headers.get('ratelimit-policy')).toContain('"minute";q=3;w=60');
  });

  it('does not count in any window', async () => {
    const platform = await start();
    await spend(platform, 50);
    expect(left(await platform.call(HEALTH))).toEqual(['minute 0', 'hour 97', 'day 997']);
  });

  it('gets the longest full window', async () => {
    const platform = await start({ minute: 1, hour: 1 });
    await spend(platform, 1);
    const response = await platform.call(HEALTH);
    expect((await readJson(response))['detail']).toContain('hour');
    expect(response.headers.get('retry-after')).toBe(String(read(response)['hour']?.['t']));
  });

  it('has no effect, and its body is not read', async () => {
    const platform = await start();
    await spend(platform, 3);
    expect((await platform.post('/v2/demo/run', '{')).status).toBe(429);
    expect((await platform.post('/v2/demo/run', { input: {} })).status).toBe(429);
    expect((await platform.queue.health('demo')).jobs.inQueue).toBe(0);
  });

  it('is answered in RunPod’s format on RunPod routes', async () => {
    const platform = await start();
    await spend(platform, 3);
    const response = await platform.call('/runpod/v2/demo/health');
    expect(response.status).toBe(429);
    expect(await readJson(response)).toEqual({ error: expect.stringContaining('minute') });
    expect(response.headers.has('retry-after')).toBe(true);
  });
});

describe('the counted calls', () => {
  it('are the calls of a user with any key', async () => {
    const platform = await start();
    const { call, keys } = platform;
    const { key } = await keys.issue({ name: 'x', scopes: ['jobs:read'] });
    await spend(platform, 2);
    expect(left(await call(HEALTH, withKey(key)))[0]).toBe('minute 0');
    expect((await call(HEALTH)).status).toBe(429);
    const other = await keys.issue({ name: 'x', scopes: ['admin'], userId: 'ann' });
    const response = await call('/v1/keys', withKey(other.key));
    expect({ status: response.status, left: left(response)[0] }).toEqual({
      ...{ status: 200, left: 'minute 2' },
    });
  });

  it('are not those of workers, calls without a key, or public routes', async () => {
    const platform = await start();
    const { call, post, worker } = platform;
    for (const path of ['/healthz', '/readyz', '/no/such/path']) {
      expect((await call(path)).headers.has('ratelimit')).toBe(false);
    }
    for (const path of ['/v2/demo/worker/hello', '/runpod/v2/demo/job-done/w1/j1']) {
      const response = await post(path, {}, withKey(worker));
      expect(response.headers.has('ratelimit')).toBe(false);
    }
    for (const key of ['nonsense', `mr_${'x'.repeat(43)}`]) {
      const response = await call(HEALTH, withKey(key));
      expect(response.status).toBe(401);
      expect(response.headers.has('ratelimit')).toBe(false);
    }
    expect(left(await call(HEALTH))[0]).toBe('minute 2');
  });
});

describe('a window', () => {
  let app: FastifyInstance;

  beforeEach(async () => {
    vi.useFakeTimers({ toFake: ['performance'], now: 1_000_000 });
    const gate = new RateGate({ minute: 2, hour: 5 });
    const problems = new ProblemReplies({
      ...{ log: silentLog, clock: systemClock },
      origins: new ClientOrigins(DEFAULT_BOUNDS),
    });
    const holder = {
      ...{ keyId: 'k', name: 'k', userId: 'ann', scopes: new Set('') },
      ...{ expiresAt: null, podId: null },
    };
    app = fastify();
    app.decorateRequest('holder', undefined);
    app.setErrorHandler((error, request, reply) => problems.send(error, request, reply));
    app.addHook('onRequest', async (request, reply) => {
      request.holder = holder;
      await gate.admit(request, reply);
    });
    app.get('/', async () => 'ok');
    await app.ready();
  });

  afterEach(async () => {
    vi.useRealTimers();
    await app.close();
  });

  const call = async () => {
    const { headers, statusCode } = await app.inject('/');
    return { status: statusCode, ...parse(String(headers['ratelimit'])) };
  };

  it('begins with the first call, and ends when it is over', async () => {
    await call();
    vi.advanceTimersByTime(59_000);
    expect(await call()).toMatchObject({ status: 200, minute: { r: 0, t: 1 }, hour: { r: 3 } });
    vi.advanceTimersByTime(999);
    expect(await call()).toMatchObject({ status: 429, minute: { r: 0, t: 1 } });
    vi.advanceTimersByTime(1);
    expect(await call()).toMatchObject({ status: 200, minute: { r: 1, t: 60 }, hour: { r: 2 } });
  });

  it('continues while shorter ones restart', async () => {
    for (let minute = 0; minute < 2; minute++) {
      for (let made = 0; made < 2; made++) expect((await call()).status).toBe(200);
      expect((await call()).status).toBe(429);
      vi.advanceTimersByTime(60_000);
    }
    expect(await call()).toMatchObject({ status: 200, hour: { r: 0, t: 3_480 } });
    expect(await call()).toMatchObject({ status: 429, minute: { r: 1 }, hour: { r: 0 } });
    vi.advanceTimersByTime(3_480_000);
    expect(await call()).toMatchObject({ status: 200, minute: { r: 1 }, hour: { r: 4, t: 3_600 } });
  });

  it('admits exactly its number of simultaneous calls', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => call()));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
  });
});
