import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import type { Store } from '../../../src/store/store.ts';
import { StoreUnavailableError } from '../../../src/store/store.ts';
import type { LeaseHeader } from '../../../src/wire/link/worker-link.ts';
import { errorAt, jobList } from '../../support/answers.ts';
import {
  exchange,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../support/api/platform.ts';

const MB = 1_048_576;

async function takeLease({ link }: Platform): Promise<LeaseHeader | undefined> {
  const identity = { workerId: 'w', incarnation: 1 };
  const hello = { ...identity, protocol: 1, version: '1', slots: 1, devices: [], outbox: [] };
  await link.hello(hello);
  const take = { ...identity, takeId: 't', max: 1, waitMs: 5_000, held: [] };
  return (await link.take(take, new AbortController().signal))[0];
}

describe('run', () => {
  it('answers with the ID and IN_QUEUE and passes on the unchanged bytes of the input', async () => {
    const platform = await startPlatform();
    const body = '{ "input" : {"b":1.0,  "a":"\\u0041"}, "policy":{"priority":3} }';
    const response = await platform.post('/v2/demo/run', body);
    expect(response.status).toBe(200);
    const { id, ...rest } = await readJson(response);
    expect(rest).toEqual({ status: 'IN_QUEUE' });
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    const hello = { workerId: 'w', incarnation: 1, protocol: 1, version: '1', slots: 1 };
    await platform.link.hello({ ...hello, devices: [], outbox: [] });
    const take = { workerId: 'w', incarnation: 1, takeId: 't', max: 1, waitMs: 0, held: [] };
    const [lease] = await platform.link.take(take, new AbortController().signal);
    expect(Buffer.from(lease?.input ?? '').toString()).toBe('{"b":1.0,  "a":"\\u0041"}');
  });

  it.each(['run', 'runsync'])('puts the job into the trace of the request (%s)', async (verb) => {
    const platform = await startPlatform();
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const headers = { traceparent, tracestate: 'b=2, a=1' };
    const answer = platform.post(`/v2/demo/${verb}`, { input: {} }, { headers });
    const lease = await takeLease(platform);
    expect(lease).toMatchObject({ traceparent, tracestate: 'b=2,a=1' });
    if (verb === 'run') await answer;
    await platform.close();
    await answer;
  });

  it('treats a request with an invalid trace as one without', async () => {
    const platform = await startPlatform();
    const headers = { traceparent: '00-4BF9-00f0-01', tracestate: 'a=1' };
    expect((await platform.post('/v2/demo/run', { input: {} }, { headers })).status).toBe(200);
    const lease = await takeLease(platform);
    expect(lease).not.toHaveProperty('traceparent');
    expect(lease).not.toHaveProperty('tracestate');
  });

  it.each([
    ['other white space', '{ "input": {"a": 1,\n"b": [{"x": 1, "y": 2}]}, "idempotencyKey": "k" }'],
    ['another order', '{"idempotencyKey":"k","input":{"b":[{"y":2,"x":1}],"a":1}}'],
    ['other escapes', '{"input":{"\\u0061":1,"b":[{"x":1.0,"y":2}]},"idempotencyKey":"k"}'],
  ])(
    'answers a repeated idempotencyKey of an equal body with %s with the first job',
    async (_name, again) => {
      const { post } = await startPlatform();
      const body = '{"input":{"a":1,"b":[{"x":1,"y":2}]},"idempotencyKey":"k"}';
      const first = await readJson(await post('/v2/demo/run', body));
      const second = await post('/v2/demo/run', again);
      expect(second.status).toBe(200);
      expect(await readJson(second)).toMatchObject({ id: first['id'] });
    },
  );

  it.each([
    ['another order of elements', '[2,1]', '[1,2]'],
    ['a number that is equal only in JavaScript', '9007199254740993', '9007199254740992'],
    ['a string instead of a number', '"1"', '1'],
    ['null instead of a missing member', '{"b":null}', '{}'],
  ])('refuses a repeated idempotencyKey with %s', async (_name, one, other) => {
    const { post } = await startPlatform();
    const send = (value: string) =>
      post('/v2/demo/run', `{"input":{"a":${value}},"idempotencyKey":"k"}`);
    expect((await send(one)).status).toBe(200);
    expect((await send(other)).status).toBe(409);
  });

  it('answers a repeated idempotencyKey with the first job and its status', async () => {
    const platform = await startPlatform();
    const body = { input: { n: 1 }, idempotencyKey: 'k' };
    const id = await submitJob(platform, body);
    await platform.call(`/v2/demo/cancel/${id}`, { method: 'POST' });
    const again = await readJson(await platform.post('/v2/demo/run', body));
    expect(again).toEqual({ id, status: 'CANCELLED' });
    const other = await platform.post('/v2/demo/run', { ...body, input: { n: 2 } });
    expect(other.status).toBe(409);
  });

  describe('with the header Idempotency-Key', () => {
    const body = { input: { n: 1 } };

    async function startRun() {
      const platform = await startPlatform();
      return (key: string, sent: object = body, verb = 'run') =>
        platform.post(`/v2/demo/${verb}`, sent, { headers: { 'idempotency-key': key } });
    }

    it('answers the same key and body with the first job', async () => {
      const run = await startRun();
      const first = await readJson(await run('k 1'));
      expect(await readJson(await run('k 1'))).toEqual(first);
      expect((await readJson(await run('k 1', body, 'runsync?wait=1000')))['id']).toBe(first['id']);
      expect((await readJson(await run('k 2')))['id']).not.toBe(first['id']);
    });

    it('answers another body with the same key with 409', async () => {
      const run = await startRun();
      await run('k');
      const response = await run('k', { input: { n: 2 } });
      expect(response.status).toBe(409);
      expect(await readJson(response)).toMatchObject({ code: 'conflict' });
    });

    it.each([
      ['a small input', { n: 1 }, 'k'],
      ['a number of 16 digits', { n: 9_007_199_254_740_991 }, 'k'],
      ['a key of 16 digits', { n: 1 }, '1234567890123456'],
      ['an input that is compared by its bytes', { text: 'x'.repeat(MB) }, 'k'],
    ])('makes one job of it and the same key in the body, with %s', async (_name, input, key) => {
      const platform = await startPlatform();
      const headers = { 'idempotency-key': key };
      const bodies = [{ input }, { idempotencyKey: key, input }, { input, idempotencyKey: key }];
      const ids = new Set<unknown>();
      for (const base of ['/v2/demo', '/runpod/v2/demo']) {
        ids.add((await readJson(await platform.post(`${base}/run`, bodies[0], { headers })))['id']);
        ids.add((await readJson(await platform.post(`${base}/run`, bodies[1], { headers })))['id']);
      }
      for (const sent of bodies.slice(1)) {
        ids.add((await readJson(await platform.post('/v2/demo/run', sent)))['id']);
        const batch = await platform.post('/v2/demo/jobs', { jobs: [sent] });
        ids.add(/"id":"([^"]+)"/.exec(await batch.text())?.[1]);
      }
      expect(ids.size).toBe(1);
    });

    it.each([
      ['another key than the body', 'k', { ...body, idempotencyKey: 'other' }, 'must be equal'],
      ['an empty key', '', body, 'must not be empty'],
      ['a key of 256 characters', 'k'.repeat(256), body, 'must have at most 255 characters'],
      ['a key that is not ASCII', 'k\u00e9', body, 'must be printable ASCII'],
    ])('answers %s with 422 that names the header', async (_name, key, sent, problem) => {
      const run = await startRun();
      const response = await run(key, sent);
      expect(response.status).toBe(422);
      const { detail, errors } = await readJson(response);
      expect(errors).toEqual([errorAt('Idempotency-Key')]);
      expect(detail).toContain(`Idempotency-Key ${problem}`);
    });
  });

  it.each([
    ['', 400, 'malformed'],
    ['{"input":', 400, 'malformed'],
    ['{"input":1}', 422, 'invalid'],
    ['{"input":{},"webhook":"http://"}', 422, 'invalid'],
  ])('answers the body %j with %i', async (body, status, code) => {
    const { post } = await startPlatform();
    const response = await post('/v2/demo/run', body);
    expect(response.status).toBe(status);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    expect(await readJson(response)).toMatchObject({ status, code });
  });

  it('accepts JSON with media type parameters and no other media type', async () => {
    const { post } = await startPlatform();
    const run = (type: string) =>
      post('/v2/demo/run', { input: {} }, { headers: { 'content-type': type } });
    expect((await run('application/json; charset=UTF-8')).status).toBe(200);
    expect((await run('Application/JSON')).status).toBe(200);
    expect((await run('text/plain')).status).toBe(415);
    expect((await run('application/jsonx')).status).toBe(415);
  });

  it('gets 404 for an unknown endpoint', async () => {
    const { post } = await startPlatform();
    expect((await post('/v2/none/run', { input: {} })).status).toBe(404);
  });

  it('may have a group of 1 to 64 characters without control characters', async () => {
    const { call, post } = await startPlatform();
    const run = (group: unknown) => post('/v2/demo/run', { input: {}, policy: { group } });
    for (const group of ['', 'g'.repeat(65), 'a\nb', 'a\u0000', '\ud800', 7, null]) {
      const response = await run(group);
      expect(response.status).toBe(422);
      expect(JSON.stringify(await response.json())).toContain('policy.group');
    }
    const group = 'é'.repeat(64);
    const { id } = await readJson(await run(group));
    expect(await readJson(await call(`/v2/demo/status/${id}`))).toMatchObject({ group });
  });

  it('gets 429 with Retry-After for a full queue', async () => {
    const { endpoints, post } = await startPlatform();
    await endpoints.ensureEndpoint('small', { maxQueued: 1 });
    await post('/v2/small/run', { input: {} });
    const response = await post('/v2/small/run', { input: {} });
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBe('5');
  });

  it('accepts a body of exactly 10 MB', async () => {
    const { post } = await startPlatform();
    const frame = '{"input":{"a":""}}';
    const body = `{"input":{"a":"${'x'.repeat(10 * MB - frame.length)}"}}`;
    expect((await post('/v2/demo/run', body)).status).toBe(200);
    expect((await post('/v2/demo/run', `${body} `)).status).toBe(413);
  });

  it('answers 413 before a body with a too large Content-Length is sent', async () => {
    const { admin, port } = await startPlatform();
    const head = `POST /v2/demo/run HTTP/1.1\r\nHost: x\r\nAuthorization: ${admin}\r\nContent-Type: application/json\r\n`;
    const answer = await exchange(
      port,
      [`${head}Content-Length: ${10 * MB + 1}\r\n\r\n{`],
      (text) => text.includes('payload_too_large'),
    );
    expect(answer).toMatch(/^HTTP\/1.1 413/);
  });

  it('answers 413 within a chunked body that grows too large', async () => {
    const { admin, port } = await startPlatform();
    const head = `POST /v2/demo/run HTTP/1.1\r\nHost: x\r\nAuthorization: ${admin}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const size = 11 * MB;
    const answer = await exchange(
      port,
      [head, `${size.toString(16)}\r\n`, Buffer.alloc(size, 0x20), '\r\n'],
      (text) => text.includes('payload_too_large'),
    );
    expect(answer).toMatch(/^HTTP\/1.1 413/);
  });

  it('disconnects a client that does not stop sending after its 413', async () => {
    const clock = new ManualClock();
    const { admin, port } = await startPlatform({ clock });
    const head = `POST /v2/demo/run HTTP/1.1\r\nHost: x\r\nAuthorization: ${admin}\r\nContent-Type: application/json\r\n`;
    const answer = await exchange(port, [`${head}Content-Length: ${11 * MB}\r\n\r\n{`], (text) => {
      if (text.includes('payload_too_large')) void clock.advance(2_000);
      return false;
    });
    expect(answer).toMatch(/^HTTP\/1.1 413/);
  });

  it('gets 503 with Retry-After and no internal message when the store is not writable', async () => {
    let isFull = false;
    const wrapStore = (store: Store): Store => ({
      write: (operation) =>
        isFull
          ? Promise.reject(new StoreUnavailableError('/secret/path is full'))
          : store.write(operation),
      read: (operation) => store.read(operation),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
    });
    const { post } = await startPlatform({ wrapStore });
    isFull = true;
    const response = await post('/v2/demo/run', { input: {} });
    expect(response.status).toBe(503);
    expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await response.text()).not.toContain('secret');
  });

  it('gives 500 with an ID that is also logged if it fails unexpectedly', async () => {
    const wrapStore = (store: Store): Store => ({
      write: (operation) => store.write(operation),
      read: (operation) =>
        isBroken ? Promise.reject(new Error('the inner secret')) : store.read(operation),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
    });
    let isBroken = false;
    const { admin, call, logged } = await startPlatform({ wrapStore });
    isBroken = true;
    const response = await call('/v2/demo/health');
    expect(response.status).toBe(500);
    const { detail } = await readJson(response);
    expect(detail).not.toContain('secret');
    const id = /[0-9a-f-]{36}/.exec(String(detail))?.[0] ?? 'no id';
    expect(logged()).toContain(id);
    expect(logged()).toContain('the inner secret');
    expect(logged()).not.toContain(admin);
  });
});

describe('runsync', () => {
  it('answers with the whole record when the job has ended', async () => {
    const platform = await startPlatform();
    const answered = platform.post('/v2/demo/runsync?wait=60000', { input: {} });
    const job = await takeJob(platform);
    await job.complete('{"ok": true}');
    const response = await answered;
    expect(response.status).toBe(200);
    const text = await response.text();
    expect(text).toContain('"output":{"ok": true}');
    expect(JSON.parse(text)).toMatchObject({ id: job.id, status: 'COMPLETED', executionTime: 5 });
    expect(job.id).toMatch(/^sync-/);
  });

  it('answers with the current record after the wait', async () => {
    const { post } = await startPlatform();
    const response = await post('/v2/demo/runsync?wait=1000', { input: {} });
    expect(response.status).toBe(200);
    expect(await readJson(response)).toMatchObject({ status: 'IN_QUEUE' });
  });

  it.each(['999', '300001', '1e4', '-1', '', '1000.5', '5000&wait=6000'])(
    'refuses wait=%s by name and range',
    async (wait) => {
      const { post } = await startPlatform();
      const response = await post(`/v2/demo/runsync?wait=${wait}`, { input: {} });
      expect(response.status).toBe(422);
      const { errors } = await readJson(response);
      expect(errors).toEqual([expect.stringMatching(/^wait: .*\b1000\b.*\b300000\b/)]);
    },
  );
});

describe('a job', () => {
  it('is cancelled without a body, with {} and with an empty body of a form', async () => {
    const platform = await startPlatform();
    for (const init of [
      {},
      { body: '{}', headers: { 'content-type': 'application/json' } },
      { body: '', headers: { 'content-type': 'application/x-www-form-urlencoded' } },
    ]) {
      const id = await submitJob(platform);
      const response = await platform.call(`/v2/demo/cancel/${id}`, { method: 'POST', ...init });
      expect(response.status).toBe(200);
      expect(await readJson(response)).toEqual({ id, status: 'CANCELLED' });
    }
  });

  it('cannot be retried while it runs: 409 with its status', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    await takeJob(platform);
    const response = await platform.call(`/v2/demo/retry/${id}`, { method: 'POST' });
    expect(response.status).toBe(409);
    expect((await readJson(response))['detail']).toContain('IN_PROGRESS');
  });

  it('is retried under its ID if it failed', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    await (await takeJob(platform)).fail('never');
    const failed = await readJson(await platform.call(`/v2/demo/status/${id}`));
    expect(failed).toMatchObject({ status: 'FAILED', error: { code: 'handler_error' } });
    const response = await platform.call(`/v2/demo/retry/${id}`, { method: 'POST' });
    expect(await readJson(response)).toEqual({ id, status: 'IN_QUEUE' });
  });

  it('gives 404 in every operation if it does not exist', async () => {
    const { call } = await startPlatform();
    for (const path of ['status', 'stream', 'logs']) {
      expect((await call(`/v2/demo/${path}/none`)).status).toBe(404);
    }
    for (const path of ['cancel', 'retry']) {
      expect((await call(`/v2/demo/${path}/none`, { method: 'POST' })).status).toBe(404);
    }
  });

  it('has its log as NDJSON from a byte position, with a line that counts dropped lines', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.log('{"msg":"one"}\n');
    await job.log('{"msg":"two"}\n', 7);
    const whole = await platform.call(`/v2/demo/logs/${id}`);
    expect(whole.headers.get('content-type')).toBe('application/x-ndjson');
    expect(whole.headers.get('millrace-next')).toBe('28');
    expect(whole.headers.get('millrace-status')).toBe('IN_PROGRESS');
    const lines = (await whole.text()).trimEnd().split('\n');
    expect(lines.slice(0, 2)).toEqual(['{"msg":"one"}', '{"msg":"two"}']);
    expect(JSON.parse(lines[2] ?? '')).toMatchObject({ dropped: 7 });
    const rest = await platform.call(`/v2/demo/logs/${id}?after=14`);
    expect(await rest.text()).toMatch(/^{"msg":"two"}\n/);
  });
});

describe('an endpoint', () => {
  it('is purged with the count and `completed`', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    await submitJob(platform, { input: {}, policy: { delay: 60_000 } });
    const response = await platform.call('/v2/demo/purge-queue', { method: 'POST' });
    expect(await readJson(response)).toEqual({ removed: 2, status: 'completed' });
  });

  it('returns its health with the members of the specification', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    expect(await readJson(await platform.call('/v2/demo/health'))).toEqual({
      jobs: { completed: 0, failed: 0, inProgress: 0, inQueue: 1, retried: 0 },
      workers: { idle: 0, running: 0 },
    });
  });

  it('lists its jobs page by page, newest first, by status', async () => {
    const platform = await startPlatform();
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.unshift(await submitJob(platform));
    await platform.call(`/v2/demo/cancel/${ids[0]}`, { method: 'POST' });
    const seen: unknown[] = [];
    let query = 'status=IN_QUEUE&limit=3';
    for (let page = 0; page < 2; page++) {
      const answer = await readJson(await platform.call(`/v2/demo/jobs?${query}`));
      if (Array.isArray(answer['jobs'])) seen.push(...answer['jobs'].map(({ id }) => id));
      query = `status=IN_QUEUE&limit=3&cursor=${answer['cursor']}`;
    }
    expect(seen).toEqual(ids.slice(1));
    expect(query).toContain('cursor=undefined');
  });

  it('finds jobs by worker, error, time and a part of the ID', async () => {
    const platform = await startPlatform();
    const ids: string[] = [];
    const times: number[] = [];
    for (const outcome of ['completed', 'failed', 'queued']) {
      ids.push(await submitJob(platform));
      times.push(Date.now());
      if (outcome !== 'queued') {
        const job = await takeJob(platform);
        await (outcome === 'failed' ? job.fail('never') : job.complete());
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    const find = async (query: string) => {
      const response = await platform.call(`/v2/demo/jobs?${query}`);
      const { jobs } = jobList.parse(await response.json());
      return jobs.map(({ id }) => ids.indexOf(id));
    };
    const end = (ids[1] ?? '').slice(-12).toUpperCase();
    expect(await find('workerId=w1')).toEqual([1, 0]);
    expect(await find('workerId=w1&status=COMPLETED')).toEqual([0]);
    expect(await find('errorCode=handler_error')).toEqual([1]);
    expect(await find(`id=${end}`)).toEqual([1]);
    expect(await find(`since=${(times[0] ?? 0) + 1}`)).toEqual([2, 1]);
    expect(await find(`until=${times[0]}`)).toEqual([0]);
    for (const query of ['errorCode=none', 'id=%25', 'since=x', 'until=-1', 'workerId=']) {
      expect((await platform.call(`/v2/demo/jobs?${query}`)).status).toBe(422);
    }
  });

  it('keeps tags, and finds the jobs that have all of the given ones', async () => {
    const platform = await startPlatform();
    const ids = [
      await submitJob(platform, { input: {}, policy: { tags: ['customer-7', 'nightly'] } }),
      await submitJob(platform, { input: {}, policy: { tags: ['customer-7', 'customer-7'] } }),
      await submitJob(platform, { input: {}, policy: { tags: [] } }),
    ];
    const find = async (query: string) => {
      const response = await platform.call(`/v2/demo/jobs?${query}`);
      const { jobs } = jobList.parse(await response.json());
      return jobs.map(({ id, tags }) => [ids.indexOf(id), tags]);
    };
    expect(await find('tags=customer-7')).toEqual([
      [1, ['customer-7']],
      [0, ['customer-7', 'nightly']],
    ]);
    expect(await find('tags=customer-7&tags=nightly')).toEqual([[0, ['customer-7', 'nightly']]]);
    expect(await find('tags=nightly&status=FAILED')).toEqual([]);
    expect(await find('since=0')).toContainEqual([2, undefined]);
    const record = await readJson(await platform.call(`/v2/demo/status/${ids[1]}`));
    expect(record['tags']).toEqual(['customer-7']);
    for (const query of ['tags=', 'tags=a%25', `tags=${'a'.repeat(65)}`, 'tags=a&'.repeat(11)]) {
      expect((await platform.call(`/v2/demo/jobs?${query}`)).status).toBe(422);
    }
    for (const tags of [['a"b'], ['a'.repeat(65)], Array(11).fill('a'), 'a']) {
      const body = { input: {}, policy: { tags } };
      const problem = await readJson(await platform.post('/v2/demo/run', body));
      expect(problem['code']).toBe('invalid');
      expect(String(problem['errors'])).toContain('policy.tags');
    }
  });

  it('goes on in the next page where a filtered page has ended', async () => {
    const platform = await startPlatform();
    const ids: string[] = [];
    for (let count = 0; count < 5; count++) ids.unshift(await submitJob(platform));
    const found: string[] = [];
    for (let cursor = ''; ; ) {
      const response = await platform.call(`/v2/demo/jobs?id=-&limit=2${cursor}`);
      const page = jobList.parse(await response.json());
      found.push(...page.jobs.map(({ id }) => id));
      if (page.cursor === undefined) break;
      cursor = `&cursor=${page.cursor}`;
    }
    expect(found).toEqual(ids);
  });

  it.each(['status=DONE', 'cursor=%21', 'limit=0', 'limit=1001'])(
    'refuses a list with %s',
    async (query) => {
      const { call } = await startPlatform();
      expect((await call(`/v2/demo/jobs?${query}`)).status).toBe(422);
    },
  );
});
