// Downloads into memory from real servers: bounds, redirects, and addresses that are refused.
import { gzipSync } from 'node:zlib';
import { NonRetryableError, RetryAfterError } from 'millrace';
import { anyAddress, publicOnly } from 'millrace/outgoing';
import { type DownloadOptions, downloadBytes } from 'millrace/storage';
import { describe, expect, it } from 'vitest';
import { startServer } from '../../support/handler-context.ts';

type TestOptions = DownloadOptions & { signal?: AbortSignal };

function download(url: string, options: TestOptions): Promise<Buffer> {
  const { signal = new AbortController().signal, ...rest } = options;
  return downloadBytes(url, { signal }, rest);
}

function makeOptions(options: TestOptions = {}): TestOptions {
  return {
    name: 'input.url',
    maxBytes: 1_000,
    timeoutMs: 10_000,
    maxRedirects: 2,
    rule: anyAddress,
    ...options,
  };
}

async function fail(url: string, options: TestOptions = {}): Promise<Error> {
  try {
    await download(url, makeOptions(options));
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('did not fail');
}

describe('downloadBytes', () => {
  it('returns the bytes', async () => {
    await using server = await startServer((_, response) => response.end('bytes'));

    expect(String(await download(server.url, makeOptions()))).toBe('bytes');
  });

  it('follows redirects, also relative ones', async () => {
    await using server = await startServer((request, response) => {
      if (request.url === '/end') response.end('there');
      else response.writeHead(302, { location: '/end' }).end('moved');
    });

    expect(String(await download(`${server.url}/start`, makeOptions()))).toBe('there');
  });

  it('follows a bounded number of redirects', async () => {
    let requests = 0;
    await using server = await startServer((_, response) => {
      requests += 1;
      response.writeHead(302, { location: '/again' }).end();
    });

    const error = await fail(server.url);

    expect(error).toBeInstanceOf(NonRetryableError);

    expect(requests).toBe(3);
  });

  it.each([
    'http://127.0.0.1:PORT/',
    'http://localhost:PORT/',
    'http://127.1:PORT/',
    'http://2130706433:PORT/',
    'http://0x7f000001:PORT/',
    'http://0.0.0.0:PORT/',
    'http://[::1]:PORT/',
    'http://[::ffff:127.0.0.1]:PORT/',
    'https://127.0.0.1:PORT/',
  ])('refuses %s before it connects', async (url) => {
    let connections = 0;
    await using server = await startServer(() => {});
    server.onConnection(() => {
      connections += 1;
    });

    const error = await fail(url.replace('PORT', String(server.port)), { rule: publicOnly });

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(connections).toBe(0);
  });

  it('refuses a name that leads to a private address, and resolves it only once', async () => {
    let questions = 0;
    await using server = await startServer((_, response) => response.end('secret'));

    const error = await fail(`http://rebind.example:${server.port}/`, {
      rule: publicOnly,
      resolve: (_, __, callback) => {
        questions += 1;
        callback(null, [{ address: questions === 1 ? '127.0.0.1' : '8.8.8.8', family: 4 }]);
      },
    });

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toMatch(/rebind\.example.*127\.0\.0\.1.*loopback/);
    expect(questions).toBe(1);
  });

  it('connects to the checked address, even if the name then resolves to another', async () => {
    const answers = ['127.0.0.1', '127.0.0.2'];
    await using server = await startServer((_, response) => response.end('judged'));

    const bytes = await download(
      `http://rebind.example:${server.port}/`,
      makeOptions({
        rule: (address) => (address === '127.0.0.1' ? undefined : 'not the judged one'),
        resolve: (_, __, callback) => {
          callback(null, [{ address: answers.shift() ?? '127.0.0.2', family: 4 }]);
        },
      }),
    );

    expect(String(bytes)).toBe('judged');
  });

  it('refuses a name if one of its addresses is private', async () => {
    const error = await fail('http://both.example/', {
      rule: publicOnly,
      resolve: (_, __, callback) => {
        callback(null, [
          { address: '8.8.8.8', family: 4 },
          { address: 'fd00::1', family: 6 },
        ]);
      },
    });

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toMatch(/fd00::1.*uniqueLocal/);
  });

  it('checks the address of a redirect too', async () => {
    await using server = await startServer((_, response) => {
      response.writeHead(307, { location: `http://127.0.0.2:${server.port}/` }).end();
    });

    const error = await fail(server.url, {
      rule: (address) => (address === '127.0.0.1' ? undefined : 'test'),
    });

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toMatch(/127\.0\.0\.2.*test/);
  });

  it.each([
    ['not a url', 'input.url: '],
    ['file:///etc/passwd', 'input.url: file: '],
    ['ftp://example.com/a', 'input.url: ftp: '],
    ['http://user:secret@example.com/', 'input.url: '],
  ])('refuses the URL %s', async (url, message) => {
    const error = await fail(url);

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain(message);
    expect(error.message).not.toContain('secret');
  });

  it('refuses a redirect to another scheme', async () => {
    await using server = await startServer((_, response) => {
      response.writeHead(302, { location: 'file:///etc/passwd' }).end();
    });

    const error = await fail(server.url);
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('file: ');
  });

  it('refuses a body whose announced length is too large', async () => {
    await using server = await startServer((_, response) => response.end('x'.repeat(1_001)));

    const error = await fail(server.url);
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('1000 bytes');
  });

  it('stops reading a body of unannounced length at the limit', async () => {
    await using server = await startServer((_, response) => {
      const timer = setInterval(() => response.write('x'.repeat(600)), 5);
      response.on('close', () => clearInterval(timer));
    });

    const error = await fail(server.url);

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('1000 bytes');
  });

  it('accepts a body of exactly the limit', async () => {
    await using server = await startServer((_, response) => response.end('x'.repeat(1_000)));

    expect(await download(server.url, makeOptions())).toHaveLength(1_000);
  });

  it('refuses a compressed body', async () => {
    await using server = await startServer((_, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('bomb'));
    });

    const error = await fail(server.url);
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('gzip');
  });

  it('may be retried after a 5xx, without the query in the message', async () => {
    await using server = await startServer((_, response) => response.writeHead(502).end('oops'));

    const error = await fail(`${server.url}/a?signature=secret`);

    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain(`${server.url}/a)`);
    expect(error.message).toMatch(/\b502$/);
    expect(error.message).not.toContain('secret');
  });

  it('is not retried after a 404', async () => {
    await using server = await startServer((_, response) => response.writeHead(404).end());

    expect(await fail(server.url)).toBeInstanceOf(NonRetryableError);
  });

  it('waits as long as the server asks', async () => {
    await using server = await startServer((_, response) => {
      response.writeHead(503, { 'retry-after': '7' }).end();
    });

    const error = await fail(server.url);

    expect(error).toBeInstanceOf(RetryAfterError);
    expect(error.message).toContain('503');
  });

  it('names the time limit that was exceeded', async () => {
    await using server = await startServer(() => {});

    const error = await fail(server.url, { timeoutMs: 50 });

    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('50 ms');
  });

  it('ends the connection when the job is cancelled', async () => {
    const controller = new AbortController();
    const closed = Promise.withResolvers<void>();
    await using server = await startServer((_, response) => {
      response.on('close', () => closed.resolve());
      controller.abort(new Error('cancelled by the test'));
    });

    const error = await fail(server.url, { signal: controller.signal });
    await closed.promise;

    expect(error.message).toBe('cancelled by the test');
  });

  it('may be retried if the server is unreachable', async () => {
    const server = await startServer(() => {});
    await server[Symbol.asyncDispose]();

    const error = await fail(server.url);

    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('ECONNREFUSED');
  });
});
