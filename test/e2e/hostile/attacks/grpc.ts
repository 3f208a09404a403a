// What can be sent to the gRPC port without a key.
import { constants } from 'node:http2';
import type { Attack, AttackContext } from '../attack.ts';
import {
  CHECK,
  OPEN,
  openSession,
  prefixMessage,
  RawCall,
  REFLECTION,
  WATCH,
} from '../raw-grpc.ts';

const MESSAGE_BYTES = 32 * 1_048_576 - 1;
/** Holds until every call is refused; one that is never refused fails the attack. */
const MAX_TURNS = 20;
/** Calls of one connection that are open at a time. */
const BATCH = 50;
/** Each unfinished call on a connection of its own, so that only the call's own limits hold. */
const REFUSED = ['grpc 3', 'grpc 4', 'grpc 8', 'grpc 13', 'grpc 14', 'grpc 16', 'reset'];

async function sendUnfinished(context: AttackContext, path: string): Promise<void> {
  const { count, hold, note, target } = context;
  const body = Buffer.alloc(MESSAGE_BYTES - 1);
  const sessions = Array.from({ length: count }, () => openSession(target));
  const calls = sessions.map((session) => new RawCall(session, path));
  for (const { stream } of calls) {
    stream.write(prefixMessage(MESSAGE_BYTES));
    stream.write(body);
  }
  await hold();
  // A busy platform may not have answered all of them by then.
  const isOpen = ({ state }: RawCall) => state === 'open';
  for (let turn = 0; turn < MAX_TURNS && calls.some(isOpen); turn++) await hold();
  for (const call of calls) note(call.state, call.bytes);
  for (const session of sessions) session.destroy();
}

export const grpcAttacks: Attack[] = [
  {
    name: 'gRPC health calls of 32 MB without a key that stop before their end',
    count: { short: 20, full: 60 },
    answers: REFUSED,
    readMb: 100,
    growthMb: 200,
    send: (context) => sendUnfinished(context, CHECK),
  },
  {
    name: 'gRPC reflection calls of 32 MB without a key that stop before their end',
    count: { short: 20, full: 60 },
    answers: REFUSED,
    readMb: 100,
    growthMb: 200,
    send: (context) => sendUnfinished(context, REFLECTION),
  },
  {
    name: 'worker streams without a key with messages of 32 MB',
    count: { short: 20, full: 60 },
    answers: REFUSED,
    readMb: 100,
    growthMb: 200,
    send: (context) => sendUnfinished(context, OPEN),
  },
  {
    name: 'gRPC streams without a key, as many on one connection as there may be',
    count: { short: 2_000, full: 20_000 },
    answers: [...REFUSED, 'open'],
    atMost: { open: 100 },
    async send({ count, hold, note, target }) {
      const session = openSession(target);
      const calls: RawCall[] = [];
      // Not before the platform has said how many it takes.
      await new Promise((resolve) => session.once('remoteSettings', resolve));
      const most = Math.min(count, session.remoteSettings.maxConcurrentStreams ?? count);
      for (let n = 0; n < most; n++) {
        const call = new RawCall(session, CHECK);
        call.stream.write(prefixMessage(100));
        calls.push(call);
      }
      await hold();
      for (const call of calls) note(call.state, call.bytes);
      session.destroy();
    },
  },
  {
    name: 'Watch calls of gRPC health without a key',
    count: { short: 300, full: 3_000 },
    answers: [...REFUSED, 'answered', 'open'],
    atMost: { answered: 100, open: 0 },
    async send({ count, hold, note, target }) {
      const sessions = Array.from({ length: Math.ceil(count / 50) }, () => openSession(target));
      const calls = Array.from({ length: count }, (_, n) => {
        const session = sessions[n % sessions.length] ?? openSession(target);
        const call = new RawCall(session, WATCH);
        call.stream.end(prefixMessage(0));
        return call;
      });
      await hold();
      for (const call of calls) note(call.state, call.bytes);
      for (const session of sessions) session.destroy();
    },
  },
  {
    name: 'gRPC calls that are reset as soon as they are opened',
    count: { short: 1_000, full: 50_000 },
    answers: ['reset', ...REFUSED],
    async send({ count, note, target }) {
      for (let sent = 0; sent < count; ) {
        const session = openSession(target);
        const closed = new Promise((resolve) => session.once('close', resolve));
        await Promise.race([
          new Promise((resolve) => session.once('remoteSettings', resolve)),
          closed,
        ]);
        // The platform may end a connection that does nothing else.
        for (; sent < count && !session.closed && !session.destroyed; sent += BATCH) {
          const calls = Array.from({ length: BATCH }, () => new RawCall(session, CHECK));
          await new Promise((resolve) => setImmediate(resolve));
          for (const { stream } of calls) stream.close(constants.NGHTTP2_CANCEL);
          await Promise.race([Promise.all(calls.map(({ ended }) => ended)), closed]);
          for (const call of calls) note(call.state, call.bytes);
        }
        session.destroy();
      }
    },
  },
];
