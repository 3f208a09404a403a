// A load-balancing worker that does almost nothing, so that benchmarks measure only the way to it.
import { createServer, type ServerResponse } from 'node:http';

const PIECE = Buffer.alloc(65_536, 'x');

const server = createServer((incoming, answer) => {
  const [path, count] = incoming.url?.slice(1).split('?') ?? [];
  switch (path) {
    case 'ping':
      return answer.end();
    case 'small':
      return answer.setHeader('content-type', 'application/json').end('{"text":"hello"}');
    case 'piece':
      return answer.end(PIECE);
    case 'pieces':
      return sendPieces(answer, Number(count));
    default:
      return answer.writeHead(404).end();
  }
});

/** Sends pieces as fast as the client reads them. */
function sendPieces(answer: ServerResponse, count: number): void {
  let left = count;
  const send = () => {
    while (left-- > 0) {
      if (!answer.write(PIECE)) {
        answer.once('drain', send);
        return;
      }
    }
    answer.end();
  };
  send();
}

process.once('SIGTERM', () => process.exit());
server.listen(Number(process.env['PORT']), '127.0.0.1');
