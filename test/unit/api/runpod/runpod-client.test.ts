import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';

const BASE = '/runpod/v2/demo';
const chunk = (output: unknown) => JSON.stringify({ output, metrics: {} });
const shown = (output: unknown) => ({ output, metrics: {} });

const read = async (platform: Platform, path: string, init?: RequestInit) =>
  readJson(await platform.call(`${BASE}/${path}`, init));

async function submit(platform: Platform, body: object = { input: {} }): Promise<string> {
  return String((await readJson(await platform.post(`${BASE}/run`, body)))['id']);
}

/** As a worker of the name w gets them. */
async function takeLease({ link }: Platform, max = 1) {
  const identity = { workerId: 'w', incarnation: 1 };
  const hello = { ...identity, protocol: 1, version: '1', slots: 9, devices: [], outbox: [] };
  await link.hello(hello);
  const take = { ...identity, takeId: 't', max, waitMs: 5_000, held: [] };
  return link.take(take, new AbortController().signal);
}

/** Counts reads of streams; `first` resolves once one has begun. */
function watchReads({ queue }: Platform) {
  const readStream = queue.streams.read.bind(queue.streams);
  const first = Promise.withResolvers<void>();
  let count = 0;
  queue.streams.read = (request) => {
    count++;
    const page = readStream(request);
    first.resolve();
    return page;
  };
  return { first: first.promise, count: () => count };
}

describe('run', () => {
  it('answers with ID and status and passes on any input, the timeout and the S3 configuration', async () => {
    const platform = await startPlatform();
    const s3Config = { accessId: 'a', accessSecret: 's', bucketName: 'b', endpointUrl: 'u' };
    const body = { input: ['no', 'object'], s3Config, policy: { executionTimeout: 5_000 } };
    const answer = await readJson(await platform.post(`${BASE}/run`, body));
    expect(answer).toEqual({ id: expect.any(String), status: 'IN_QUEUE' });
    const [lease] = await takeLease(platform);
    expect(lease).toMatchObject({ jobId: answer['id'], executionTimeoutMs: 5_000 });
    expect(JSON.parse(lease?.s3Config ?? '')).toEqual(s3Config);
    expect(Buffer.from(lease?.input ?? '').toString()).toBe('["no","object"]');
  });

  it('answers the same Idempotency-Key and body with the first job, and another body with an error', async () => {
    const platform = await startPlatform();
    const send = async (n: number) => {
      const headers = { 'idempotency-key': 'k' };
      return readJson(await platform.post(`${BASE}/run`, { input: { n } }, { headers }));
    };
    const first = await send(1);
    expect(first).toMatchObject({ status: 'IN_QUEUE' });
    expect(await send(1)).toEqual(first);
    expect(await send(2)).toEqual({ error: expect.stringContaining('idempotencyKey') });
    const headers = { 'idempotency-key': '' };
    const malformed = await platform.post(`${BASE}/run`, { input: {} }, { headers });
    expect(malformed.status).toBe(400);
  });

  it('puts low-priority jobs behind all others of either API', async () => {
    const platform = await startPlatform();
    const low = await submit(platform, { input: {}, policy: { lowPriority: true } });
    const own = await submitJob(platform, { input: {}, policy: { priority: 0 } });
    const plain = await submit(platform, { input: {}, policy: { lowPriority: false } });
    // Checked against the OpenAPI document.
    expect(await readJson(await platform.call(`/v2/demo/jobs/${low}`))).toMatchObject({
      priority: -1,
    });
    const leases = await takeLease(platform, 3);
    expect(leases.map(({ jobId }) => jobId)).toEqual([own, plain, low]);
  });

  it('ignores null, empty and unknown members', async () => {
    const platform = await startPlatform();
    const nothing = { webhook: '', policy: null, s3Config: { accessId: null }, input: null };
    const others = { webhookV2: 'http://example.com/', batchId: 'x' };
    await submit(platform, { ...nothing, ...others });
    expect(await takeLease(platform)).toMatchObject([{ s3Config: '{}' }]);
  });

  it.each([
    ['no input', { policy: {} }, 'input: '],
    ['an invalid time to live', { input: {}, policy: { ttl: 1 } }, 'policy.ttl'],
    ['an invalid webhook URL', { input: {}, webhook: 'here' }, 'webhook'],
    ['text that is not JSON', '{', 'not JSON'],
  ])('refuses %s with 400 and a text', async (_name, body, text) => {
    const platform = await startPlatform();
    const answer = await platform.post(`${BASE}/run`, body);
    expect(answer.status).toBe(400);
    expect(answer.headers.get('content-type')).toMatch('application/json');
    expect(await readJson(answer)).toEqual({ error: expect.stringContaining(text) });
  });
});

