// Connections that are opened and held, with as little sent on each as there can be.
import { once } from 'node:events';
import { setInterval } from 'node:timers';
import { setTimeout } from 'node:timers/promises';
import type { Attack, AttackContext } from '../attack.ts';
import { callOwn, composeHead, inTurns, JSON_TYPE, RawExchange } from '../raw-http.ts';

/** Connections of the impatient platform. */
const MOST = 500;
/** Of one user. */
const MOST_OF_USER = 300;
/** Of the process that prepared the attack, which is the one that sends it. */
let job = '';
const HELD = ['open', 'closed', '400', '408', '429', '503'];

/** Until each is answered or closed, whatever the well-behaved client's rounds took. */
async function noteEnds(open: readonly RawExchange[], note: AttackContext['note']): Promise<void> {
  for (const exchange of open) {
    const { answer, bytes } = await exchange.answered;
    note(answer, bytes);
  }
}

/** The platform closes connections beyond its bounds as it comes to them. */
async function holdUntilAtMost(
  most: number,
  open: readonly RawExchange[],
  hold: AttackContext['hold'],
): Promise<void> {
  const isOver = () => open.filter(({ state }) => state === 'open').length > most;
  await hold();
  for (let turn = 0; turn < 20 && isOver(); turn++) await hold();
}

export const connectionAttacks: Attack[] = [
  {
    name: 'connections on which nothing is sent',
    count: { short: 2_000, full: 5_000 },
    answers: HELD,
    growthMb: 300,
    async send({ count, hold, note, target }) {
      const { hostname, port } = new URL(target.url);
      const { connect } = await import('node:net');
      const sockets = Array.from({ length: count }, () => connect(Number(port), hostname));
      for (const socket of sockets) socket.on('error', () => {});
      await hold();
      for (const socket of sockets) {
        note(socket.destroyed ? 'closed' : 'open');
        socket.destroy();
      }
    },
  },
  {
    name: 'requests whose headers come a byte at a time',
    count: { short: 300, full: 2_000 },
    answers: HELD,
    growthMb: 300,
    async send({ count, hold, note, target }) {
      const headStart = 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nA: ';
      const open = Array.from(
        { length: count },
        () => new RawExchange(target, { path: '/healthz', headStart }),
      );
      const drip = setInterval(() => {
        for (const { socket } of open) if (socket.writable) socket.write('x');
      }, 200);
      await hold();
      clearInterval(drip);
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'small bodies that come a byte at a time',
    count: { short: 300, full: 2_000 },
    answers: HELD,
    growthMb: 300,
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/run`;
      const open = Array.from(
        { length: count },
        () => new RawExchange(target, { path, headers: [JSON_TYPE], announcedBytes: 100_000 }),
      );
      const drip = setInterval(() => {
        for (const { socket } of open) if (socket.writable) socket.write('x');
      }, 200);
      await hold();
      clearInterval(drip);
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'pipelined requests without a key on many connections',
    platform: 'cramped',
    count: { short: 1_000, full: 3_000 },
    growthMb: 200,
    answers: ['200'],
    async send({ count, hold, note, target }) {
      const { hostname, port } = new URL(target.url);
      const { connect } = await import('node:net');
      const requests = composeHead(target, { path: '/healthz', key: null }).repeat(99);
      const open = Array.from({ length: count }, () => {
        const socket = connect(Number(port), hostname);
        socket.on('error', () => {}).write(requests);
        return socket;
      });
      await hold();
      for (const socket of open) {
        const [answer] = await Promise.race(['data', 'close'].map((event) => once(socket, event)));
        note(/^HTTP\/1\.1 (\d+)/.exec(String(answer))?.[1] ?? 'closed');
        socket.destroy();
      }
    },
  },
  {
    name: 'runsync calls that wait, all of one user',
    count: { short: 300, full: 5_000 },
    answers: HELD,
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/runsync?wait=300000`;
      const body = Buffer.from('{"input":{}}');
      const open = Array.from(
        { length: count },
        () => new RawExchange(target, { path, headers: [JSON_TYPE], body }),
      );
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'more connections than there may be',
    platform: 'impatient',
    count: { short: 700, full: 5_000 },
    answers: ['open', 'closed'],
    atMost: { open: MOST },
    async send({ count, hold, note, target }) {
      const open = Array.from(
        { length: count },
        () => new RawExchange(target, { path: '/', headStart: 'GET' }),
      );
      await holdUntilAtMost(MOST, open, hold);
      for (const exchange of open) {
        note(exchange.state === '408' ? 'closed' : exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'long polls of one user, more than connections',
    platform: 'impatient',
    count: { short: 400, full: 10_000 },
    answers: ['open', 'closed', '429'],
    atMost: { open: MOST_OF_USER },
    atLeast: { 429: 1 },
    async prepare(target) {
      const { id } = await callOwn(target, `/v2/${target.endpoint}/run`, { input: {} });
      job = String(id);
    },
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/stream/${job}?after=0&wait=300000`;
      const open: RawExchange[] = [];
      await inTurns({ count, width: 100 }, async () => {
        const exchange = new RawExchange(target, { path });
        open.push(exchange);
        // The platform has seen its key by then, or will be slow to.
        await Promise.race([exchange.answered, setTimeout(50)]);
      });
      await holdUntilAtMost(MOST_OF_USER, open, hold);
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'headers and bodies that come to a halt',
    platform: 'impatient',
    count: { short: 200, full: 400 },
    answers: ['408', 'closed'],
    atLeast: { 408: 100 },
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/run`;
      const halted = Array.from({ length: count }, (_, n) =>
        n % 2
          ? new RawExchange(target, { path, headStart: `POST ${path} HTTP/1.1\r\nHost: a` })
          : new RawExchange(target, { path, headers: [JSON_TYPE], announcedBytes: 1_000 }),
      );
      await hold();
      await noteEnds(halted, note);
    },
  },
  {
    name: 'uploads beyond the budget of their user',
    platform: 'impatient',
    count: { short: 10, full: 100 },
    answers: ['408', '503', 'closed'],
    atLeast: { 503: 1 },
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/runsync`;
      const uploads = Array.from(
        { length: count },
        () => new RawExchange(target, { path, headers: [JSON_TYPE], announcedBytes: 10_000_000 }),
      );
      await hold();
      await noteEnds(uploads, note);
    },
  },
];
