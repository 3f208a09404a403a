// Webhooks to receivers that hold the platform's deliveries up.
import { createServer, type Socket } from 'node:net';
import { fillPath } from '../../../../src/wire/routes/route.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { type Attack, type AttackContext, SILENT_DOMAIN } from '../attack.ts';
import { callOwn, inTurns } from '../raw-http.ts';

/** So many jobs that ended, each with a webhook to an address of its own. */
async function owe({ count, target }: AttackContext, webhook: (n: number) => string) {
  await inTurns({ count, width: 16 }, async (n) => {
    const body = { input: {}, webhook: webhook(n) };
    await callOwn(target, fillPath(JOB_ROUTES.runJob, { endpoint: target.endpoint }), body);
  });
  await callOwn(target, fillPath(JOB_ROUTES.purgeQueue, { endpoint: target.endpoint }), {});
}

export const webhookAttacks: Attack[] = [
  {
    name: 'webhooks to receivers that take them and never answer',
    count: { short: 100, full: 1_000 },
    answers: ['tried', 'given up'],
    // The well-behaved user's webhook does not wait until the first of these is given up.
    atMost: { 'given up': 0 },
    atLeast: { tried: 1 },
    needsWebhook: true,
    async send(context) {
      const sockets: Socket[] = [];
      const server = createServer((socket) => {
        sockets.push(socket.on('error', () => {}).resume());
      });
      await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
      const address = server.address();
      const port = typeof address === 'object' ? address?.port : 0;
      // Each its own host, so that no limit of one receiver holds.
      await owe(context, (n) => `http://127.0.${n % 200}.${2 + (n % 50)}:${port}/never`);
      await context.hold();
      for (const socket of sockets) {
        context.note(socket.destroyed || socket.readableEnded ? 'given up' : 'tried');
        socket.destroy();
      }
      server.close();
    },
  },
  {
    name: 'webhooks to names whose name server keeps silent',
    count: { short: 200, full: 1_000 },
    answers: ['owed'],
    needsWebhook: true,
    async send(context) {
      await owe(context, (n) => `http://${n}.${SILENT_DOMAIN}/never`);
      await context.hold();
      for (let n = 0; n < context.count; n++) context.note('owed');
    },
  },
];
