// Requests of webhooks, downloads and uploads through a proxy: what it carries, and which addresses are refused before.
import { anyAddress, publicOnly } from 'millrace/outgoing';
import { downloadBytes, openStorage } from 'millrace/storage';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { readProxies } from '../../../../src/base/net/outgoing-proxy.ts';
import type { ResolveName } from '../../../../src/base/net/public-address.ts';
import {
  generatePlatformSecret,
  HttpWebhookSender,
} from '../../../../src/queue/webhooks/webhook-sender.ts';
import { startServer } from '../../../support/handler-context.ts';
import { startForwardProxy } from '../../../support/network/forward-proxy.ts';
import { S3_KEYS, S3Server } from '../../../support/network/s3-server.ts';
import { makeDelivery } from '../../../support/store/stored-jobs.ts';

const { signal } = new AbortController();

const unknown: ResolveName = (_, __, callback) => callback(new Error('no such name'), []);
const inside: ResolveName = (_, __, callback) =>
  callback(null, [{ address: '10.0.0.7', family: 4 }]);

afterEach(() => vi.unstubAllEnvs());

/** A proxy that the environment names, and that leads `NAME:80` to the server. */
async function startProxy(name: string, url: string) {
  const proxy = await startForwardProxy({ ports: { [`${name}:80`]: Number(new URL(url).port) } });
  onTestFinished(() => proxy.close());
  vi.stubEnv('http_proxy', proxy.url);
  vi.stubEnv('https_proxy', proxy.url);
  return proxy;
}

describe('a download', () => {
  const download = (url: string, resolve: ResolveName) =>
    downloadBytes(url, { signal }, { rule: publicOnly, resolve });

  it('takes the proxy, redirects included', async () => {
    await using server = await startServer(({ url }, response) => {
      if (url === '/b') response.end('bytes');
      else response.writeHead(302, { location: '/b' }).end();
    });
    const proxy = await startProxy('files.test', server.url);
    expect(String(await download('http://files.test/a', unknown))).toBe('bytes');
    expect(proxy.seen).toEqual(['GET http://files.test/a', 'GET http://files.test/b']);
  });

  it('does not reach the proxy from a private address', async () => {
    await using server = await startServer((_, response) => response.end('secret'));
    const proxy = await startProxy('files.test', server.url);
    const byName = download('http://files.test/a', inside);
    await expect(byName).rejects.toThrow('it resolves to 10.0.0.7 (private)');
    const byAddress = download('http://169.254.169.254/a', unknown);
    await expect(byAddress).rejects.toThrow('169.254.169.254 is refused (linkLocal)');
    const local = download(server.url, unknown);
    await expect(local).rejects.toThrow('127.0.0.1 is refused (loopback)');
    expect(proxy.seen).toEqual([]);
  });

  it('names the proxy if the proxy refuses it', async () => {
    const proxy = await startProxy('files.test', 'http://127.0.0.1:1');
    const lost = download('https://other.test/a', unknown);
    await expect(lost).rejects.toThrow(`, through the proxy ${proxy.url}`);
    expect(proxy.seen).toEqual(['CONNECT other.test:443']);
  });
});

describe('a webhook', () => {
  async function send(url: string, resolve: ResolveName) {
    const sender = new HttpWebhookSender({
      ...{ secrets: [generatePlatformSecret()], addresses: 'public', version: '1', resolve },
      chooseProxy: readProxies(process.env),
    });
    onTestFinished(() => sender.close());
    const delivery = makeDelivery({ id: 'd', url, attempts: 0, bytes: 2 });
    const record = async function* () {
      yield Buffer.from('{}');
    };
    return await sender.send(delivery, record, signal);
  }

  it('takes the proxy, unless its receiver has a private address', async () => {
    await using server = await startServer((_, response) => response.end());
    const proxy = await startProxy('hooks.test', server.url);
    expect(await send('http://hooks.test/a', unknown)).toMatchObject({ result: '2xx' });
    expect(await send('http://hooks.test/a', inside)).toMatchObject({ result: 'refused' });
    expect(await send('http://[fd00::1]/a', unknown)).toMatchObject({ result: 'refused' });
    expect(proxy.seen).toEqual(['POST http://hooks.test/a']);
    expect(await send('https://hooks.test/a', unknown)).toMatchObject({
      result: 'unreachable',
      detail: expect.stringContaining(`, through the proxy ${proxy.url}`),
    });
  });
});

it('uploads through the proxy, unless the storage has a private address', async () => {
  await using server = await S3Server.start('images');
  const proxy = await startProxy('s3.test', server.url);
  const s3Config = { ...S3_KEYS, bucketName: 'images', endpointUrl: 'http://s3.test' };
  const upload = { key: 'a.png', bytes: Buffer.from('x') };
  const refused = openStorage({ s3Config }, { rule: publicOnly, resolve: inside });
  await expect(refused.upload(upload, { signal })).rejects.toThrow('10.0.0.7 (private)');
  const storage = openStorage({ s3Config }, { rule: anyAddress });
  expect(await storage.upload(upload, { signal })).toMatchObject({ bytes: 1 });
  expect(proxy.seen).toEqual([expect.stringContaining('PUT http://s3.test/images/a.png')]);
});
