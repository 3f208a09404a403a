// What a node tells workers about the node that owns their endpoint, and which requests it counts as served.
import { once } from 'node:events';
import { connect } from 'node:net';
import { fastify } from 'fastify';
import { expect, it, onTestFinished } from 'vitest';
import { countServed } from '../../../../src/api/forwarding/forwarding-hooks.ts';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { createGrpcLink } from '../../../../src/transport/grpc/grpc-link.ts';
import { ENDPOINT } from '../../../support/api/platform.ts';
import { type Node, startNodes, type TwoNodes } from '../../../support/api/two-nodes.ts';

const WORKER = { workerId: 'w1', incarnation: 1 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 1, devices: [], outbox: [] };
const RENEW = { ...WORKER, waitMs: 0, leases: [] };
const advertised = { url: 'http://this-node.example.com:8080' };

/** Both nodes advertise the same URL: the one that has answered tells it. */
const start = () => startNodes({ forwarding: { advertised } });

async function tell(node: Node, verb: string, body: unknown): Promise<unknown> {
  const headers = { authorization: `Bearer ${node.worker}` };
  const answer = await node.post(`/v2/${ENDPOINT}/worker/${verb}`, body, { headers });
  expect(answer.status).toBe(200);
  expect([...answer.headers.keys()].filter((name) => name.startsWith('millrace-node'))).toEqual([]);
  return answer.headers.get('millrace-owner');
}

it('names the owner with each forwarded call of a worker, and with each hello', async () => {
  const { other, owner } = await start();
  expect(await tell(other, 'hello', HELLO)).toBe(advertised.url);
  expect(await tell(other, 'renew', RENEW)).toBe(advertised.url);
  expect(await tell(owner, 'hello', HELLO)).toBe(advertised.url);
  expect(await tell(owner, 'renew', RENEW)).toBe(null);
});

it('names no owner to clients, and none if the owner has no URL', async () => {
  const told = await (await start()).other.call(`/v2/${ENDPOINT}/health`);
  expect([told.status, told.headers.get('millrace-owner')]).toEqual([200, null]);
  const { other } = await startNodes();
  expect(await tell(other, 'hello', HELLO)).toBe(null);
});

it('sends a gRPC worker to the port of the owner, and to the next one after a move', async () => {
  const [first, second] = [{ grpcUrl: '' }, { grpcUrl: '' }];
  const nodes = await startNodes({ advertise: [first, second] });
  const opened: string[] = [];
  const ports = [await openPort(nodes.owner, opened), await openPort(nodes.other, opened)];
  const [ownerUrl = '', otherUrl = ''] = ports;
  first.grpcUrl = ownerUrl;
  second.grpcUrl = otherUrl;
  await expectCalls(nodes, otherUrl, opened);
});

async function expectCalls({ learn, move, other, owner }: TwoNodes, url: string, opened: string[]) {
  const link = createGrpcLink({ url, endpointId: ENDPOINT, key: other.worker, log: silentLog });
  onTestFinished(() => link.close());
  const never = new AbortController().signal;
  await link.hello(HELLO);
  await link.renew(RENEW, never);
  await link.renew(RENEW, never);
  expect(opened).toEqual([other.url, owner.url]);
  const forwarded = async (node: Node) =>
    (await (await node.call('/metrics')).text()).match(
      /^millrace_forwarded_request_duration_seconds_count\{outcome="answered"\} (\d+)/m,
    )?.[1];
  expect([await forwarded(other), await forwarded(owner)]).toEqual(['1', undefined]);
  move(other.nodeUrl);
  learn();
  await expect(link.renew(RENEW, never)).rejects.toMatchObject({ code: 'unknown_worker' });
  await link.hello(HELLO);
  await link.renew(RENEW, never);
  expect(opened).toEqual([other.url, owner.url, other.url]);
}

/** A gRPC port that notes each stream. */
async function openPort(node: Node, opened: string[]): Promise<string> {
  const { endpoints, keys, queue, workers } = node;
  const server = createGrpcServer({
    ...{ ...workers, keys, endpoints, clock: systemClock, log: silentLog },
    ...{ host: '127.0.0.1', port: 0, isClosing: () => queue.isClosing },
    linkTo: (...call) => {
      opened.push(node.url);
      return workers.linkTo(...call);
    },
  });
  onTestFinished(() => server.close());
  return (await server.start()).url;
}

it('counts a request until its end, even if its client has disconnected before', async () => {
  const app = fastify();
  let running = 0;
  const waited = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  app.addHook('onRequest', async ({ headers }, reply) => {
    if (headers['x-late'] === undefined) return;
    arrived.resolve();
    await once(reply.raw, 'close');
  });
  countServed(app, {
    begin: () => {
      running += 1;
      return () => {
        running -= 1;
      };
    },
  });
  app.addHook('onRequest', async ({ headers }) => {
    if (headers['x-late'] !== undefined) waited.resolve();
    else expect(running).toBe(1);
  });
  app.get('/jobs/:endpoint', { config: { access: 'worker' } }, async () => 'done');
  const url = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  await (await fetch(new URL('/jobs/ep', url))).text();
  const socket = connect(Number(url.port), url.hostname);
  socket.write('GET /jobs/ep HTTP/1.1\r\nHost: x\r\nX-Late: 1\r\n\r\n');
  await arrived.promise;
  socket.destroy();
  await waited.promise;
  await app.close();
  expect(running).toBe(0);
});
