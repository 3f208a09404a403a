// The OpenAI API of an endpoint, for handlers that take `{ openai_route, openai_input }`.
import { createParser } from 'eventsource-parser';
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  type Platform,
  type RunningJob,
  readJson,
  startPlatform,
  takeJob,
} from '../../../support/api/platform.ts';
import { send, take } from '../../../support/api/python-calls.ts';
import { until } from '../../../support/until.ts';

const CHAT = 'openai/v1/chat/completions';
const BODY = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const ANSWER = { object: 'chat.completion', choices: [{ message: { content: 'hello' } }] };
const chunk = (output: unknown) => JSON.stringify({ output, metrics: {} });
const piece = (content: string) => ({ choices: [{ delta: { content } }] });
const line = (content: string) => `data: ${JSON.stringify(piece(content))}`;

/** Sends a request and lets a worker run its job. */
async function ask(
  platform: Platform,
  body: object,
  run: (job: RunningJob) => Promise<void>,
  path = `/v2/demo/${CHAT}`,
): Promise<Response> {
  const answer = platform.post(path, body);
  await run(await takeJob(platform));
  return answer;
}

const stream = (platform: Platform, run: (job: RunningJob) => Promise<void>) =>
  ask(platform, { ...BODY, stream: true }, run);

async function readEvents(response: Response): Promise<unknown[]> {
  const events: unknown[] = [];
  const parser = createParser({
    onEvent: ({ data }) => events.push(data === '[DONE]' ? data : JSON.parse(data)),
  });
  parser.feed(await response.text());
  return events;
}

async function readInput({ call }: Platform, id: string | null): Promise<unknown> {
  return (await readJson(await call(`/v2/demo/jobs/${id}`)))['input'];
}

const statusOf = async ({ call }: Platform, id: string | null) =>
  (await readJson(await call(`/v2/demo/status/${id}`)))['status'];

describe('a request without stream', () => {
  it.each(['/v2/demo', '/runpod/v2/demo'])('is answered with the output below %s', async (base) => {
    const platform = await startPlatform();
    const run = (job: RunningJob) => job.complete(JSON.stringify(ANSWER));
    const response = await ask(platform, BODY, run, `${base}/${CHAT}`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toContain('application/json');
    expect(await readJson(response)).toEqual(ANSWER);
    expect(await readInput(platform, response.headers.get('x-request-id'))).toEqual({
      ...{ openai_route: '/v1/chat/completions', openai_input: BODY },
    });
  });

  it.each([
    [
      'the one chunk of a generator',
      async (job: RunningJob) => {
        await job.yieldChunks(chunk(ANSWER));
        await job.complete();
      },
    ],
    ['a list with one element', (job: RunningJob) => job.complete(JSON.stringify([ANSWER]))],
    ['JSON as text', (job: RunningJob) => job.complete(JSON.stringify(JSON.stringify(ANSWER)))],
  ])('takes %s', async (_name, run) => {
    expect(await readJson(await ask(await startPlatform(), BODY, run))).toEqual(ANSWER);
  });

  it('passes a text on', async () => {
    const response = await ask(await startPlatform(), BODY, (job) =>
      job.complete('"spoken [words"'),
    );
    expect(response.headers.get('content-type')).toContain('text/plain');
    expect(await response.text()).toBe('spoken [words');
  });

  it.each([
    [{ error: { message: 'no model', type: 'NotFoundError', code: 404 } }, 404],
    [{ object: 'error', message: 'too long', type: 'BadRequestError', code: 400 }, 400],
    [{ error: 'out of ideas' }, 500],
    [[{ error: { message: 'bad', type: 'invalid_request_error', code: null } }], 400],
  ])('answers the error %j of the handler with its status', async (output, status) => {
    const run = (job: RunningJob) => job.complete(JSON.stringify(output));
    const response = await ask(await startPlatform(), BODY, run);
    expect(response.status).toBe(status);
    expect(response.headers.get('x-should-retry')).toBe('false');
    expect(await readJson(response)).toEqual({
      error: expect.objectContaining({ message: expect.any(String) }),
    });
  });

  it('answers a failed job with 500 and its message', async () => {
    const response = await ask(await startPlatform(), BODY, (job) => job.fail('never'));
    expect(response.status).toBe(500);
    expect(await readJson(response)).toEqual({
      error: { message: 'no', type: 'server_error', param: null, code: 'handler_error' },
    });
  });

  it.each([false, true])(
    'is answered with 499 if its job is cancelled, stream: %s',
    async (stream) => {
      const platform = await startPlatform();
      const response = await ask(platform, { ...BODY, stream }, async ({ id }) => {
        await platform.post(`/v2/demo/cancel/${id}`, {});
      });
      expect(response.status).toBe(499);
      expect(response.headers.get('x-should-retry')).toBe('false');
      expect(await readJson(response)).toEqual({
        error: expect.objectContaining({ type: 'request_cancelled', code: 'cancelled' }),
      });
    },
  );

  it.each([
    ['BadRequestError', 400],
    ['NotFoundError', 404],
  ])('is answered with the %s of a RunPod worker, after one attempt', async (type, status) => {
    const platform = await startPlatform();
    const asking = platform.post(`/v2/demo/${CHAT}`, BODY);
    const { id } = await take(platform);
    const error = `{'message': 'no', 'type': '${type}', 'param': None, 'code': ${status}}`;
    await send(platform, `job-done/pod-1/${id}?&isStream=true`, JSON.stringify({ error }));
    const response = await asking;
    expect(response.status).toBe(status);
    expect(await readJson(response)).toMatchObject({ error: { message: 'no' } });
  });

  it('answers 502 if the handler gave nothing', async () => {
    const response = await ask(await startPlatform(), BODY, (job) => job.complete('null'));
    expect(response.status).toBe(502);
  });

  it('is answered with 504 after ten minutes, and its job is cancelled', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    let response: Response | undefined;
    void platform.post(`/v2/demo/${CHAT}`, BODY).then((answer) => {
      response = answer;
    });
    await expect
      .poll(
        async () => {
          await clock.advance(60_000);
          return response?.status;
        },
        { timeout: 30_000 },
      )
      .toBe(504);
    const id = response?.headers.get('x-request-id') ?? null;
    expect(await statusOf(platform, id)).toBe('CANCELLED');
  });
});

