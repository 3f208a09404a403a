// What a worker's process loads, and what it leaves behind for the next one: both decide how much
// memory a worker takes before its first job. Real processes, from the sources.
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../../..');

function locate(path: string): string {
  return pathToFileURL(join(root, path)).href;
}

interface Run {
  stdout: string;
  stderr: string;
  signal: string | undefined;
}

type Environment = Record<string, string | undefined>;

function runScript(source: string, environment: Environment = {}): Promise<Run> {
  const options = { cwd: root, env: { ...process.env, ...environment } };
  return new Promise((done) => {
    execFile(
      process.execPath,
      ['--input-type=module', '--eval', source],
      options,
      (error, stdout, stderr) => done({ stdout, stderr, signal: error?.signal }),
    );
  });
}

/** The URLs of all modules that come in with `paths` and what is done then, in the order of their loading. */
async function listLoaded(paths: readonly string[], more = ''): Promise<string[]> {
  const { stdout, stderr } = await runScript(`
    import { registerHooks } from 'node:module';
    const urls = new Set();
    registerHooks({
      resolve(specifier, context, next) {
        const found = next(specifier, context);
        urls.add(found.url);
        return found;
      },
    });
    for (const url of ${JSON.stringify(paths.map(locate))}) await import(url);
    ${more}
    process.stdout.write([...urls].join('\\n'));
  `);
  expect(stderr).toBe('');
  return stdout.split('\n');
}

/** Source that opens a worker's link, and closes it again. */
function openLink(url: string): string {
  const values = { url, endpoint: 'e', key: 'k' };
  return `
    const { openLink } = await import('${locate('src/cli/worker/platform-link.ts')}');
    const { silentLog } = await import('${locate('src/base/log.ts')}');
    await (await openLink(${JSON.stringify(values)}, silentLog)).close();
  `;
}

describe('the modules of', () => {
  const heavy = /\/node_modules\/(zod|fastify|prom-client|undici)\/|^node:sqlite$/;

  it('a worker process contain none of the platform’s', async () => {
    const urls = await listLoaded(
      ['src/cli/main.ts', 'src/cli/worker/run-worker.ts'],
      openLink('http://127.0.0.1:1'),
    );
    expect(urls).toContain(locate('src/transport/http-link.ts'));
    expect(urls.filter((url) => heavy.test(url))).toEqual([]);
  });

  it('a worker process contain only the carrier that its URL names', async () => {
    const entry = ['src/cli/worker/run-worker.ts'];
    const http = await listLoaded(entry, openLink('http://127.0.0.1:1'));
    const grpc = await listLoaded(entry, openLink('grpc://127.0.0.1:1'));
    expect(http.filter((url) => /\/(@grpc|protobufjs)\//.test(url))).toEqual([]);
    expect(grpc.some((url) => url.includes('/node_modules/@grpc/grpc-js/'))).toBe(true);
    expect(grpc.filter((url) => heavy.test(url))).toEqual([]);
  });

  it('a platform contain no gRPC without a gRPC port', async () => {
    const urls = await listLoaded(['src/cli/main.ts', 'src/cli/commands/serve.ts']);
    expect(urls).toContain(locate('src/api/server.ts'));
    expect(urls.filter((url) => /\/(@grpc|protobufjs|grpc-health-check)\//.test(url))).toEqual([]);
  });

  it('a supervisor contain neither the worker’s nor the carrier’s', async () => {
    const urls = await listLoaded(['src/cli/main.ts', 'src/cli/worker/supervise.ts']);
    expect(urls).toContain(locate('src/worker/supervisor/supervisor.ts'));
    const more = /\/node_modules\/(piscina|fast-xml-parser|systeminformation)\//;
    expect(urls.filter((url) => heavy.test(url) || more.test(url))).toEqual([]);
  });

  it('a handler thread contain no npm package', async () => {
    const urls = await listLoaded(['src/worker/execution/thread-entry.ts']);
    expect(urls).toContain(locate('src/handler/attempt/invoke.ts'));
    expect(urls.filter((url) => url.includes('/node_modules/'))).toEqual([]);
    expect(urls).not.toContain('node:sqlite');
  });
});

/**
 * How many files a process leaves in the compile cache that is killed once its thread is ready. The
 * process has no cache of its own: all there is comes from the thread.
 */
async function countCached(environment: Environment): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-cache-'));
  try {
    const source = `
      import { ThreadExecutor } from '${locate('src/worker/execution/thread-executor.ts')}';
      const handlerPath = ${JSON.stringify(join(root, 'test/support/handlers/square.ts'))};
      const executor = new ThreadExecutor({ handlerPath, devices: [] });
      await executor.start();
      process.kill(process.pid, 'SIGKILL');
    `;
    const ownCache = { TMPDIR: folder, NODE_COMPILE_CACHE: join(folder, 'code') };
    const { signal, stderr } = await runScript(source, { ...ownCache, ...environment });
    expect({ signal, stderr }).toEqual({ signal: 'SIGKILL', stderr: '' });
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).length;
  } finally {
    await rm(folder, { recursive: true });
  }
}

describe('a handler', () => {
  it('is in the compile cache once it is loaded, even if the process is killed', async () => {
    expect(await countCached({})).toBeGreaterThan(0);
  });

  it('is in no cache if the environment disables it', async () => {
    expect(await countCached({ NODE_DISABLE_COMPILE_CACHE: '1' })).toBe(0);
  });

  // The default is a folder below the temporary one, where another user may have planted code.
  it('is in no cache if the process has none', async () => {
    expect(await countCached({ NODE_COMPILE_CACHE: undefined })).toBe(0);
  });
});
