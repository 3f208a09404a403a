// A worker of a load-balancing endpoint that is ready, agrees to every upgrade, and never says more.
import { createServer } from 'node:http';

const server = createServer((request, response) => {
  if (request.url === '/ping') response.end();
});
server.on('upgrade', (_request, socket) => {
  socket.on('error', () => socket.destroy());
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n',
  );
});
server.listen(Number(process.env['PORT']), process.env['HOST'] ?? '127.0.0.1');
