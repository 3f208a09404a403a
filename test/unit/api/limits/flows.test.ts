// Clients that are slow to read, over real sockets: how much they may hold, and how long.
import { setImmediate, setTimeout } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  ENDPOINT,
  type Platform,
  startPlatform,
  submitJob,
  takeJob,
} from '../../../support/api/platform.ts';
import { type Client, MB, openClient, writeHead } from '../../../support/api/slow-client.ts';
import { until } from '../../../support/until.ts';

/** Large enough that the system's buffers do not hold it. */
const OUTPUT = JSON.stringify('o'.repeat(12 * MB));

async function completeLarge(platform: Platform): Promise<string> {
  const id = await submitJob(platform);
  await (await takeJob(platform)).complete(OUTPUT);
  return id;
}

/** Asks for the status and does not read the answer. */
function askOnly(platform: Platform, id: string): Client {
  const client = openClient(platform);
  client.socket.pause();
  client.socket.write(
    `GET /v2/${ENDPOINT}/status/${id} HTTP/1.1\r\nHost: x\r\nAuthorization: ${platform.admin}\r\n\r\n`,
  );
  return client;
}

const READING = { maxInFlightBytes: 40 * MB, maxUserInFlightBytes: 26 * MB, inFlightWaitMs: 5_000 };

describe('readers that do not read', () => {
  it('hold at most the budget, and the others get Retry-After', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: READING } });
    const id = await completeLarge(platform);
    for (let n = 0; n < 2; n += 1) askOnly(platform, id);
    await until(() => platform.flows.usedBytes > 24 * MB);
    const refused = platform.call(`/v2/${ENDPOINT}/status/${id}`);
    let isAnswered = false;
    void refused.finally(() => {
      isAnswered = true;
    });
    while (!isAnswered) {
      await clock.advance(1_000);
      await setImmediate();
    }
    expect((await refused).status).toBe(503);
    expect((await refused).headers.get('retry-after')).toBe('5');
  });

  it('hold at most the budget of chunks, as one answer and as events', async () => {
    const bounds = { ...READING, maxUserInFlightBytes: 9 * MB, inFlightWaitMs: 60_000 };
    const platform = await startPlatform({ server: { bounds } });
    const id = await submitJob(platform);
    const job = await takeJob(platform);
    const chunk = `{"output":"${'o'.repeat(990_000)}","metrics":{}}`;
    for (let n = 0; n < 16; n += 1) await job.yieldChunks(chunk);
    await job.complete();
    for (const accept of ['text/event-stream', '*/*', 'text/event-stream', '*/*', '*/*']) {
      const path = `/v2/${ENDPOINT}/stream/${id}?after=0`;
      const { socket } = openClient(platform);
      socket.pause();
      socket.write(
        `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: ${platform.admin}\r\nAccept: ${accept}\r\n\r\n`,
      );
    }
    await until(() => platform.flows.usedBytes > 7 * MB);
    for (let n = 0; n < 20; n += 1) {
      await setTimeout(5);
      expect(platform.flows.usedBytes).toBeLessThanOrEqual(9 * MB);
    }
  });

  it('are disconnected after the stall, and their bytes are free', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: READING } });
    const client = askOnly(platform, await completeLarge(platform));
    await until(() => platform.flows.usedBytes > 12 * MB);
    while (platform.flows.usedBytes > 0) {
      await setTimeout(5);
      await clock.advance(5_000);
    }
    client.socket.resume();
    await client.closed;
    expect(client.text().length).toBeLessThan(OUTPUT.length);
    expect(platform.logged()).toContain('connections dropped');
  });
});

describe('an honest reader', () => {
  it('gets everything if it is slow but steady, however long it takes', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: READING } });
    const client = askOnly(platform, await completeLarge(platform));
    const isWhole = () => client.text().length > OUTPUT.length;
    while (!isWhole()) {
      const before = client.text().length;
      client.socket.resume();
      await until(() => client.text().length >= before + MB || isWhole());
      client.socket.pause();
      await clock.advance(5_000);
    }
    expect(client.text()).toContain('"COMPLETED"');
    await until(() => platform.flows.usedBytes === 0);
  });

  it('waits for a job as long as it asks', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const client = openClient(platform);
    client.socket.write(writeHead(platform, { bytes: 12 }).replace('wait=1000', 'wait=300000'));
    client.socket.write('{"input":{}}');
    const job = await takeJob(platform);
    for (let n = 0; n < 10; n += 1) await clock.advance(10_000);
    expect(client.text()).toBe('');
    await job.complete('7');
    await until(() => client.text() !== '');
    expect(client.text()).toMatch(/^HTTP\/1.1 200 /);
  });
});
