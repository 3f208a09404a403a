// A platform embedded in a program, by its public door alone.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createClient } from 'millrace/client';
import { createPlatformServer, PlatformOptionError, type PlatformOptions } from 'millrace/server';
import { expect, it, onTestFinished, vi } from 'vitest';
import { openPlatform } from '../../../src/platform/platform.ts';

async function start(options?: PlatformOptions) {
  const platform = await createPlatformServer(options);
  onTestFinished(() => platform.close());
  return platform;
}

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-embedded-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  return folder;
}

it('runs without an option, in memory, on a free port', async () => {
  const platform = await start();
  expect(platform.grpcUrl).toBeUndefined();
  expect((await fetch(`${platform.url}/readyz`)).status).toBe(200);
  expect((await fetch(`${platform.url}/v2/x/jobs`)).status).toBe(401);
  await platform.declareEndpoint('x');
  const key = platform.adminKey ?? '';
  const { id } = await createClient({ url: platform.url, endpoint: 'x', key }).run({});
  expect(id).toMatch(/^[0-9a-f-]{36}$/);
});

it('keeps jobs in its data folder and its keys in the key file', async () => {
  const folder = await makeFolder();
  const options = { dataFolder: join(folder, 'data'), keyFile: join(folder, 'keys') };
  const first = await createPlatformServer({ ...options, endpoints: ['x'] });
  const clientOf = ({ adminKey, url }: { adminKey: string | undefined; url: string }) =>
    createClient({ url, endpoint: 'x', key: adminKey ?? '' });
  const { id } = await clientOf(first).run({});
  await first.close();
  const second = await start(options);
  expect([second.adminKey, second.workerKey]).toEqual([first.adminKey, first.workerKey]);
  expect(await clientOf(second).status(id)).toMatchObject({ status: 'IN_QUEUE' });
});

it('returns its keys on the first start only, without a key file', async () => {
  const dataFolder = await makeFolder();
  const first = await createPlatformServer({ dataFolder });
  expect(first.adminKey).toMatch(/^mr_/);
  await first.close();
  const second = await start({ dataFolder });
  expect([second.adminKey, second.workerKey]).toEqual([undefined, undefined]);
});

it('serves workers over gRPC if it is asked to', async () => {
  const { grpcUrl } = await start({ grpc: {} });
  expect(grpcUrl).toMatch(/^grpc:\/\/127\.0\.0\.1:\d+$/);
});

it('names the option that another process uses, and leaves nothing open', async () => {
  const { url } = await start();
  const dataFolder = await makeFolder();
  const taken = { dataFolder, port: Number(new URL(url).port) };
  const error = await createPlatformServer(taken).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(PlatformOptionError);
  expect(error).toMatchObject({ option: 'port', fault: 'unusable' });
  await start({ dataFolder });
  await expect(createPlatformServer({ dataFolder })).rejects.toMatchObject({
    ...{ option: 'dataFolder', fault: 'unusable' },
  });
});

it('names the option that is invalid', async () => {
  const folder = await makeFolder();
  await writeFile(join(folder, 'keys'), 'nothing');
  const refuse = (options: PlatformOptions) =>
    expect(createPlatformServer(options)).rejects.toMatchObject;
  await refuse({ keyFile: join(folder, 'keys') })({ option: 'keyFile', fault: 'invalid' });
  await refuse({ endpoints: ['no/name'] })({ option: 'endpoints', fault: 'invalid' });
  await refuse({ compute: { engine: 'process' } })({ option: 'dataFolder', fault: 'invalid' });
});

it('runs as docs/embedding.md shows', async () => {
  const page = await readFile(resolve(import.meta.dirname, '../../../docs/embedding.md'), 'utf8');
  const snippet = /```js\n(.*?)```/s.exec(page)?.[1] ?? '';
  const folder = await mkdtemp(join(import.meta.dirname, 'snippet-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'snippet.mjs'), snippet);
  const log = vi.spyOn(console, 'log').mockReturnValue();
  onTestFinished(() => log.mockRestore());
  await import(join(folder, 'snippet.mjs'));
  expect(log.mock.calls).toEqual([['IN_QUEUE']]);
});

it('closes everything even if a part fails, for every caller', async () => {
  const dataFolder = await makeFolder();
  const platform = await openPlatform({ dataFolder });
  const { queue } = platform;
  const close = queue.close.bind(queue);
  queue.close = async () => {
    await close();
    throw new Error('the queue does not close');
  };
  const closing = [platform.close(), platform.close()];
  for (const each of closing) await expect(each).rejects.toThrow('the queue does not close');
  const second = await openPlatform({ dataFolder });
  await second.close();
});
