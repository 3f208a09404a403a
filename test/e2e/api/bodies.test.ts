// The bodies of run and runsync: what is refused and why, their limits at the byte, and that an input
// comes to the handler as it was sent.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkProblem, jobRecord, readOk, readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import { makeText } from '../../support/multi-byte-text.ts';
import { openRequest, sendBody, sendThenRead } from '../../support/network/raw-request.ts';
import { PlatformProcess } from '../../support/processes.ts';

const RUN_LIMIT = 10_485_760;
const RUNSYNC_LIMIT = 20_971_520;

let platform: PlatformProcess;
let echo: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['echo'] });
  echo = new EndpointCaller(platform, 'echo');
  platform.startWorker(
    'echo',
    '../../../handlers/echo.ts',
    '--unsupervised',
    '--jobs-per-thread',
    '4',
  );
});
afterAll(() => platform.close());

function send(
  operation: string,
  body: NonNullable<RequestInit['body']>,
  type = 'application/json',
): Promise<Response> {
  return platform.fetch(`/v2/echo/${operation}`, {
    method: 'POST',
    headers: { 'content-type': type },
    body,
  });
}

/** A body of exactly so many bytes, and the text in it. */
function makeBody(bytes: number): { body: Buffer; text: string } {
  const text = makeText(bytes - Buffer.byteLength('{"input":{"text":""}}'));
  const body = Buffer.from(JSON.stringify({ input: { text } }));
  expect(body.length).toBe(bytes);
  return { body, text };
}

describe.each(['run', 'runsync'])('the body of %s', (operation) => {
  const malformed: [name: string, body: NonNullable<RequestInit['body']>][] = [
    ['nothing', ''],
    ['cut off', '{"input":{}'],
    ['followed by more', '{"input":{}} x'],
    ['with single quotes', "{'input':{}}"],
    ['not UTF-8', new Uint8Array([...Buffer.from('{"input":{"a":"'), 0xff, ...Buffer.from('"}}')])],
  ];
  it.each(malformed)('returns 400 if it is %s', async (_name, body) => {
    await readProblem(await send(operation, body), 400);
  });

  it.each(['text/plain', 'application/x-www-form-urlencoded', 'application/jsonx'])(
    'returns 415 for the media type %s',
    async (type) => {
      await readProblem(await send(operation, '{"input":{}}', type), 415);
    },
  );

  it('returns 415 without a media type', async () => {
    const body = new Uint8Array(Buffer.from('{"input":{}}'));
    const answer = await platform.fetch(`/v2/echo/${operation}`, { method: 'POST', body });
    await readProblem(answer, 415);
  });

  it('may have a charset', async () => {
    const answer = await send(operation, '{"input":{}}', 'application/json; charset=utf-8');
    expect(answer.status).toBe(200);
  });

  const invalid: [body: string, ...errors: RegExp[]][] = [
    ['null', /^body: /],
    ['[]', /^body: /],
    ['{}', /^input: /],
    ['{"input":null}', /^input: /],
    ['{"input":[]}', /^input: /],
    ['{"input":"text"}', /^input: /],
    ['{"input":{},"webhook":"ftp://example.com/"}', /^webhook: /],
    ['{"input":{},"webhook":"http://127.0.0.1/"}', /^webhook: 127\.0\.0\.1 .*loopback/],
    ['{"input":{},"webhook":"http://[::ffff:10.0.0.1]/"}', /^webhook: .*ipv4Mapped/],
    ['{"input":{},"a":1,"policy":{"b":2}}', /^policy\.b: /, /^a: /],
    ['{"input":{},"policy":[]}', /^policy: /],
    ['{"input":{},"policy":{"ttl":9999}}', /^policy\.ttl: .*10000/],
    ['{"input":{},"policy":{"ttl":604800001}}', /^policy\.ttl: .*604800000/],
    ['{"input":{},"policy":{"executionTimeout":999}}', /^policy\.executionTimeout: .*1000/],
    ['{"input":{},"policy":{"executionTimeout":604800001}}', /^policy\.executionTimeout: /],
    ['{"input":{},"policy":{"priority":-1}}', /^policy\.priority: .*0/],
    ['{"input":{},"policy":{"priority":10}}', /^policy\.priority: .*9/],
    ['{"input":{},"policy":{"priority":1.5}}', /^policy\.priority: /],
    ['{"input":{},"policy":{"delay":-1}}', /^policy\.delay: .*0/],
    ['{"input":{},"policy":{"delay":604800001}}', /^policy\.delay: .*604800000/],
    ['{"input":{},"policy":{"delay":"1"}}', /^policy\.delay: /],
    ['{"input":{},"idempotencyKey":""}', /^idempotencyKey: /],
    [`{"input":{},"idempotencyKey":"${'k'.repeat(256)}"}`, /^idempotencyKey: .*255/],
    ['{"input":1,"policy":{"ttl":1,"delay":-1}}', /^input: /, /^policy\.ttl: /, /^policy\.delay: /],
  ];
  it.each(invalid)('returns 422 and names every path: %s', async (body, ...errors) => {
    const problem = await readProblem(await send(operation, body), 422);
    expect(problem.errors).toHaveLength(errors.length);
    for (const error of errors) expect(problem.errors).toContainEqual(expect.stringMatching(error));
  });

  it.each([
    '{"input":{},"policy":{"ttl":10000,"executionTimeout":1000,"priority":0,"delay":0}}',
    '{"input":{},"policy":{"ttl":604800000,"executionTimeout":604800000,"priority":9}}',
  ])('is accepted at the limits of every range: %s', async (body) => {
    expect((await send(operation, body)).status).toBe(200);
  });
});

