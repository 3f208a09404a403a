// Downloads into the attempt's folder, from real servers.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { type Context, NonRetryableError } from 'millrace';
import { anyAddress } from 'millrace/outgoing';
import { type DownloadedFile, download, downloadAll } from 'millrace/storage';
import { runHandler } from 'millrace/testing';
import { describe, expect, it } from 'vitest';
import { chooseFileName } from '../../../src/storage/download.ts';
import { startServer } from '../../support/handler-context.ts';

const local = { rule: anyAddress };

/** What `act` gives within an attempt, whose folder is removed then; its error is the test's. */
async function inAttempt<T>(act: (ctx: Context) => Promise<T>): Promise<T> {
  let end: { value: T } | { error: unknown } | undefined;
  let folder = '';
  await runHandler(async (_: unknown, ctx: Context) => {
    folder = ctx.tempFolder();
    end = await act(ctx).then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    );
  }, {});
  await expect.poll(() => existsSync(folder)).toBe(false);
  if (!end) throw new Error('the attempt did not run');
  if ('error' in end) throw end.error;
  return end.value;
}

describe('download', () => {
  it('writes the file under its own name, for the worker’s user only, and leaves nothing', async () => {
    await using server = await startServer((_, response) => {
      response.writeHead(200, { 'content-type': 'image/png' }).end('bytes');
    });
    const file = await inAttempt(async (ctx) => {
      const found = await download(`${server.url}/cats/tom.png`, ctx, local);
      expect(readFileSync(found.path, 'utf8')).toBe('bytes');
      expect(statSync(found.path).mode & 0o777).toBe(0o600);
      expect(dirname(dirname(found.path))).toBe(ctx.tempFolder());
      return found;
    });
    expect(file).toMatchObject({ name: 'tom.png', bytes: 5, contentType: 'image/png' });
    expect(basename(file.path)).toBe('tom.png');
    expect(existsSync(file.path)).toBe(false);
  });

  it('refuses private addresses by default', async () => {
    await using server = await startServer((_, response) => response.end('secret'));
    const attempt = inAttempt((ctx) => download(server.url, ctx, { name: 'input.url' }));
    await expect(attempt).rejects.toThrow(/^input\.url .*127\.0\.0\.1 is refused \(loopback\)/);
    await expect(attempt).rejects.toBeInstanceOf(NonRetryableError);
  });

  it('removes a file that is too large at once', async () => {
    await using server = await startServer((_, response) => {
      const timer = setInterval(() => response.write('x'.repeat(600)), 5);
      response.on('close', () => clearInterval(timer));
    });
    await inAttempt(async (ctx) => {
      const refused = download(server.url, ctx, { ...local, maxBytes: 1_000 });
      await expect(refused).rejects.toThrow('larger than 1000 bytes');
      expect(readdirSync(ctx.tempFolder())).toEqual([]);
    });
  });

  it('ends with the attempt', async () => {
    const closed = Promise.withResolvers<void>();
    const controller = new AbortController();
    await using server = await startServer((_, response) => {
      response.on('close', () => closed.resolve());
      response.write('first', () => controller.abort());
    });
    let folder = '';
    const handler = (_: unknown, ctx: Context) => {
      folder = ctx.tempFolder();
      return download(server.url, ctx, local);
    };
    const { status } = await runHandler(handler, {}, { signal: controller.signal });
    expect(status).toBe('CANCELLED');
    await closed.promise;
    await expect.poll(() => existsSync(folder)).toBe(false);
  });

  it('names an option with a wrong value', async () => {
    const attempt = inAttempt((ctx) => download('http://a.example/', ctx, { maxBytes: -1 }));
    await expect(attempt).rejects.toThrow(
      /^maxBytes must be a whole number from 1 to \d+, got -1$/,
    );
  });
});