describe('a streamed request', () => {
  it('gets raw lines of events as they are, once [DONE]', async () => {
    const response = await stream(await startPlatform(), async (job) => {
      await job.yieldChunks(chunk(`${line('a')}\n\n${line('b')}\n\n`), chunk(line('c')));
      await job.yieldChunks(chunk('data: [DONE]\n\n'));
      await job.complete();
    });
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(await readEvents(response)).toEqual([piece('a'), piece('b'), piece('c'), '[DONE]']);
  });

  it('gets the status of an error whose event comes in pieces', async () => {
    const error = { message: 'too long', type: 'BadRequestError', code: 400 };
    const text = `data: ${JSON.stringify({ error })}\n\ndata: [DONE]\n\n`;
    const response = await stream(await startPlatform(), async (job) => {
      await job.yieldChunks(chunk(text.slice(0, 20)), chunk(text.slice(20)));
      await job.complete();
    });
    expect(response.status).toBe(400);
    expect(await readJson(response)).toEqual({ error });
  });

  it('gets an error if the handler ends in the middle of an event', async () => {
    const response = await stream(await startPlatform(), async (job) => {
      await job.yieldChunks(chunk(`${line('a')}\n\n`), chunk(line('b').slice(0, -3)));
      await job.complete();
    });
    expect(await readEvents(response)).toEqual([
      piece('a'),
      { error: expect.objectContaining({ code: 'output_invalid' }) },
    ]);
  });

  it('gets objects, and lists of objects, as events', async () => {
    const response = await stream(await startPlatform(), async (job) => {
      await job.yieldChunks(chunk(piece('a')), chunk([piece('b'), piece('c')]));
      await job.complete();
    });
    expect(await readEvents(response)).toEqual([piece('a'), piece('b'), piece('c'), '[DONE]']);
  });

  it('is answered while the handler yields', async () => {
    const platform = await startPlatform();
    const asking = platform.post(`/v2/demo/${CHAT}`, { ...BODY, stream: true });
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(line('a')));
    const reader = (await asking).body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe(`${line('a')}\n\n`);
    await job.yieldChunks(chunk(line('b')));
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe(`${line('b')}\n\n`);
    await job.complete();
  });

  it('ends with an error if the job fails, and the job is not repeated', async () => {
    const platform = await startPlatform();
    const asking = platform.post(`/v2/demo/${CHAT}`, { ...BODY, stream: true });
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(line('a')));
    const response = await asking;
    await job.fail('default');
    expect(await readEvents(response)).toEqual([
      piece('a'),
      { error: { message: 'no', type: 'server_error', param: null, code: 'handler_error' } },
    ]);
    expect(await statusOf(platform, response.headers.get('x-request-id'))).toBe('FAILED');
  });

  it.each([
    [{ error: { message: 'too long', type: 'BadRequestError', code: 400 } }],
    [`data: {"error":{"message":"too long","type":"BadRequestError","code":400}}\n\n`],
  ])('gets the status of an error that is the first chunk', async (output) => {
    const response = await stream(await startPlatform(), async (job) => {
      await job.yieldChunks(chunk(output));
      await job.complete();
    });
    expect(response.status).toBe(400);
    expect(await readJson(response)).toMatchObject({ error: { message: 'too long' } });
  });

  it('gets 502 for chunks that are no events', async () => {
    const response = await stream(await startPlatform(), async (job) => {
      await job.yieldChunks(chunk('just words'));
      await job.complete();
    });
    expect(response.status).toBe(502);
  });

  it('ends with an error after ten minutes without a chunk, and its job is cancelled', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const asking = platform.post(`/v2/demo/${CHAT}`, { ...BODY, stream: true });
    let events: unknown[] | undefined;
    const reading = asking.then(async (response) => {
      events = await readEvents(response);
    });
    await until(async () => {
      await clock.advance(30_000);
      return events !== undefined;
    });
    await reading;
    expect(events).toEqual([{ error: expect.objectContaining({ code: 'timeout' }) }]);
    const id = (await asking).headers.get('x-request-id');
    await until(async () => (await statusOf(platform, id)) === 'CANCELLED');
  });

  it('cancels its job when the client disconnects', async () => {
    const platform = await startPlatform();
    const leaving = new AbortController();
    const init = { signal: leaving.signal };
    const asking = platform.post(`/v2/demo/${CHAT}`, { ...BODY, stream: true }, init);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(line('a')));
    await asking;
    leaving.abort();
    await expect.poll(() => statusOf(platform, job.id), { timeout: 30_000 }).toBe('CANCELLED');
  });
});

