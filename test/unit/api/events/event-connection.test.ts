// What a client of the event stream holds in memory, on real sockets.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { EventConnection } from '../../../../src/api/routes/event-routes.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { EVENT_LIMITS, readTopic } from '../../../../src/wire/routes/event-topics.ts';

const MB = 1_048_576;
const STALL_MS = 30_000;

async function openConnection() {
  const clock = new ManualClock();
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  const client: Socket = connect(port, '127.0.0.1');
  client.on('error', () => {});
  onTestFinished(() => {
    client.destroy();
    server.close();
  });
  client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  const [, raw]: [unknown, ServerResponse] = await new Promise((resolve) => {
    server.once('request', (...pair) => resolve(pair));
  });
  raw.writeHead(200);
  const connection = new EventConnection({ raw, clock, stallMs: STALL_MS });
  connection.start();
  return { clock, client, raw, connection };
}

const topicOf = (name: string) => readTopic(name) ?? raise(name);
const raise = (name: string): never => {
  throw new Error(`${name} is no topic`);
};

/** An event of 1 MB. */
function snapshotOf(n: number) {
  const bytes = Buffer.alloc(MB, 'x');
  bytes.write(`<${n}>`);
  return { event: 'snapshot' as const, bytes, isFinal: false };
}

it('keeps one snapshot a topic for a client that reads slowly, which gets the last one', async () => {
  const { client, connection, raw } = await openConnection();
  const names = ['pod:a', 'pod:b'];
  for (let n = 0; n < 50; n++) {
    for (const name of names) connection.offer(topicOf(name), snapshotOf(n));
    // What the client has not read is in the socket, and does not grow with the snapshots.
    expect(raw.writableLength).toBeLessThan(2 * MB);
    await new Promise((resolve) => setImmediate(resolve));
  }
  let text = '';
  client.on('data', (data) => {
    text += data.toString('latin1').replaceAll('x', '');
  });
  await expect.poll(() => text.split('<49>').length - 1, { timeout: 20_000 }).toBe(2);
  expect(text.match(/<\d+>/g)?.length).toBeLessThan(100);
});

it('ends the connection of a client that does not read at all', async () => {
  const { clock, connection, raw } = await openConnection();
  for (let n = 0, stuck = 0; stuck < 50; n++) {
    connection.offer(topicOf('pods'), snapshotOf(n));
    await new Promise((resolve) => setImmediate(resolve));
    // The system takes some megabytes first.
    stuck = raw.writableNeedDrain ? stuck + 1 : 0;
  }
  await clock.advance(STALL_MS);
  expect(raw.destroyed).toBe(true);
});

it('sends a comment after silence, and ends after its lifetime', async () => {
  const { client, clock, connection, raw } = await openConnection();
  let text = '';
  client.on('data', (data) => {
    text += data;
  });
  await clock.advance(EVENT_LIMITS.heartbeatMs);
  connection.offer(topicOf('pods'), {
    event: 'snapshot',
    bytes: Buffer.from('data: 1\n\n'),
    isFinal: false,
  });
  await clock.advance(EVENT_LIMITS.heartbeatMs - 1);
  await expect.poll(() => text, { timeout: 20_000 }).toContain('data: 1');
  expect(text.split(': still here').length - 1).toBe(1);
  await clock.advance(EVENT_LIMITS.lifetimeMs);
  expect(raw.writableEnded).toBe(true);
});
