// The floor of everything over HTTP: fastify with routes that do nothing. It tells by IPC where it is,
// unless it is told where to be.
import fastify from 'fastify';

const app = fastify({ bodyLimit: 32 * 1_048_576 });
app.get('/ping', async () => 'ready');
app.post('/small', async () => ({ id: '0', status: 'IN_QUEUE' }));
app.addContentTypeParser(
  'application/octet-stream',
  { parseAs: 'buffer' },
  (_request, body, done) => done(null, body),
);
app.post('/echo', async (request, reply) => reply.type('application/json').send(request.body));
const { PORT = '0' } = process.env;
const url = await app.listen({ port: Number(PORT), host: '127.0.0.1' });
process.send?.(url);
process.on('disconnect', () => process.exit());