describe('runsync and status-sync', () => {
  it('answer with the current job after their wait', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const waiting = platform.post(`${BASE}/runsync?wait=1000`, { input: {} });
    const [lease] = await takeLease(platform);
    await clock.advance(1_000);
    const record = await readJson(await waiting);
    expect(record).toMatchObject({ id: lease?.jobId, status: 'IN_PROGRESS' });
    expect(record['id']).toMatch(/^sync-/);
  });

  it.each(['GET', 'POST'])('answers when the job has ended (%s status-sync)', async (method) => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const job = await takeJob(platform);
    const waiting = read(platform, `status-sync/${id}?wait=300000`, { method });
    await job.complete('{"n":1}');
    expect(await waiting).toEqual({
      id,
      status: 'COMPLETED',
      delayTime: expect.any(Number),
      executionTime: 5,
      workerId: 'w1',
      output: { n: 1 },
    });
  });

  it.each(['runsync?wait=999', 'runsync?wait=300001'])('is refused with 400 (%s)', async (path) => {
    const platform = await startPlatform();
    const answer = await platform.post(`${BASE}/${path}`, { input: {} });
    expect(answer.status).toBe(400);
    const error = expect.stringMatching(/^wait .*\b1000\b.*\b300000\b/);
    expect(await readJson(answer)).toEqual({ error });
    expect(await read(platform, 'health')).toMatchObject({ jobs: { inQueue: 0 } });
  });
});

describe('status', () => {
  it.each(['GET', 'POST'])('shows progress as the output so far (%s)', async (method) => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const [lease] = await takeLease(platform);
    const { attempt = 0, jobId = '', token = '' } = lease ?? {};
    const ref = { jobId, attempt, token, seq: 1 };
    const reports = [{ ...ref, kind: 'progress' as const, body: Buffer.from('"half"') }];
    await platform.link.report({ workerId: 'w', incarnation: 1, reports });
    const record = await read(platform, `status/${id}`, { method });
    expect(record).toMatchObject({ status: 'IN_PROGRESS', output: 'half' });
    expect(record).not.toHaveProperty('progress');
  });

  it('shows the error as text', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    await (await takeJob(platform)).fail('never');
    expect(await read(platform, `status/${id}`)).toMatchObject({ status: 'FAILED', error: 'no' });
    expect(await readJson(await platform.call(`/v2/demo/status/${id}`))).toMatchObject({
      error: { code: 'handler_error', message: 'no' },
    });
  });

  it('shows the thrown error as JSON in the text, with the member names of Python workers', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const [lease] = await takeLease(platform);
    const { attempt = 0, jobId = '', token = '' } = lease ?? {};
    const thrown = { message: 'boom', type: 'RangeError', stack: 'at x' };
    const error = { code: 'handler_error' as const, ...thrown };
    const outcome = { kind: 'failed', executionMs: 1, retry: 'never', error } as const;
    const header = { jobId, attempt, token, seq: 1, kind: 'outcome', outcome } as const;
    const reports = [{ ...header, body: Buffer.alloc(0) }];
    await platform.link.report({ workerId: 'w', incarnation: 1, reports });
    expect(JSON.parse(String((await read(platform, `status/${id}`))['error']))).toEqual({
      error_type: 'RangeError',
      error_message: 'boom',
      error_traceback: 'at x',
      error_code: 'handler_error',
      worker_id: 'w',
    });
  });

  it('sets another time to live for keys with the write scope', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const grant = { name: 'r', userId: 'owner', scopes: ['jobs:read' as const] };
    const authorization = (await platform.keys.issue(grant)).key;
    const ask = (headers: Record<string, string>) =>
      platform.call(`${BASE}/status/${id}?ttl=10000`, { headers });
    expect((await ask({ authorization })).status).toBe(403);
    expect((await ask({})).status).toBe(200);
  });
});

