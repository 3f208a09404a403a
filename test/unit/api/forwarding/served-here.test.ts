import { once } from 'node:events';
import { connect } from 'node:net';
import { fastify } from 'fastify';
import { expect, it } from 'vitest';
import { countServed } from '../../../../src/api/forwarding/forwarding-hooks.ts';

it('counts a request until its end, even if its client has disconnected before', async () => {
  const app = fastify();
  let running = 0;
  const waited = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  app.addHook('onRequest', async ({ headers }, reply) => {
    if (headers['x-late'] === undefined) return;
    arrived.resolve();
    await once(reply.raw, 'close');
  });
  countServed(app, {
    begin: () => {
      running += 1;
      return () => {
        running -= 1;
      };
    },
  });
  app.addHook('onRequest', async ({ headers }) => {
    if (headers['x-late'] !== undefined) waited.resolve();
    else expect(running).toBe(1);
  });
  app.get('/jobs/:endpoint', { config: { access: 'worker' } }, async () => 'done');
  const url = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  await (await fetch(new URL('/jobs/ep', url))).text();
  const socket = connect(Number(url.port), url.hostname);
  socket.write('GET /jobs/ep HTTP/1.1\r\nHost: x\r\nX-Late: 1\r\n\r\n');
  await arrived.promise;
  socket.destroy();
  await waited.promise;
  await app.close();
  expect(running).toBe(0);
});
