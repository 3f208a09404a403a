// Floor of HTTP operations: fastify with two routes that do nothing. Sends its address by IPC.
import fastify from 'fastify';

const app = fastify({ bodyLimit: 32 * 1_048_576 });
app.post('/small', async () => ({ id: '0', status: 'IN_QUEUE' }));
app.addContentTypeParser(
  'application/octet-stream',
  { parseAs: 'buffer' },
  (_request, body, done) => done(null, body),
);
app.post('/echo', async (request, reply) => reply.type('application/json').send(request.body));
process.send?.(await app.listen({ port: 0, host: '127.0.0.1' }));
process.on('disconnect', () => process.exit());