describe('downloadAll', () => {
  it('gives the files in the order of their URLs, also of equal names, a few at a time', async () => {
    const running = new Set<() => void>();
    let most = 0;
    const endAll = () => {
      for (const end of running) end();
      running.clear();
    };
    await using server = await startServer(async ({ url = '' }, response) => {
      await new Promise<void>((end) => {
        running.add(end);
        most = Math.max(most, running.size);
        // With time for a request too many.
        if (running.size === 3) setTimeout(endAll, 20);
      });
      response.end(url);
    });
    const paths = Array.from({ length: 9 }, (_, index) => `/${index}/same.txt`);
    const urls = paths.map((path) => server.url + path);
    await inAttempt(async (ctx) => {
      const files = await downloadAll(urls, ctx, { ...local, concurrency: 3 });
      expect(files.map(({ name }) => name)).toEqual(paths.map(() => 'same.txt'));
      expect(files.map(({ path }) => readFileSync(path, 'utf8'))).toEqual(paths);
    });
    expect(most).toBe(3);
  });

  it('counts the bytes of all files together', async () => {
    await using server = await startServer((_, response) => response.end('x'.repeat(400)));
    const urls = [server.url, server.url, server.url];
    const some = (count: number) => (ctx: Context) =>
      downloadAll(urls.slice(0, count), ctx, { ...local, maxBytes: 1_000, concurrency: 1 });
    expect(await inAttempt<DownloadedFile[]>(some(2))).toHaveLength(2);
    await expect(inAttempt(some(3))).rejects.toThrow(/^urls\[2\] .*larger than 200 bytes$/);
  });

  it('ends the other downloads when one fails, and begins no further one', async () => {
    const [begun, closed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let requests = 0;
    await using server = await startServer(async ({ url }, response) => {
      requests += 1;
      if (url === '/slow') {
        begun.resolve();
        return void response.on('close', () => closed.resolve());
      }
      await begun.promise;
      response.writeHead(404).end();
    });
    const urls = ['/slow', '/bad', '/later'].map((path) => server.url + path);
    const attempt = inAttempt((ctx) => downloadAll(urls, ctx, { ...local, concurrency: 2 }));
    await expect(attempt).rejects.toThrow(/^urls\[1\] \(.*\/bad\): the server answered 404$/);
    await closed.promise;
    expect(requests).toBe(2);
  });

  it('refuses too many URLs before the first request', async () => {
    const attempt = inAttempt((ctx) =>
      downloadAll(['a', 'b'], ctx, { name: 'input.urls', maxFiles: 1 }),
    );
    await expect(attempt).rejects.toThrow('input.urls: has 2 URLs; the limit is 1');
  });

  it('returns no file for no URL', async () => {
    expect(await inAttempt((ctx) => downloadAll([], ctx))).toEqual([]);
  });
});

it.each([
  ['https://a.example/cats/tom.png', undefined, undefined, 'tom.png'],
  ['https://a.example/cats/tom%20cat.PNG?x=1', undefined, undefined, 'tom_cat.PNG'],
  ['https://a.example/', undefined, undefined, 'file'],
  ['https://a.example/', undefined, 'image/jpeg; q=1', 'file.jpg'],
  ['https://a.example/model', undefined, 'constructor', 'model'],
  ['https://a.example/x', 'attachment; filename="tom.webp"', undefined, 'tom.webp'],
  ['https://a.example/x', 'attachment; filename=tom.webp; size=3', undefined, 'tom.webp'],
  [
    'https://a.example/x',
    "attachment; filename=a.png; filename*=UTF-8''t%C3%B6m.png",
    undefined,
    't_m.png',
  ],
  ['https://a.example/x', 'attachment; filename="../../etc/passwd"', undefined, 'passwd'],
  ['https://a.example/x', 'attachment; filename="C:\\\\temp\\\\a.txt"', undefined, 'a.txt'],
  ['https://a.example/%2e%2e%2f%2e%2e%2f.ssh%2fid', undefined, undefined, 'id'],
  ['https://a.example/..%2f.bashrc', undefined, undefined, 'bashrc'],
  ['https://a.example/-rf', undefined, undefined, 'rf'],
  ['https://a.example/a%00b.png', undefined, undefined, 'a_b.png'],
  ['https://a.example/%E0%A4%A', undefined, undefined, 'E0_A4_A'],
  ['https://a.example/x', 'attachment; filename="..."', undefined, 'x'],
])('%s, %j, %j: %s', (url, contentDisposition, contentType, expected) => {
  expect(chooseFileName({ url: new URL(url), contentDisposition, contentType })).toBe(expected);
});

it('has at most 100 characters, and keeps the extension', () => {
  const name = `${'a'.repeat(300)}.safetensors`;
  const contentDisposition = `attachment; filename="${name}"`;
  const url = new URL('https://a.example/');
  const chosen = chooseFileName({ url, contentDisposition, contentType: undefined });
  expect(chosen).toHaveLength(100);
  expect(chosen.endsWith('a.safetensors')).toBe(true);
});