it('cancels the job of a client that disconnects before the answer', async () => {
  const platform = await startPlatform();
  const leaving = new AbortController();
  const asking = platform.post(`/v2/demo/${CHAT}`, BODY, { signal: leaving.signal });
  asking.catch(() => {});
  const job = await takeJob(platform);
  leaving.abort();
  await expect.poll(() => statusOf(platform, job.id), { timeout: 30_000 }).toBe('CANCELLED');
});

describe('models', () => {
  const MODELS = { object: 'list', data: [{ id: 'org/a', object: 'model' }] };
  const get = async (platform: Platform, path: string) => {
    const answer = platform.call(`/v2/demo/openai/v1/models${path}`);
    const job = await takeJob(platform);
    expect(await readInput(platform, job.id)).toEqual({
      ...{ openai_route: '/v1/models', openai_input: {} },
    });
    await job.complete(JSON.stringify([MODELS]));
    return answer;
  };

  it('are listed, and read one by one', async () => {
    const platform = await startPlatform();
    expect(await readJson(await get(platform, ''))).toEqual(MODELS);
    expect(await readJson(await get(platform, '/org%2Fa'))).toEqual(MODELS.data[0]);
    const missing = await get(platform, '/org/b');
    expect(missing.status).toBe(404);
    expect(await readJson(missing)).toMatchObject({ error: { code: 'model_not_found' } });
  });
});

describe('refusals have the form of the OpenAI API', () => {
  it.each([
    ['an unknown key', { authorization: 'Bearer mr_no' }, '{}', CHAT, 401, 'invalid_api_key'],
    ['a body that is not JSON', {}, '{', CHAT, 400, 'malformed'],
    ['a body that is no object', {}, '[{"stream":true}]', CHAT, 400, 'invalid'],
    [
      'another media type',
      { 'content-type': 'text/csv' },
      'a',
      CHAT,
      415,
      'unsupported_media_type',
    ],
    ['a path that is none', {}, '{}', 'openai/v1/..%2Fx', 404, 'not_found'],
    ['another API', {}, '{}', 'openai/v2/x', 404, 'not_found'],
    ['too many bytes', {}, `"${'x'.repeat(10_485_760)}"`, CHAT, 413, 'payload_too_large'],
  ])('for %s', async (_name, headers, body, path, status, code) => {
    const { post } = await startPlatform();
    const response = await post(`/v2/demo/${path}`, body, { headers: { ...headers } });
    expect(response.status).toBe(status);
    expect(await readJson(response)).toEqual({
      error: { message: expect.any(String), type: expect.any(String), param: null, code },
    });
  });

  it('for a full queue', async () => {
    const platform = await startPlatform();
    await platform.call('/v1/endpoints/demo', {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ maxQueued: 1 }),
    });
    await platform.post('/v2/demo/run', { input: {} });
    const response = await platform.post(`/v2/demo/${CHAT}`, BODY);
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBeTruthy();
    expect(await readJson(response)).toMatchObject({ error: { type: 'rate_limit_error' } });
  });
});