describe('status?ttl=', () => {
  it('accepts the 6 s of the example in RunPod’s documentation and at least 1 s', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submit(platform);
    expect(await read(platform, `status/${id}?ttl=6000`)).toMatchObject({ status: 'IN_QUEUE' });
    expect((await platform.call(`${BASE}/status/${id}?ttl=999`)).status).toBe(400);

    await clock.advance(6_000);

    expect((await platform.call(`${BASE}/status/${id}`)).status).toBe(404);
  });
});

describe('stream', () => {
  it('returns each chunk once, and no final status while chunks remain', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(1), chunk(2));
    const method = 'POST';
    expect(await read(platform, `stream/${id}`, { method })).toEqual({
      status: 'IN_PROGRESS',
      stream: [shown(1), shown(2)],
    });
    const large = 'x'.repeat(900_000);
    for (let n = 0; n < 12; n++) await job.yieldChunks(chunk(large));
    await job.complete();
    const first = await read(platform, `stream/${id}`);
    expect(first['status']).toBe('IN_PROGRESS');
    const second = await read(platform, `stream/${id}`);
    expect(second['status']).toBe('COMPLETED');
    expect([first['stream'], second['stream']].flat()).toHaveLength(12);
    expect(await read(platform, `stream/${id}`)).toEqual({ status: 'COMPLETED', stream: [] });
  });

  it('answers a waiting stream with the next chunk, in one read', async () => {
    const platform = await startPlatform({ clock: new ManualClock() });
    const id = await submit(platform);
    const job = await takeJob(platform);
    const reads = watchReads(platform);
    const waiting = read(platform, `stream/${id}`);
    await reads.first;
    await job.yieldChunks(chunk(1));
    expect(await waiting).toEqual({ status: 'IN_PROGRESS', stream: [shown(1)] });
    expect(reads.count()).toBe(1);
  });

  it.each([
    ['for 8 s, less than the 10 s that runpod-python waits', '', 8_000],
    ['for as long as the client asks', '?wait=20000', 20_000],
  ])('delays an empty answer %s', async (_name, query, waitMs) => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submit(platform);
    const reads = watchReads(platform);
    let isAnswered = false;
    const waiting = read(platform, `stream/${id}${query}`).finally(() => {
      isAnswered = true;
    });
    await reads.first;

    await clock.advance(waitMs - 1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(isAnswered).toBe(false);
    await clock.advance(1);

    expect(await waiting).toEqual({ status: 'IN_QUEUE', stream: [] });
  });

  it('shares its cursor with the stream of Millrace’s own path', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(1));
    await read(platform, `stream/${id}`);
    await job.yieldChunks(chunk(2));
    const own = await platform.call(`/v2/demo/stream/${id}`);
    expect(await own.json()).toEqual([shown(2)]);
  });
});

describe('two streams in direct succession, one of each API', () => {
  it('return each chunk once, however long the first one’s cursor takes to store', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(1));
    await job.complete();
    const { streams } = platform.queue;
    const noteSent = streams.noteSent.bind(streams);
    const noted = Promise.withResolvers<void>();
    streams.noteSent = async (...args) => {
      await noted.promise;
      return noteSent(...args);
    };
    expect((await read(platform, `stream/${id}`))['stream']).toEqual([shown(1)]);
    const second = platform.call(`/v2/demo/stream/${id}`);
    setTimeout(noted.resolve, 50);
    expect(await (await second).json()).toEqual([]);
  });
});

