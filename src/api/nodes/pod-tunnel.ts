// Connections between nodes to the ports of pods, which only the machine of the pod can reach: `CONNECT <pod>:<port>` on
// the port for other nodes.
import type { IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { http } from '../../base/net/node-http.ts';
import { NODE_HEADERS } from '../http/forwarded.ts';
import { joinTunnel } from '../proxy/upgrade.ts';
import { firstSecret, readNodeAddress } from './node-client.ts';

/** Undefined if no container of the pod has the port: other ports of the machine cannot be reached. */
export type FindPodPort = (
  podId: string,
  port: number,
) => Promise<{ host: string; port: number } | undefined>;

const CONNECT_MS = 5_000;

export interface TunnelServer {
  findPodPort: FindPodPort;
  clock: Clock;
  log: Log;
}

/** The caller has checked the secret. Never rejects. */
export async function serveTunnel(
  request: IncomingMessage,
  head: Buffer,
  { clock, findPodPort, log }: TunnelServer,
): Promise<void> {
  const client = request.socket;
  const refuse = (status: string) => client.end(`HTTP/1.1 ${status}\r\ncontent-length: 0\r\n\r\n`);
  const [, podId = '', port = ''] = /^([^:]+):(\d{1,5})$/.exec(request.url ?? '') ?? [];
  try {
    const address = await findPodPort(podId, Number(port));
    if (client.destroyed) return;
    if (!address) {
      refuse('404 Not Found');
      return;
    }
    const worker = await dial(address);
    // Its `close` has passed, so it would not end the connection to the pod.
    if (client.destroyed) {
      worker.destroy();
      return;
    }
    client.write('HTTP/1.1 200 OK\r\n\r\n');
    await joinTunnel({ client, worker, head, clock });
  } catch (error) {
    log.debug({ err: error, pod: podId }, 'connecting to a pod for another node failed');
    refuse('502 Bad Gateway');
  }
}

function dial({ host, port }: { host: string; port: number }): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true, timeout: CONNECT_MS });
    socket.once('timeout', () => socket.destroy(new Error(`no connection in ${CONNECT_MS} ms`)));
    socket.once('error', reject);
    socket.once('connect', () => {
      socket
        .setTimeout(0)
        .off('error', reject)
        .on('error', () => socket.destroy());
      resolve(socket);
    });
  });
}

export interface PodAddress {
  /** Of the pod's node. */
  url: string;
  podId: string;
  port: number;
  /** The first one is sent. */
  secrets: readonly string[];
}

/** A connection to a pod on the machine of another node. Rejects if there is none in time. */
export function connectToPod({ podId, port, secrets, url }: PodAddress): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      ...readNodeAddress(url),
      method: 'CONNECT',
      path: `${podId}:${port}`,
      agent: false,
      headers: { [NODE_HEADERS.secret]: firstSecret(secrets) },
    });
    const expire = () => request.destroy(new Error(`no answer in ${CONNECT_MS} ms`));
    const timer = setTimeout(expire, CONNECT_MS);
    request.once('close', () => clearTimeout(timer)).once('error', reject);
    request.once('response', (answer) => {
      answer.resume();
      reject(new Error(`node ${url}: ${answer.statusCode}`));
    });
    request.once('connect', (answer: IncomingMessage, socket: Socket) => {
      clearTimeout(timer);
      request.off('error', reject);
      if (answer.statusCode === 200) {
        socket.setNoDelay(true);
        resolve(socket);
        return;
      }
      socket.destroy();
      reject(new Error(`node ${url} has no pod ${podId} with port ${port}: ${answer.statusCode}`));
    });
    request.end();
  });
}
