// What one user may take of the event streams of a node, what a client of them holds in memory, and how a topic goes
// on after a failure.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { type EventCaller, EventHub } from '../../../../src/api/events/event-hub.ts';
import { EventConnection } from '../../../../src/api/routes/event-routes.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { EVENT_LIMITS, readTopic, type Topic } from '../../../../src/wire/routes/event-topics.ts';

function callerOf(userId: string, id: string): EventCaller {
  const holder = { keyId: id, name: 'k', scopes: new Set(['admin']), expiresAt: null, podId: null };
  return { holder: { ...holder, userId }, id, credentials: {} };
}

function openHub(read: (caller: EventCaller) => Promise<object>) {
  const clock = new ManualClock();
  const watch = () => undefined;
  const base = { clock, log: silentLog, maxConnections: 40, monotonic: () => 0 };
  const hub = new EventHub({ ...base, number: () => undefined, read, watch });
  onTestFinished(() => hub.stop());
  return { clock, hub };
}

const topicOf = (name: string): Topic => {
  const topic = readTopic(name);
  if (!topic) throw new Error(`${name} is no topic`);
  return topic;
};

it('leaves half of the connections to other users, whatever the number of keys', () => {
  const { hub } = openHub(async () => ({}));
  const leave = Array.from({ length: 20 }, (_, index) => hub.enter(callerOf('ada', `key${index}`)));
  expect(() => hub.enter(callerOf('ada', 'one more'))).toThrow('already have 20 event streams');
  hub.enter(callerOf('bob', 'other'));
  leave[0]?.();
  hub.enter(callerOf('ada', 'one more'));
});

it('has a bound of different topics for each user', () => {
  const { hub } = openHub(async () => ({}));
  const listen = (user: string, index: number) =>
    hub.listen(callerOf(user, 'k'), topicOf(`pod:${index}`), () => {});
  const leave = Array.from({ length: EVENT_LIMITS.userTopics }, (_, at) => listen('ada', at));
  expect(() => listen('ada', 1_000)).toThrow('already have 500 different topics');
  listen('ada', 7);
  listen('bob', 1_000);
  leave[0]?.();
  leave[0]?.();
  listen('ada', 1_000);
  expect(() => listen('ada', 1_001)).toThrow('already have 500');
});

it('goes on with the next caller after another node has refused a revoked key', async () => {
  const { clock, hub } = openHub(async ({ id }) => {
    if (id === 'revoked') throw new ProblemError('unauthorized', 'the API key is unknown');
    return { fine: true };
  });
  const seen: string[] = [];
  const topic = topicOf('overview');
  const leave = hub.listen(callerOf('ada', 'revoked'), topic, () => {});
  hub.listen(callerOf('ada', 'good'), topic, ({ bytes }) => seen.push(bytes.toString()));
  await clock.advance(1_000);
  leave();
  await clock.advance(2_000);
  expect(seen.at(-1)).toContain('"fine":true');
});

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
