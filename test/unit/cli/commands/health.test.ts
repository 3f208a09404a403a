// `millrace health` as a process, against a server that answers as a worker would.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';

const main = pathToFileURL(resolve(import.meta.dirname, '../../../../src/cli/main.ts')).href;
const SCRIPT = `const { main } = await import('${main}'); process.exitCode = await main(process.argv.slice(1));`;

let server: Server | undefined;

afterEach(() => {
  server?.closeAllConnections();
  server?.close();
  server = undefined;
});

async function listen(answer: RequestListener, host = '127.0.0.1'): Promise<string> {
  server = createServer(answer).listen(0, host);
  await once(server, 'listening');
  const bound = server.address();
  if (bound === null || typeof bound === 'string') throw new Error('has no port');
  return String(bound.port);
}

interface End {
  code: unknown;
  stdout: string;
  stderr: string;
}

function ask(variables: Record<string, string>, ...args: string[]): Promise<End> {
  const { MILLRACE_HEALTH_PORT: _, MILLRACE_HEALTH_HOST: __, ...inherited } = process.env;
  const command = ['--input-type=module', '--eval', SCRIPT, '--', 'health', ...args];
  return new Promise((done) => {
    execFile(
      process.execPath,
      command,
      { env: { ...inherited, ...variables } },
      (error, stdout, stderr) => done({ code: error?.code ?? 0, stdout, stderr }),
    );
  });
}

/** Alive, and not ready. */
const draining: RequestListener = ({ url }, response) => {
  response.writeHead(url === '/healthz' ? 200 : 503);
  response.end(`{"asked":"${url}"}`);
};

describe('health', () => {
  it('exits with 0 for a live worker and prints its answer', async () => {
    const port = await listen(draining);
    const end = await ask({ MILLRACE_HEALTH_PORT: port });
    expect(end).toEqual({ code: 0, stdout: '{"asked":"/healthz"}\n', stderr: '' });
  });

  it('checks readiness on request, and exits with 1 if not ready', async () => {
    const port = await listen(draining);
    const end = await ask({}, '--ready', '--health-port', port);
    expect(end).toEqual({ code: 1, stdout: '{"asked":"/readyz"}\n', stderr: '' });
  });

  it('reaches a worker that listens on every address', async () => {
    const port = await listen(draining, '0.0.0.0');
    const variables = { MILLRACE_HEALTH_PORT: port, MILLRACE_HEALTH_HOST: '0.0.0.0' };
    expect(await ask(variables)).toMatchObject({ code: 0 });
  });

  it('exits with 1 if no server listens', async () => {
    const port = await listen(draining);
    await new Promise((closed) => server?.close(closed));
    const end = await ask({ MILLRACE_HEALTH_PORT: port });
    expect(end).toMatchObject({ code: 1, stdout: '' });
    expect(end.stderr).toMatch(/millrace health: 127\.0\.0\.1 port \d+: .*ECONNREFUSED/);
  });

  it('exits with 1 without an answer in time', async () => {
    const port = await listen(() => {});
    const end = await ask({ MILLRACE_HEALTH_PORT: port }, '--timeout-ms', '50');
    expect(end.code).toBe(1);
    expect(end.stderr).toContain('no response within 50 ms');
  });

  it('exits with 1 if the answer does not end', async () => {
    const port = await listen((_, response) => {
      response.write('x'.repeat(100_000));
    });
    const end = await ask({ MILLRACE_HEALTH_PORT: port });
    expect(end.code).toBe(1);
    expect(end.stderr).toContain('the response is too long');
  });

  it('requires a port', async () => {
    const end = await ask({});
    expect(end.code).toBe(2);
    expect(end.stderr).toContain('--health-port PORT is required');
  });
});
