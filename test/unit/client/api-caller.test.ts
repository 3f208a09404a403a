// One call of the client: what it sends, what it makes of refusals, and when it repeats. The service
// is a real HTTP server that answers by a script.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiError, UnreachableError } from '../../../src/client/api-caller.ts';
import { createClient } from '../../../src/client.ts';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

interface Seen {
  method: string | undefined;
  url: string | undefined;
  authorization: string | undefined;
  body: string;
}

let server: Server;
let url: string;
let script: Answer[];
let seen: Seen[];

beforeEach(async () => {
  script = [];
  seen = [];
  server = createServer(async (request, response) => {
    const { headers, method, url: path } = request;
    const body = await text(request);
    seen.push({ method, url: path, authorization: headers.authorization, body });
    const answer = script.shift() ?? json(200, { id: 'j', status: 'IN_QUEUE' });
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  url = `http://127.0.0.1:${address.port}`;
});

afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  return (_, response) => {
    response.writeHead(status, { 'content-type': type, ...headers }).end(JSON.stringify(value));
  };
}

const problem = (status: number) => ({ title: 'No', status, detail: 'not now', code: 'conflict' });
const hangUp: Answer = (request) => request.socket.destroy();

function connect(options: { key?: string; repeats?: number; path?: string } = {}) {
  const { path = '', ...rest } = options;
  return createClient({ url: url + path, endpoint: 'my echo', ...rest });
}

describe('a call', () => {
  it.each(['mr_k\n', '\u200bmr_k', '\ufeffmr_k\u00a0'])(
    'sends the key without what copying has added: %j',
    async (key) => {
      await connect({ key }).run({});
      expect(seen).toMatchObject([{ authorization: 'Bearer mr_k' }]);
    },
  );

  it.each(['mr_\u200bk', 'mr_a\nmr_b', 'mr_ü'])(
    'refuses the key %j, and does not show it',
    (key) => {
      const refused = /^character \d of the key is U\+\w{4}, which no key has; copy the key again$/;
      expect(() => connect({ key })).toThrow(refused);
    },
  );

  it('sends the key as a bearer token, and the input as JSON', async () => {
    await connect({ key: 'mr_k' }).run({ a: 'é' }, { policy: { ttl: 10_000 } });
    expect(seen).toEqual([
      {
        method: 'POST',
        url: '/v2/my%20echo/run',
        authorization: 'Bearer mr_k',
        body: '{"input":{"a":"é"},"policy":{"ttl":10000}}',
      },
    ]);
  });

  it('keeps the path and the parameters of the URL', async () => {
    await connect({ path: '/base/' }).runsync({}, { waitMs: 1_000 });
    await connect().status('a/b', { ttlMs: 10_000 });
    expect(seen.map((each) => each.url)).toEqual([
      '/base/v2/my%20echo/runsync?wait=1000',
      '/v2/my%20echo/status/a%2Fb?ttl=10000',
    ]);
  });

  it('ends with its signal', async () => {
    script.push(() => {});
    const control = new AbortController();
    const call = connect().health({ signal: control.signal });
    control.abort(new Error('enough'));
    await expect(call).rejects.toThrow('enough');
  });
});

describe('a refusal', () => {
  it('is an ApiError with the problem', async () => {
    script.push(json(409, problem(409)));
    const refused = connect().cancel('j');
    await expect(refused).rejects.toThrow(ApiError);
    await expect(refused).rejects.toMatchObject({ status: 409, problem: problem(409) });
    await expect(refused).rejects.toThrow('not now');
  });

  it('is an UnreachableError from another server', async () => {
    script.push((_, response) =>
      response.writeHead(404, { 'content-type': 'text/html' }).end('<p>'),
    );
    const refused = connect({ repeats: 0 }).health();
    await expect(refused).rejects.toThrow(UnreachableError);
    await expect(refused).rejects.toThrow('404');
  });

  it.each([301, 302, 307, 308])('names the URL to use after a redirect (%i)', async (status) => {
    const other = createServer((request) => request.socket.destroy(new Error('called')));
    let calls = 0;
    other.on('connection', () => {
      calls += 1;
    });
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const place = `http://127.0.0.1:${Object(other.address()).port}/platform`;
    const redirect: Answer = (request, response) =>
      response.writeHead(status, { location: place + request.url }).end('moved');
    script = [redirect, redirect];
    const client = connect({ key: 'mr_k', repeats: 1 });
    const said = `${url} redirects (${status}) to ${place}; use that URL`;
    await expect(client.health()).rejects.toThrow(new UnreachableError(said));
    await expect(client.run({ a: 1 })).rejects.toThrow(new UnreachableError(said));
    expect(seen.map(({ method }) => method)).toEqual(['GET', 'POST']);
    expect(calls).toBe(0);
    await new Promise((resolve) => other.close(resolve));
  });

  it('is not repeated', async () => {
    script.push(json(409, problem(409)));
    await expect(connect().retry('j')).rejects.toThrow(ApiError);
    expect(seen).toHaveLength(1);
  });
});

describe('an outage', () => {
  it('is bridged by repeatable calls', async () => {
    script.push(hangUp, json(503, problem(503)), json(200, { id: 'j', status: 'CANCELLED' }));
    expect(await connect().cancel('j')).toEqual({ id: 'j', status: 'CANCELLED' });
    expect(seen).toHaveLength(3);
  });

  it('ends a call that could start a second job', async () => {
    script.push(hangUp);
    await expect(connect().run({})).rejects.toThrow(UnreachableError);
    expect(seen).toHaveLength(1);
  });

  it('is bridged by a call with an idempotency key', async () => {
    script.push(hangUp);
    await connect().run({}, { idempotencyKey: 'k' });
    expect(seen).toHaveLength(2);
  });

  it('does not end a run that was refused by a full queue', async () => {
    script.push(json(429, problem(429), { 'retry-after': '0' }));
    await connect().run({});
    expect(seen).toHaveLength(2);
  });

  it('is reported, not waited for, after more than a minute', async () => {
    script.push(json(429, problem(429), { 'retry-after': '61' }));
    await expect(connect().health()).rejects.toMatchObject({ status: 429, retryAfterMs: 61_000 });
    expect(seen).toHaveLength(1);
  });

  it('ends the call with the reason if it lasts', async () => {
    script.push(hangUp, hangUp);
    const lost = connect({ repeats: 1 }).health();
    await expect(lost).rejects.toThrow(UnreachableError);
    await expect(lost).rejects.toThrow(url);
    expect(seen).toHaveLength(2);
  });
});

it.each(['ftp://x', 'nonsense'])('refuses to create a client for the URL %s', (bad) => {
  expect(() => createClient({ url: bad, endpoint: 'echo' })).toThrow(TypeError);
});

describe('a stream', () => {
  function page(next: string, chunks: unknown[], headers: Record<string, string> = {}): Answer {
    const status = headers['millrace-status'] ?? 'IN_PROGRESS';
    return json(200, chunks, { 'millrace-next': next, ...headers, 'millrace-status': status });
  }

  const chunk = (output: unknown, metrics: object = {}) => ({ output, metrics });
  const over = { 'millrace-status': 'COMPLETED' };

  async function readAll(options?: Parameters<ReturnType<typeof connect>['stream']>[1]) {
    return await Array.fromAsync(connect().stream('j', options));
  }

  it('continues from the position of each page until the job has ended', async () => {
    script.push(page('0', []), page('1.1', [chunk('a'), chunk('b')]));
    script.push(page('1.2', [chunk('c')], over), page('1.2', [], over));
    expect(await readAll()).toEqual([
      { ...chunk('a'), position: '1.0', attempt: 1 },
      { ...chunk('b'), position: '1.1', attempt: 1 },
      { ...chunk('c'), position: '1.2', attempt: 1 },
    ]);
    const afters = seen.map((each) => new URL(each.url ?? '', url).searchParams.get('after'));
    expect(afters).toEqual(['0', '0', '1.1', '1.2']);
  });

  it('starts after a position and continues there after an outage', async () => {
    script.push(page('1.8', [chunk('a')]), hangUp, page('1.9', [chunk('b')], over));
    script.push(page('1.9', [], over));
    const outputs = (await readAll({ after: '1.7' })).map(({ output }) => output);
    expect(outputs).toEqual(['a', 'b']);
    expect(seen[2]?.url).toContain('after=1.8');
  });

  const pieces = [
    chunk('a', { part: 0, parts: 2, encoding: 0 }),
    chunk('b', { part: 1, parts: 2, encoding: 0, n: 1 }),
  ];

  it('joins split values, also across pages', async () => {
    script.push(page('1.0', pieces.slice(0, 1)), page('1.1', pieces.slice(1), over));
    script.push(page('1.1', [], over));
    expect(await readAll()).toEqual([{ ...chunk('ab', { n: 1 }), position: '1.1', attempt: 1 }]);
  });

  it('returns the pieces unchanged if the option is set', async () => {
    script.push(page('1.1', pieces, over), page('1.1', [], over));
    expect(await readAll({ pieces: 'raw' })).toMatchObject(pieces);
  });

  it('drops the pieces of an abandoned attempt', async () => {
    script.push(page('1.0', pieces.slice(0, 1)), page('0', [], { 'millrace-reset': 'true' }));
    script.push(page('2.0', [chunk('new')], over), page('2.0', [], over));
    expect(await readAll()).toEqual([{ ...chunk('new'), position: '2.0', attempt: 2 }]);
  });
});
