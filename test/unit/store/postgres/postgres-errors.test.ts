import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { readPostgresUrl } from '../../../../src/store/postgres/connection-url.ts';
import { explainPostgresError } from '../../../../src/store/postgres/postgres-errors.ts';
import { Session } from '../../../../src/store/postgres/session.ts';

it('a server that does not answer is explained', async () => {
  const server = createServer((socket) => socket.on('error', () => undefined).resume());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const target = readPostgresUrl(`postgres://127.0.0.1:${address.port}/d?sslmode=disable`);
  const options = { target, connectTimeoutMs: 50, statementTimeoutMs: 50 };
  const error = await Session.connect(options).catch((cause: unknown) => cause);
  expect(explainPostgresError(error)).toBe('the server does not answer; check host and port');
  server.close();
  await once(server, 'close');
});
