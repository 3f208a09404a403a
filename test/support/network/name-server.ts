// A DNS server on loopback UDP: answers A questions from a table and all others with NXDOMAIN. It
// does not answer questions about the names that the test lists, and names below them. It records
// all questions.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type Answer, decode, encode } from 'dns-packet';

export interface NameServer extends AsyncDisposable {
  /** `address:port`. */
  address: string;
  /** Names of the A questions, in order of arrival. */
  asked: string[];
}

interface NameServerOptions {
  records?: Readonly<Record<string, string>>;
  silent?: readonly string[];
}

const NXDOMAIN = 3;
const AUTHORITATIVE = 1 << 10;

export async function startNameServer({
  records = {},
  silent = [],
}: NameServerOptions = {}): Promise<NameServer> {
  const socket = createSocket('udp4');
  const asked: string[] = [];
  socket.on('message', (message, peer) => {
    const { id, questions = [] } = decode(message);
    const [question] = questions;
    if (!question) return;
    const { name, type } = question;
    if (type === 'A') asked.push(name);
    if (silent.some((each) => name === each || name.endsWith(`.${each}`))) return;
    const data = records[name];
    const answers: Answer[] = data && type === 'A' ? [{ type: 'A', name, ttl: 1, data }] : [];
    const flags = AUTHORITATIVE | (data ? 0 : NXDOMAIN);
    socket.send(
      encode({ type: 'response', id, flags, questions, answers }),
      peer.port,
      peer.address,
    );
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    address: `127.0.0.1:${socket.address().port}`,
    asked,
    [Symbol.asyncDispose]: () => new Promise((resolve) => socket.close(() => resolve())),
  };
}