describe('cancel, retry and purge-queue', () => {
  it('answer in the form that RunPod’s clients read', async () => {
    const platform = await startPlatform();
    const post = (path: string, body?: string) =>
      read(platform, path, { method: 'POST', ...(body !== undefined && { body }) });
    const id = await submit(platform);
    expect(await post(`cancel/${id}`, '{}')).toEqual({ id, status: 'CANCELLED' });
    const failed = await submit(platform);
    await (await takeJob(platform)).fail('never');
    expect(await post(`retry/${failed}`)).toEqual({ id: failed, status: 'IN_QUEUE' });
    await submit(platform);
    const jobs = { removed: 2, status: 'completed' };
    expect(await post('purge-queue', 'null')).toEqual(jobs);
  });

  it('are refused with 400 if the job does not allow it', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const answer = await platform.call(`${BASE}/retry/${id}`, { method: 'POST' });
    expect(answer.status).toBe(400);
    expect(await readJson(answer)).toEqual({ error: expect.stringContaining('IN_QUEUE') });
  });
});

describe('health', () => {
  it('counts idle workers as ready and contains the counts that are always zero', async () => {
    const platform = await startPlatform();
    await submit(platform);
    await (await takeJob(platform)).complete('1');
    expect(await read(platform, 'health')).toEqual({
      jobs: { completed: 1, failed: 0, inProgress: 0, inQueue: 0, retried: 0 },
      workers: { idle: 1, initializing: 0, ready: 1, running: 0, throttled: 0, unhealthy: 0 },
    });
  });
});

describe('a call that cannot be served', () => {
  it('is answered with a status and a text, not a problem', async () => {
    const platform = await startPlatform();
    const cases = [
      [401, await platform.call(`${BASE}/health`, { headers: { authorization: 'Bearer x' } })],
      [404, await platform.call(`${BASE}/status/none`)],
      [404, await platform.call('/runpod/v2/other/health')],
      [413, await platform.post(`${BASE}/run`, { input: { x: 'x'.repeat(10_485_760) } })],
    ] as const;
    for (const [status, answer] of cases) {
      expect(answer.status).toBe(status);
      expect(await readJson(answer)).toEqual({ error: expect.any(String) });
    }
  });

  it.each([
    ['GET', `${BASE}/nothing`, 404],
    ['GET', '/runpod/v2', 404],
    ['GET', `${BASE}/requests?limit=5`, 404],
    ['GET', `${BASE}/run`, 405],
    ['DELETE', `${BASE}/status/x`, 405],
    ['GET', `${BASE}/status/${'x'.repeat(300)}`, 404],
    ['GET', `${BASE}/status/%zz`, 400],
  ])(
    'is answered for an unknown resource (%s %s) with %i in that form',
    async (method, path, status) => {
      const platform = await startPlatform();
      const answer = await platform.call(path, { method });
      expect(answer.status).toBe(status);
      expect(answer.headers.get('content-type')).toMatch(/^application\/json(;|$)/);
      expect(await readJson(answer)).toEqual({ error: expect.any(String) });
    },
  );

  it('is answered with a problem on another path', async () => {
    const platform = await startPlatform();
    const answer = await platform.call('/runpods/v2');
    expect(answer.headers.get('content-type')).toBe('application/problem+json');
  });

  it('shows no internal errors', async () => {
    const platform = await startPlatform();
    platform.queue.health = () => Promise.reject(new Error('secret'));
    const answer = await platform.call(`${BASE}/health`);
    expect(answer.status).toBe(500);
    expect(await answer.text()).not.toContain('secret');
    expect(platform.logged()).toContain('secret');
  });
});
