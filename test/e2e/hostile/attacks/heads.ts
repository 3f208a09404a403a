// Request lines and headers that are too large, too many or without a good key.
import { randomBytes } from 'node:crypto';
import type { Attack, AttackContext } from '../attack.ts';
import { composeHead, inTurns, RawExchange, type RawRequest } from '../raw-http.ts';

async function sendEach(
  { count, note, target }: AttackContext,
  compose: (n: number, endpoint: string) => RawRequest,
): Promise<void> {
  await inTurns({ count, width: 50 }, async (n) => {
    const exchange = new RawExchange(target, compose(n, target.endpoint));
    const { answer, bytes } = await exchange.answered;
    note(answer, bytes);
  });
}

const HEALTHZ = '/healthz';
const LIST = '/v1/templates';

export const headAttacks: Attack[] = [
  {
    name: 'one header of 1 MB',
    count: { short: 20, full: 1_000 },
    answers: ['400', '431', 'closed'],
    send: (context) =>
      sendEach(context, () => ({ path: HEALTHZ, headers: [`A: ${'x'.repeat(1_048_576)}`] })),
  },
  {
    name: '20,000 headers',
    count: { short: 20, full: 1_000 },
    answers: ['400', '431', 'closed'],
    send(context) {
      const headers = Array.from({ length: 20_000 }, (_, n) => `H${n}: 1`);
      return sendEach(context, () => ({ path: HEALTHZ, headers }));
    },
  },
  {
    name: 'a path of 1 MB',
    count: { short: 20, full: 1_000 },
    answers: ['400', '404', '414', '431', 'closed'],
    send: (context) => sendEach(context, () => ({ path: `/v2/${'a/'.repeat(524_288)}` })),
  },
  {
    name: 'a path of 8,000 dots and slashes, and one of escapes',
    count: { short: 40, full: 1_000 },
    answers: ['400', '404', '414', '431'],
    send: (context) =>
      sendEach(context, (n) => ({
        path: n % 2 ? `/lb/${'../'.repeat(2_600)}` : `/v2/${'%25'.repeat(2_600)}`,
      })),
  },
  {
    name: '3,000 query parameters',
    count: { short: 40, full: 1_000 },
    answers: ['200', '400', '414', '422', '431'],
    send(context) {
      const pairs = Array.from({ length: 1_500 }, (_, n) => `${n.toString(36)}=`);
      return sendEach(context, (n) => ({
        path: n % 2 ? `${LIST}?${pairs.join('&')}` : `${LIST}?${'limit=1&'.repeat(900)}`,
      }));
    },
  },
  {
    name: 'keys that nobody has, each another one',
    count: { short: 200, full: 10_000 },
    answers: ['401', '429'],
    send: (context) =>
      sendEach(context, () => ({ path: LIST, key: `mr_${randomBytes(32).toString('base64url')}` })),
  },
  {
    name: '2,000 requests in one go on one connection, no answer read',
    count: { short: 5, full: 50 },
    answers: ['open'],
    async send({ count, hold, note, target }) {
      const head = composeHead(target, { path: '/openapi.json' });
      const open = Array.from({ length: count }, () => {
        const exchange = new RawExchange(target, { path: HEALTHZ, isRead: false });
        exchange.socket.write(head.repeat(2_000));
        return exchange;
      });
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
];
