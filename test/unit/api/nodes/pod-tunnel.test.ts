import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { connectToPod, readNodeAddress } from '../../../../src/api/nodes/node-client.ts';
import { exchange } from '../../../support/api/platform.ts';
import { SECRET, startNodes } from '../../../support/api/two-nodes.ts';

/** A node with a pod that sends everything back. */
async function startPod() {
  const server = createServer((socket) => socket.pipe(socket).on('error', () => {}));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const { owner } = await startNodes({
    forwarding: {
      findPodPort: async (podId, wanted) =>
        podId === 'pod_a' && wanted === port ? { host: '127.0.0.1', port } : undefined,
    },
  });
  return { url: owner.nodeUrl, port };
}

it('carry bytes both ways, and end with either side', async () => {
  const { port, url } = await startPod();
  const socket = await connectToPod({ url, podId: 'pod_a', port, secrets: [SECRET] });
  const pieces: Buffer[] = [];
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  const sent = Buffer.alloc(1_000_000, 'x');
  socket.write(sent);
  await expect.poll(() => Buffer.concat(pieces).length, { timeout: 30_000 }).toBe(sent.length);
  const closed = once(socket, 'close');
  socket.end();
  await closed;
});

it('reach only ports of pods', async () => {
  const { port, url } = await startPod();
  const other = Number(new URL(url).port);
  for (const [podId, wanted] of [['pod_b', port] as const, ['pod_a', other] as const]) {
    const refused = connectToPod({ url, podId, port: wanted, secrets: [SECRET] });
    await expect(refused).rejects.toThrow(/404/);
  }
});

it('need the secret of the nodes', async () => {
  const { port, url } = await startPod();
  const refused = connectToPod({ url, podId: 'pod_a', port, secrets: ['another'] });
  await expect(refused).rejects.toThrow();
  const sent = `CONNECT pod_a:${port} HTTP/1.1\r\nHost: x\r\n\r\n`;
  expect(await exchange(Number(new URL(url).port), [sent])).toBe('');
});

it('leaves no connection to the pod for a node that has given up', async () => {
  const open = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    open.add(socket);
    socket.on('error', () => {}).on('close', () => open.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const asked = Promise.withResolvers<void>();
  const found = Promise.withResolvers<void>();
  const { owner } = await startNodes({
    forwarding: {
      findPodPort: async () => {
        asked.resolve();
        await found.promise;
        return { host: '127.0.0.1', port };
      },
    },
  });
  const client = connect(Number(new URL(owner.nodeUrl).port), '127.0.0.1');
  client.on('error', () => {});
  const head = `CONNECT pod_a:${port} HTTP/1.1\r\nHost: x\r\nmillrace-node-secret: ${SECRET}\r\n\r\n`;
  client.write(head);
  await asked.promise;
  client.resetAndDestroy();
  // The node sees the end of the connection before this one, which is opened later.
  const { port: other, url } = await startPod();
  const socket = await connectToPod({ url, podId: 'pod_a', port: other, secrets: [SECRET] });
  socket.destroy();
  found.resolve();
  await setTimeout(500);
  expect({ connections, open: open.size }).toEqual({ connections: 0, open: 0 });
});

it.each([
  ['http://10.0.0.5:8091', '10.0.0.5', '8091'],
  ['http://[fd00::5]:8091', 'fd00::5', '8091'],
  ['http://node-a.internal', 'node-a.internal', '80'],
])('reads %s', (url, hostname, port) => {
  expect(readNodeAddress(url)).toEqual({ hostname, port });
});
