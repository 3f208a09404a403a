// Floor of a proxy: passes every request unchanged to one address and pipes the answer back. Sends
// its own address by IPC.
import { createServer } from 'node:http';
import { pipeline } from 'node:stream';
import { Agent, request } from 'undici';

const [target = ''] = process.argv.slice(2);
const dispatcher = new Agent({ pipelining: 1 });

const server = createServer(async (incoming, answer) => {
  const { method = 'GET', url = '/' } = incoming;
  const { body, headers, statusCode } = await request(`${target}${url}`, { method, dispatcher });
  const length = headers['content-length']?.toString();
  answer.writeHead(statusCode, length === undefined ? {} : { 'content-length': length });
  pipeline(body, answer, () => {});
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no address');
  process.send?.(`http://127.0.0.1:${address.port}`);
});
process.on('disconnect', () => process.exit());
