import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Reader, Store } from '../../../src/store/store.ts';
import {
  exchange,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../support/api/platform.ts';

const chunk = (output: unknown) => JSON.stringify({ output, metrics: {} });

const PAYLOAD_READS = new Set<string | symbol>(['output', 'payloadUpTo', 'payloadPart']);

/** Calls `count` whenever a payload is read. */
function countPayloads(tx: Reader, count: () => void): Reader {
  return new Proxy(tx, {
    get(target, name) {
      if (PAYLOAD_READS.has(name)) count();
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** An answer whose head has come, and whose body nobody reads. */
async function openUnread({ url, admin }: Platform, path: string): Promise<IncomingMessage> {
  const asked = request(url + path, { headers: { authorization: admin } }).end();
  const [answer] = await once(asked, 'response');
  return answer;
}

describe('a stream as JSON', () => {
  it('returns each chunk once, then [], with position and status in headers', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk(1), chunk(2));
    const first = await platform.call(`/v2/demo/stream/${id}`);
    expect(await first.json()).toEqual([
      { output: 1, metrics: {} },
      { output: 2, metrics: {} },
    ]);
    expect(first.headers.get('millrace-next')).toBe('1.1');
    expect(first.headers.get('millrace-status')).toBe('IN_PROGRESS');
    expect(first.headers.get('millrace-reset')).toBeNull();
    await job.yieldChunks(chunk(3));
    await job.complete();
    const second = await platform.call(`/v2/demo/stream/${id}`);
    expect(await second.json()).toEqual([{ output: 3, metrics: {} }]);
    const third = await platform.call(`/v2/demo/stream/${id}`);
    expect(await third.json()).toEqual([]);
    expect(third.headers.get('millrace-status')).toBe('COMPLETED');
  });

  it('returns each chunk to one of several readers', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    const read = () => platform.call(`/v2/demo/stream/${id}?wait=5000`);
    const readers = [read(), read(), read(), read()];
    const outputs = Array.from({ length: 4 }, (_, number) => number);
    for (const output of outputs) {
      await job.yieldChunks(chunk(output));
    }
    await job.complete();
    const pages = await Promise.all(readers.map(async (each) => (await each).text()));
    const given = pages.flatMap((page) => [...page.matchAll(/"output":(\d)/g)]);
    expect(given.map(([, output]) => Number(output)).toSorted()).toEqual(outputs);
  });

  it('gives a second reader the chunks of a first whose connection breaks', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const large = 'x'.repeat(900_000);
    const job = await takeJob(platform);
    for (let n = 0; n < 8; n++) await job.yieldChunks(chunk(large));
    const first = await openUnread(platform, `/v2/demo/stream/${id}`);
    const second = platform.call(`/v2/demo/stream/${id}?wait=0`);
    first.destroy();
    expect(await (await second).json()).toHaveLength(8);
  });

  it('gives the next reader the chunks of a disconnected reader', async () => {
    const platform = await startPlatform();
    const { admin, url } = platform;
    const id = await submitJob(platform);
    const large = 'x'.repeat(900_000);
    const job = await takeJob(platform);
    for (let n = 0; n < 8; n++) await job.yieldChunks(chunk(large));
    const first = await openUnread(platform, `/v2/demo/stream/${id}`);
    const second = request(`${url}/v2/demo/stream/${id}`, { headers: { authorization: admin } });
    second.on('error', () => {}).end();
    await once(second, 'finish');
    await platform.call('/v2/demo/health');
    const isClosed = new Promise((resolve) => second.once('close', resolve));
    second.destroy();
    await isClosed;
    await platform.call('/v2/demo/health');
    first.destroy();
    const third = await platform.call(`/v2/demo/stream/${id}?wait=0`);
    expect(await third.json()).toHaveLength(8);
  });

  it('returns the chunks after a position, each time', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    await (await takeJob(platform)).yieldChunks(chunk('a'), chunk('b'), chunk('c'));
    for (let round = 0; round < 2; round++) {
      const rest = await platform.call(`/v2/demo/stream/${id}?after=1.0`);
      expect(await rest.json()).toMatchObject([{ output: 'b' }, { output: 'c' }]);
    }
    const all = await platform.call(`/v2/demo/stream/${id}`);
    expect(await all.json()).toHaveLength(3);
  });

  it('waits for the next chunk', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const answered = platform.call(`/v2/demo/stream/${id}?after=0&wait=60000`);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk('late'));
    expect(await (await answered).json()).toMatchObject([{ output: 'late' }]);
  });

  it('answers [] and position 0 for a job without chunks', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const response = await platform.call(`/v2/demo/stream/${id}?wait=0`);
    expect(await response.json()).toEqual([]);
    expect(response.headers.get('millrace-next')).toBe('0');
    expect(response.headers.get('millrace-status')).toBe('IN_QUEUE');
  });

  it('reports a new attempt', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk('old'));
    await job.fail('never');
    await platform.call(`/v2/demo/retry/${id}`, { method: 'POST' });
    await (await takeJob(platform)).yieldChunks(chunk('new'));
    const response = await platform.call(`/v2/demo/stream/${id}?after=1.0`);
    expect(response.headers.get('millrace-reset')).toBe('true');
    expect(response.headers.get('millrace-next')).toBe('2.0');
    expect(await response.json()).toMatchObject([{ output: 'new' }]);
  });

  it('answers at most 8 MB at a time, byte for byte', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    const large = chunk('ü'.repeat(499_000));
    for (let i = 0; i < 10; i++) await job.yieldChunks(large);
    const first = await platform.call(`/v2/demo/stream/${id}?after=0`);
    const text = await first.text();
    expect(Number(first.headers.get('content-length'))).toBe(Buffer.byteLength(text));
    expect(text).toBe(`[${Array(8).fill(large).join(',')}]`);
    const rest = await platform.call(`/v2/demo/stream/${id}?after=1.7`);
    expect(await rest.json()).toHaveLength(2);
  });

  it.each(['application/json', 'text/event-stream'])(
    'claims the bytes of a large output that did not stream before they are read, as %s',
    async (accept) => {
      let reads = 0;
      const wrapStore = (store: Store): Store => ({
        ...{ write: (step) => store.write(step), reclaim: (pages) => store.reclaim(pages) },
        close: () => store.close(),
        read: (step) => store.read((tx) => step(countPayloads(tx, () => (reads += 1)))),
      });
      const bounds = { maxUserInFlightBytes: 1_500_000, inFlightWaitMs: 1 };
      const platform = await startPlatform({ wrapStore, server: { bounds } });
      const id = await submitJob(platform);
      await (await takeJob(platform)).complete(JSON.stringify('x'.repeat(3_000_000)));
      const upload = connect(platform.port, '127.0.0.1');
      onTestFinished(() => void upload.destroy());
      upload.write(
        `POST /v2/demo/run HTTP/1.1\r\nHost: x\r\nAuthorization: ${platform.admin}\r\n` +
          'Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n',
      );
      await expect.poll(() => platform.flows.usedBytes).toBe(1_000_000);
      reads = 0;
      const leaving = new AbortController();
      const options = { headers: { accept }, signal: leaving.signal };
      const response = await platform.call(`/v2/demo/stream/${id}?after=0`, options);
      // A reader of events has an open answer already, and waits for its turn.
      expect(response.status).toBe(accept === 'application/json' ? 503 : 200);
      await nextTurn();
      expect(reads).toBe(0);
      leaving.abort();
    },
  );

  it('is repeated if it broke off before it was complete', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    for (let i = 0; i < 8; i++) await job.yieldChunks(chunk('x'.repeat(950_000)));
    const request = `GET /v2/demo/stream/${id} HTTP/1.1\r\nHost: x\r\nAuthorization: ${platform.admin}\r\n\r\n`;
    const broken = await exchange(platform.port, [request], (text) => text.length > 1_000);
    expect(broken).toMatch(/^HTTP\/1.1 200/);
    const again = await platform.call(`/v2/demo/stream/${id}?wait=0`);
    expect(await again.json()).toHaveLength(8);
  });

  it.each(['after=1', 'after=0.1', 'after=1.-1', 'after=x', 'after=7.0', 'wait=300001'])(
    'refuses %s',
    async (query) => {
      const platform = await startPlatform();
      const id = await submitJob(platform);
      const response = await platform.call(`/v2/demo/stream/${id}?${query}`);
      expect(response.status).toBe(422);
      expect((await readJson(response))['errors']).toHaveLength(1);
    },
  );
});

describe('the form of a stream', () => {
  it.each([
    ['text/event-stream', 'events'],
    ['Text/Event-Stream', 'events'],
    ['text/event-stream;q=0.5, application/json;q=0.4', 'events'],
    ['application/json, text/event-stream;q=0.9', 'JSON'],
    ['text/event-stream;q=0', 'JSON'],
    ['application/json, text/event-stream-like', 'JSON'],
    ['*/*', 'JSON'],
    ['text/html', 'JSON'],
    [`text/event-stream${', a/b'.repeat(300)}`, 'JSON'],
  ])('follows Accept: %s is %s', async (accept, form) => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    await (await takeJob(platform)).complete();
    const answer = await platform.call(`/v2/demo/stream/${id}`, { headers: { accept } });
    const type =
      form === 'events' ? 'text/event-stream; charset=utf-8' : 'application/json; charset=utf-8';
    expect(answer.headers.get('content-type')).toBe(type);
    await answer.text();
  });

  it('does not matter to the check of wait', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const headers = { accept: 'text/event-stream' };
    const answer = await platform.call(`/v2/demo/stream/${id}?wait=x`, { headers });
    expect(answer.status).toBe(422);
  });
});
