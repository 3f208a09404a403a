// Finds a TCP port of loopback that nobody listens on.
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below the ports that systems give to programs that ask for any port (32,768 and up on Linux): otherwise another test
 * could get the port before the caller uses it.
 */
const FIRST = 12_000;
const PORTS = 20_000;
const TRIES = 100;

export async function findFreePort(): Promise<number> {
  for (let attempt = 0; attempt < TRIES; attempt++) {
    const port = FIRST + Math.floor(Math.random() * PORTS);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
  throw new Error('no free port');
}
