// Requests that would leave HTTP, through a load-balancing endpoint.
import type { Attack, AttackContext } from '../attack.ts';
import { RawExchange } from '../raw-http.ts';

const UPGRADE = [
  ...['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'],
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
];

async function holdUpgrades(
  { count, hold, note, target }: AttackContext,
  { early, key }: { key?: null; early: Buffer },
): Promise<void> {
  const open = Array.from({ length: count }, () => {
    const path = `/lb/${target.balanced}/chat`;
    const exchange = new RawExchange(target, {
      ...{ path, headers: UPGRADE },
      ...(key === undefined ? {} : { key }),
    });
    exchange.socket.write(early);
    return exchange;
  });
  await hold();
  // Without a key there is nothing to wait for.
  if (key === null) await Promise.all(open.map(({ answered }) => answered));
  for (const exchange of open) {
    note(exchange.state);
    exchange.close();
  }
}

export const upgradeAttacks: Attack[] = [
  {
    name: 'WebSocket upgrades without a key',
    count: { short: 300, full: 3_000 },
    answers: ['401', '429', '503', 'closed'],
    growthMb: 200,
    send: (context) => holdUpgrades(context, { key: null, early: Buffer.alloc(1_000_000) }),
  },
  {
    name: 'WebSockets that are opened and never closed',
    count: { short: 300, full: 3_000 },
    answers: ['101', 'open', '429', '503', 'closed'],
    growthMb: 300,
    send: (context) => holdUpgrades(context, { early: Buffer.alloc(0) }),
  },
  {
    name: 'WebSockets to a worker that does not read, 4 MB sent on each',
    count: { short: 100, full: 500 },
    answers: ['101', 'open', '429', '503', 'closed'],
    // Pieces that wait in both directions, and forwarded ones until they are collected: up to 370 MB were
    // seen, with 4 MB as with 16 MB sent on each connection.
    growthMb: 450,
    send: (context) => holdUpgrades(context, { early: Buffer.alloc(4 * 1_048_576) }),
  },
  {
    name: 'requests to a worker that never answers',
    count: { short: 300, full: 3_000 },
    answers: ['open', '429', '502', '503', '504', 'closed'],
    growthMb: 300,
    async send({ count, hold, note, target }) {
      const open = Array.from(
        { length: count },
        () => new RawExchange(target, { path: `/lb/${target.balanced}/silence` }),
      );
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
];
