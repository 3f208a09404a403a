// An ordinary web service, here with fastify and ws: all that makes it a worker of a load-balancing
// endpoint is that it listens on PORT and answers GET /ping.

import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { fastify } from 'fastify';
import { WebSocketServer } from 'ws';

const app = fastify();
let isWarm = false;

// 204: still starting, 200: send me requests.
app.get('/ping', (_request, reply) => reply.code(isWarm ? 200 : 204).send());

app.post<{ Body: { text: string } }>('/upper', (request) => ({
  text: request.body.text.toUpperCase(),
  worker: process.env['MILLRACE_WORKER_ID'],
}));

app.get('/tokens', (_request, reply) => {
  reply.header('content-type', 'text/event-stream');
  return reply.send(Readable.from(generate()));
});

async function* generate(): AsyncGenerator<string> {
  for (const token of ['one', 'two', 'three']) {
    yield `data: ${token}\n\n`;
    await sleep(100);
  }
}

new WebSocketServer({ server: app.server }).on('connection', (socket) => {
  socket.on('message', (data) => socket.send(String(data).toUpperCase()));
});

// Answers the running requests before the process ends.
process.once('SIGTERM', () => {
  app.close().catch(console.error);
});

const { HOST = '127.0.0.1', PORT = '8000' } = process.env;
await app.listen({ host: HOST, port: Number(PORT) });
// A real server would load its model here.
await sleep(100);
isWarm = true;
