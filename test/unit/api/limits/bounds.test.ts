// What a caller may send and hold open, over real sockets: bodies are refused before they are decoded.
import { Agent, get, type IncomingMessage } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Store } from '../../../../src/store/store.ts';
import { ENDPOINT, exchange, readJson, startPlatform } from '../../../support/api/platform.ts';
import { openClient } from '../../../support/api/slow-client.ts';

/** Two million members and 20 MB. */
function writeManyMembers(): string {
  const members = Array.from({ length: 1_500_000 }, (_, n) => `"${n}":0`).join(',');
  return `{${members},"input":{}}`;
}

describe('a body with millions of members beside its input', () => {
  const body = writeManyMembers();

  it.each([`/v2/${ENDPOINT}/runsync`, `/runpod/v2/${ENDPOINT}/runsync`])(
    'is refused with 413 by %s',
    async (path) => {
      const platform = await startPlatform();
      const response = await platform.post(path, body);
      expect(response.status).toBe(413);
      expect(await response.text()).toContain('the fields except input have more than 65536 bytes');
    },
  );

  it('is bounded by the option of the operator', async () => {
    const platform = await startPlatform({ server: { bounds: { maxEnvelopeBytes: 1_024 } } });
    const send = (length: number) =>
      platform.post(`/v2/${ENDPOINT}/run`, { input: {}, idempotencyKey: 'k'.repeat(length) });
    expect((await send(100)).status).toBe(200);
    expect((await send(1_024)).status).toBe(413);
  });
});

describe('a resource with too many values', () => {
  it('is refused with 413 before its values are parsed', async () => {
    const platform = await startPlatform();
    const ports = Array.from({ length: 20_000 }, () => 1);
    const response = await platform.post('/v1/templates', { name: 'n', image: 'i', ports });
    expect(response.status).toBe(413);
    expect(await readJson(response)).toMatchObject({ code: 'payload_too_large' });
  });
});

describe('the connections of one user', () => {
  it('are rejected with 429 and closed while all allowed connections are busy', async () => {
    const platform = await startPlatform({ server: { bounds: { maxUserConnections: 2 } } });
    const created = await platform.post(`/v2/${ENDPOINT}/run`, { input: {} });
    const { id } = await readJson(created);
    const agent = new Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());
    const ask = (path: string) =>
      new Promise<IncomingMessage>((resolve, reject) => {
        const headers = { authorization: platform.admin };
        get(`${platform.url}${path}`, { agent, headers }, resolve).on('error', reject);
      });
    const path = `/v2/${ENDPOINT}/stream/${id}?after=0&wait=60000`;
    // One of them is the connection that the job was submitted on, and is closed for the second.
    const polls = [ask(path), ask(path)];
    await expect
      .poll(async () => {
        const answer = await ask(`/v2/${ENDPOINT}/health`);
        answer.resume();
        return [answer.statusCode, answer.headers['retry-after'], answer.headers.connection];
      })
      .toEqual([429, '5', 'close']);
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: String(id) });
    const answers = await Promise.all(polls);
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 200]);
  });
});

describe('an input that is nested deeper than the operator allows', () => {
  it.each([
    { path: `/v2/${ENDPOINT}/run`, status: 422 },
    { path: `/runpod/v2/${ENDPOINT}/runsync`, status: 400 },
  ])('is refused with $status by $path, and the path is named', async ({ path, status }) => {
    const platform = await startPlatform({ server: { bounds: { maxJsonDepth: 64 } } });
    const nest = (depth: number) => '{"a":'.repeat(depth) + 1 + '}'.repeat(depth);
    const refused = await platform.post(path, `{"input":${nest(65)}}`);
    expect(refused.status).toBe(status);
    expect(await refused.text()).toContain('input: must be nested at most 64 levels deep');
    const accepted = await platform.post(`/v2/${ENDPOINT}/run`, `{"input":${nest(64)}}`);
    expect(accepted.status).toBe(200);
  });
});

describe('a request with an ignored upgrade', () => {
  const send = async (chunks: string, stallMs = 60_000) => {
    const { admin, port } = await startPlatform({ server: { bounds: { stallMs } } });
    const head = [
      ...[`POST /v2/${ENDPOINT}/run HTTP/1.1`, 'Host: x', `Authorization: ${admin}`],
      ...['Content-Type: application/json', 'Transfer-Encoding: chunked', 'Trailer: X-End'],
      ...['Connection: Upgrade', 'Upgrade: x', 'Connection: close', '', ''],
    ];
    return exchange(port, [head.join('\r\n'), chunks]);
  };

  it('is answered once its chunked body is complete, with or without a trailer', async () => {
    const body = 'c\r\n{"input":{}}\r\n0\r\n';
    for (const end of ['\r\n', 'X-End: 1\r\n\r\n']) {
      expect(await send(body + end)).toMatch(/^HTTP\/1.1 200/);
    }
  });

  // Node does not report that it cannot parse the body of such a request.
  it.each([
    ['a size that is no number', 'zz\r\n{}\r\n0\r\n\r\n'],
    ['a length in its trailer', 'c\r\n{"input":{}}\r\n0\r\nContent-Length: 7\r\n\r\n'],
  ])('gets 408 and the end of the connection for a chunked body with %s', async (_what, body) => {
    expect(await send(body, 200)).toMatch(/^HTTP\/1.1 408/);
  });
});

describe('runsync calls whose clients disconnect', () => {
  it('read nothing more, because thousands at once would delay other calls', async () => {
    let reads = 0;
    const wrapStore = (store: Store): Store => ({
      read(steps) {
        reads++;
        return store.read(steps);
      },
      write: (steps, options) => store.write(steps, options),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
    });
    const platform = await startPlatform({ wrapStore });
    const gone = new AbortController();
    const init = { signal: gone.signal };
    const calls = Array.from({ length: 5 }, () =>
      platform.post(`/v2/${ENDPOINT}/runsync?wait=60000`, { input: {} }, init),
    );
    const isWaiting = async () => {
      const { jobs } = await readJson(await platform.call(`/v2/${ENDPOINT}/health`));
      return Object(jobs).inQueue;
    };
    await expect.poll(isWaiting).toBe(5);
    // Each has read its job once, and waits.
    await expect.poll(() => reads).toBeGreaterThanOrEqual(5);
    const before = reads;
    gone.abort();
    await Promise.allSettled(calls);
    await setTimeout(200);
    expect(reads).toBe(before);
  });
});

describe('a head that is too large', () => {
  it.each([
    ['path and query', 414, `GET /v2/demo/health?x=${'x'.repeat(9_000)} HTTP/1.1`, ''],
    ['a path longer than any head', 414, `GET /v2/demo/${'x'.repeat(60_000)} HTTP/1.1`, ''],
    ['headers', 431, 'GET /v2/demo/health HTTP/1.1', `X: ${'x'.repeat(17_000)}\r\n`],
    ['headers far beyond', 431, 'GET /v2/demo/health HTTP/1.1', `X: ${'x'.repeat(60_000)}\r\n`],
  ])('%s: %i as a problem', async (_what, status, line, header) => {
    const platform = await startPlatform();
    const client = openClient(platform);
    client.socket.write(
      `${line}\r\nHost: x\r\n${header}Authorization: ${platform.admin}\r\nConnection: close\r\n\r\n`,
    );
    await client.closed;
    expect(client.text()).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(client.text()).toContain('application/problem+json');
  });
});
