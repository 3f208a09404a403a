import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { readPostgresUrl } from '../../../../src/store/postgres/connection-url.ts';
import { explainPostgresError } from '../../../../src/store/postgres/postgres-errors.ts';
import { Session } from '../../../../src/store/postgres/session.ts';

let server: Server | undefined;

afterEach(async () => {
  server?.close();
  if (server) await once(server, 'close');
  server = undefined;
});

/** @returns why a session with a server that treats its connections so does not begin */
async function explain(
  onConnection: (socket: Socket) => void,
  connectTimeoutMs = 10_000,
): Promise<string> {
  server = createServer((socket) => onConnection(socket.on('error', () => undefined)));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const target = readPostgresUrl(`postgres://127.0.0.1:${address.port}/d?sslmode=disable`);
  const options = { target, connectTimeoutMs, statementTimeoutMs: 50 };
  return explainPostgresError(await Session.connect(options).catch((cause: unknown) => cause));
}

it('explains a server that does not answer', async () => {
  expect(await explain((socket) => socket.resume(), 50)).toBe(
    'the server does not answer; check host and port',
  );
});

it.each([
  ['CERT_HAS_EXPIRED', /certificate has expired; renew it/],
  ['SELF_SIGNED_CERT_IN_CHAIN', /no trusted authority.*sslrootcert \(SELF_/],
  ['EHOSTUNREACH', /no network leads to the server/],
])('explains %s', (code, text) => {
  expect(explainPostgresError(Object.assign(new Error('odd'), { code }))).toMatch(text);
});
