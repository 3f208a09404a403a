// Worker links through a proxy, over real sockets: only the proxy knows where the platform's name leads.
import { createServer } from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { readProxies } from '../../../src/base/net/outgoing-proxy.ts';
import { createGrpcLink } from '../../../src/transport/grpc/grpc-link.ts';
import { createHttpLink } from '../../../src/transport/http-link.ts';
import { RunPodCaller } from '../../../src/transport/runpod/caller.ts';
import { startForwardProxy } from '../../support/network/forward-proxy.ts';
import { issueWorkerKey, openGrpcPort, openHttpPort } from '../../support/network/link-ports.ts';
import { ENDPOINT, Hand, Platform } from '../../support/queue-platform.ts';

const ENDPOINT_KEY = { endpointId: ENDPOINT, log: silentLog };

async function startPlatform(openPort: typeof openHttpPort) {
  const platform = new Platform();
  await platform.start();
  const { key } = await issueWorkerKey(platform);
  const port = await openPort(platform);
  onTestFinished(async () => {
    await port.close();
    await platform.close();
  });
  return { key, port: Number(new URL(port.url).port) };
}

async function startProxy(ports: Record<string, number>, { isSilent = false } = {}) {
  const proxy = await startForwardProxy({ ports, isSilent });
  onTestFinished(() => proxy.close());
  const withLogin = proxy.url.replace('://', '://user:pass%40word@');
  return { ...proxy, chooseProxy: readProxies({ ALL_PROXY: withLogin }) };
}

const LOGIN = `Basic ${Buffer.from('user:pass@word').toString('base64')}`;

it('sends whole URLs to the proxy over HTTP', async () => {
  const { key, port } = await startPlatform(openHttpPort);
  const { chooseProxy, logins, seen } = await startProxy({ 'platform.test:80': port });
  const link = createHttpLink({ url: 'http://platform.test', key, chooseProxy, ...ENDPOINT_KEY });
  onTestFinished(() => link.close());
  await new Hand(() => link).hello();
  expect(seen).toEqual([`POST http://platform.test/v2/${ENDPOINT}/worker/hello`]);
  expect(logins).toEqual([LOGIN]);
});

it('opens a tunnel over gRPC, also without TLS', async () => {
  const { key, port } = await startPlatform(openGrpcPort);
  const { chooseProxy, logins, seen } = await startProxy({ 'platform.test:9000': port });
  const url = 'grpc://platform.test:9000';
  const link = createGrpcLink({ url, key, chooseProxy, ...ENDPOINT_KEY });
  onTestFinished(() => link.close());
  await new Hand(() => link).hello();
  expect(seen).toEqual(['CONNECT platform.test:9000']);
  expect(logins).toEqual([LOGIN]);
});

it('links to this machine need no proxy', async () => {
  const { key, port } = await startPlatform(openHttpPort);
  const { chooseProxy, seen } = await startProxy({});
  const url = `http://localhost:${port}`;
  const link = createHttpLink({ url, key, chooseProxy, ...ENDPOINT_KEY });
  onTestFinished(() => link.close());
  await new Hand(() => link).hello();
  expect(seen).toEqual([]);
});

it.each([
  ['https://platform.test', createHttpLink],
  ['http://platform.test', createHttpLink],
  ['grpc://platform.test', createGrpcLink],
  ['grpcs://platform.test', createGrpcLink],
])('names the proxy that does not reach %s', async (url, createLink) => {
  const { chooseProxy, url: proxyUrl } = await startProxy({});
  const link = createLink({ url, key: 'mr_k', chooseProxy, ...ENDPOINT_KEY });
  onTestFinished(() => link.close());
  await expect(new Hand(() => link).hello()).rejects.toThrow(`, through the proxy ${proxyUrl}`);
});

it('gives up a proxy that opens no tunnel', async () => {
  const { chooseProxy } = await startProxy({}, { isSilent: true });
  const url = 'https://platform.test';
  const link = createHttpLink({ url, key: 'k', chooseProxy, connectMs: 20, ...ENDPOINT_KEY });
  onTestFinished(() => link.close());
  const failed = 'hello: opening the connection timed out after 20 ms, through the proxy';
  await expect(new Hand(() => link).hello()).rejects.toThrow(failed);
});

it('calls of RunPod take the proxy, and name the target of a redirect', async () => {
  const server = createServer(({ url }, response) => {
    if (url === '/job') response.end('{"id":1}');
    else response.writeHead(302, { location: `https://api.test${url}` }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = Object(server.address());
  const { chooseProxy, seen } = await startProxy({ 'api.test:80': port });
  const caller = new RunPodCaller({ key: 'k', version: '0', chooseProxy });
  onTestFinished(() => caller.close());
  const answer = await caller.get('http://api.test/job', { limitMs: 5_000 });
  expect(answer).toMatchObject({ status: 200, body: { id: 1 } });
  expect(seen).toEqual(['GET http://api.test/job']);
  const { status, body } = await caller.get(`http://127.0.0.1:${port}/moved`, { limitMs: 5_000 });
  expect({ status, body }).toEqual({
    status: 302,
    body: `http://127.0.0.1:${port} redirects (302) to https://api.test; use that URL`,
  });
  const lost = caller.get('https://api.test/job', { limitMs: 5_000 });
  await expect(lost).rejects.toThrow(/, through the proxy http:\/\/127/);
});