describe.each([
  ['run', RUN_LIMIT],
  ['runsync', RUNSYNC_LIMIT],
] as const)('the limit of %s', (operation, limit) => {
  const path = `/v2/echo/${operation}`;

  it.each(['with its length', 'in chunks'] as const)(
    'accepts a multi-byte body of exactly that size, sent %s',
    async (transfer) => {
      const { body, text } = makeBody(limit);
      const answer = await sendBody(platform, path, { body, transfer });
      expect(answer.status, answer.body.slice(0, 500)).toBe(200);
      const { id } = JSON.parse(answer.body);
      const { output, status } = await echo.untilEnd(id);
      expect(status).toBe('COMPLETED');
      // Comparing 20 MB by `toEqual` would print them.
      expect(JSON.stringify(output) === JSON.stringify({ text })).toBe(true);
    },
  );

  it.each(['with its length', 'in chunks'] as const)(
    'refuses one more byte with 413, sent %s',
    async (transfer) => {
      const { body } = makeBody(limit + 1);
      checkProblem(await sendBody(platform, path, { body, transfer }), 413);
    },
  );

  it.each(['keep-alive', 'close'])(
    'answers a client that sends everything before it reads, with Connection: %s',
    async (connection) => {
      const { body } = makeBody(limit + 1);
      const head = [`POST ${path} HTTP/1.1`, `Connection: ${connection}`];
      expect(await sendThenRead(platform, { head, body })).toMatch(
        /^HTTP\/1\.1 413 .*"status":413/s,
      );
    },
  );

  it('refuses a body by its Content-Length before the client sends it', async () => {
    const headers = { 'content-length': limit + 1 };
    const { answer, request } = openRequest(platform, path, { headers });
    request.flushHeaders();
    checkProblem(await answer, 413);
    request.destroy();
  });

  it('refuses a chunked body as soon as it exceeds the limit', async () => {
    const headers = { 'transfer-encoding': 'chunked' };
    const { answer, request } = openRequest(platform, path, { headers });
    request.write(makeBody(limit + 1).body.subarray(0, -1));
    request.write(' x');
    checkProblem(await answer, 413);
    request.destroy();
  });
});

describe('the body of an operation without one', () => {
  it('may be an empty object', async () => {
    expect((await send('purge-queue', '{}')).status).toBe(200);
  });

  it('returns 422 if it has members', async () => {
    await readProblem(await send('purge-queue', '{"all":true}'), 422);
  });

  it('returns 413 if it is large', async () => {
    await readProblem(await send('purge-queue', ' '.repeat(100_000)), 413);
  });
});

describe('an input', () => {
  it.each([
    '{"text":"é € 😀 \\u0000 \\u2028 \\" \\\\ / \\n"}',
    '{"lone surrogate":"\\ud83d","pair":"\\ud83d\\ude00"}',
    '{"numbers":[0,-1,1.5,1e21,1e-7,9007199254740991,1.7976931348623157e308]}',
    '{"":{"input":{"input":1},"policy":{"ttl":1}},"id":"x"}',
    '{"__proto__":{"a":1},"constructor":{"prototype":2},"toJSON":3}',
    `{"deep":${'['.repeat(900)}${']'.repeat(900)}}`,
  ])('returns from the handler unchanged: %s', async (input) => {
    const record = await readOk(await send('runsync', `{"input":${input}}`), jobRecord);
    expect(record.status).toBe('COMPLETED');
    expect(JSON.stringify(record.output)).toBe(JSON.stringify(JSON.parse(input)));
  });

  it.each([
    [
      'after other members',
      '{"policy":{"priority":1},"idempotencyKey":"\\"input\\":{}","input":{"a":1}}',
    ],
    ['from a member name with escapes', '{"\\u0069nput" : {"a":1} }'],
    ['from the last of several members', '{"input":{"a":0},"input":\n{"a":1}\n}'],
  ])('is read %s', async (_name, body) => {
    const record = await readOk(await send('runsync', body), jobRecord);
    expect(record.output).toEqual({ a: 1 });
  });
});
