// A job's chunks as server-sent events, over real sockets.
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { type Platform, startPlatform, submitJob, takeJob } from '../../support/api/platform.ts';
import { until } from '../../support/until.ts';

const chunk = (output: unknown) => JSON.stringify({ output, metrics: {} });

interface Event {
  id?: string;
  event?: string;
  data?: string;
  retry?: string;
}

const events = (platform: Platform, path: string, init: RequestInit = {}) =>
  platform.call(path, { ...init, headers: { accept: 'text/event-stream', ...init.headers } });

/** The events of an answer as they come; comments are left out. */
async function* readEvents(response: Response): AsyncGenerator<Event> {
  let text = '';
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    text += decoder.decode(piece, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop() ?? '';
    for (const block of blocks) {
      const lines = block.split('\n').filter((line) => !line.startsWith(':'));
      if (lines.length === 0) continue;
      yield Object.fromEntries(lines.map((line) => line.split(/: (.*)/s, 2)));
    }
  }
}

/** Resolves with the server's side of the next response. */
function nextResponse(): Promise<ServerResponse> {
  return new Promise((resolve) => {
    const channel = 'http.server.request.start';
    const note = (message: unknown) => {
      unsubscribe(channel, note);
      resolve((message as { response: ServerResponse }).response);
    };
    subscribe(channel, note);
    onTestFinished(() => void unsubscribe(channel, note));
  });
}

describe('a stream as events', () => {
  it('returns each chunk with its position, and the record last', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const response = await events(platform, `/v2/demo/stream/${id}`);
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const job = await takeJob(platform);
    await job.yieldChunks(chunk('a'), chunk('b'));
    const read = readEvents(response);
    expect((await read.next()).value).toEqual({ id: '1.0', data: chunk('a') });
    expect((await read.next()).value).toEqual({ id: '1.1', data: chunk('b') });
    await job.complete('{\n"x": 1}');
    const { value: done } = await read.next();
    expect(done).toMatchObject({ event: 'done' });
    expect(JSON.parse(done?.data ?? '')).toMatchObject({
      id,
      status: 'COMPLETED',
      output: { x: 1 },
    });
    expect((await read.next()).done).toBe(true);
  });

  it('continues after the last event ID, whatever the URL says', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk('a'), chunk('b'), chunk('c'));
    await job.complete();
    const response = await events(platform, `/v2/demo/stream/${id}?after=0`, {
      headers: { 'last-event-id': '1.1' },
    });
    const seen = await Array.fromAsync(readEvents(response));
    expect(seen.map((event) => event.id ?? event.event)).toEqual(['1.2', 'done']);
  });

  it('does not move the default cursor', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk('a'));
    await job.complete();
    await Array.fromAsync(readEvents(await events(platform, `/v2/demo/stream/${id}`)));
    expect(await (await platform.call(`/v2/demo/stream/${id}`)).json()).toHaveLength(1);
  });

  it('reports a new attempt', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.yieldChunks(chunk('old'));
    const read = readEvents(await events(platform, `/v2/demo/stream/${id}`));
    expect((await read.next()).value).toMatchObject({ id: '1.0' });
    await platform.link.bye({ workerId: 'w1', incarnation: 1, reason: 'crashed', outbox: [] });
    await (await takeJob(platform)).yieldChunks(chunk('new'));
    expect((await read.next()).value).toMatchObject({ event: 'reset' });
    expect((await read.next()).value).toMatchObject({ id: '2.0' });
  });

  it('reports a job that was removed after its time to live', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submitJob(platform, { input: {}, policy: { ttl: 10_000 } });
    const read = readEvents(await events(platform, `/v2/demo/stream/${id}`));
    await clock.advance(10_000);
    expect((await read.next()).value).toMatchObject({ event: 'expired' });
    expect((await read.next()).done).toBe(true);
    expect((await platform.call(`/v2/demo/status/${id}`)).status).toBe(404);
  });

  it('sends keep-alive comments while there are no chunks', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submitJob(platform);
    const response = await events(platform, `/v2/demo/stream/${id}`);
    await clock.advance(15_000);
    const { value } = (await response.body?.getReader().read()) ?? {};
    expect(Buffer.from(value ?? '').toString()).toBe(': still here\n\n');
  });

  it('keeps large chunks complete for a client that reads slowly', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    for (let i = 0; i < 12; i++) await job.yieldChunks(chunk(`${i}${'x'.repeat(900_000)}`));
    await job.complete('1');
    const sizes: number[] = [];
    for await (const event of readEvents(await events(platform, `/v2/demo/stream/${id}`))) {
      if (event.id) sizes.push(event.data?.length ?? 0);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(sizes).toHaveLength(12);
    expect(Math.min(...sizes)).toBeGreaterThan(900_000);
  });

  it('waits for a client that does not read', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    for (let i = 0; i < 16; i++) await job.yieldChunks(chunk('x'.repeat(950_000)));
    const next = nextResponse();
    const socket = connect(platform.port, '127.0.0.1').pause();
    onTestFinished(() => void socket.destroy());
    const headers = `Host: x\r\nAuthorization: ${platform.admin}\r\nAccept: text/event-stream`;
    socket.write(`GET /v2/demo/stream/${id} HTTP/1.1\r\n${headers}\r\n\r\n`);
    const response = await next;
    await until(() => response.writableNeedDrain);
    for (let n = 0; n < 20; n++) {
      await setTimeout(5);
      expect(response.writableLength).toBeLessThan(1_000_000);
    }
  });

  it('lets other work run between its pages, however fast its client is', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    await job.complete(JSON.stringify('x'.repeat(6_000_000)));
    const { streams } = platform.queue;
    const read = streams.read.bind(streams);
    let othersRan = true;
    const ranBefore: boolean[] = [];
    streams.read = (request) => {
      ranBefore.push(othersRan);
      othersRan = false;
      setImmediate(() => {
        othersRan = true;
      });
      return read(request);
    };
    await (await events(platform, `/v2/demo/stream/${id}`)).text();
    expect(ranBefore.length).toBeGreaterThan(5);
    expect(ranBefore).not.toContain(false);
  });

  it('is a plain 404 for an unknown job', async () => {
    const platform = await startPlatform();
    expect((await events(platform, '/v2/demo/stream/none')).status).toBe(404);
  });

  it('ends with a retry hint when the platform stops', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const response = await events(platform, `/v2/demo/stream/${id}`);
    const closed = platform.close();
    expect(await Array.fromAsync(readEvents(response))).toEqual([{ retry: '2000' }]);
    await closed;
  });

  it('ends quietly when its client disconnects', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const gone = new AbortController();
    const response = await events(platform, `/v2/demo/stream/${id}`, { signal: gone.signal });
    expect(response.status).toBe(200);
    gone.abort();
    const job = await takeJob(platform);
    for (let i = 0; i < 4; i++) await job.yieldChunks(chunk('x'.repeat(500_000)));
    await job.complete('1');
    expect((await platform.call('/v2/demo/health')).status).toBe(200);
    expect(platform.logged()).not.toContain('broken off');
  });
});
