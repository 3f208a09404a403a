// Versions on the worker's side: a real HTTP server in place of the platform, real npm, no registry.

import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, realpath, rm, utimes } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { provideVersion } from '../../../../src/cli/worker/handler-version.ts';
import { parseWorkerFlags } from '../../../../src/cli/worker/worker-flags.ts';
import { Authority } from '../../../support/certificates.ts';
import { type ProjectTexts, packProject } from '../../../support/version-project.ts';

let cache: string;

beforeEach(async () => {
  cache = await mkdtemp(join(tmpdir(), 'millrace-versions-'));
  onTestFinished(() => rm(cache, { recursive: true, force: true }));
});

type Handle = (request: IncomingMessage, response: ServerResponse) => void;

async function serve(handle: Handle): Promise<string> {
  const server = createServer(handle).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/prefix`;
}

async function serveProject(files: ProjectTexts, sent: { sha256?: string } = {}) {
  const packed = await packProject(files);
  const asked: string[] = [];
  const answers: number[] = [];
  const url = await serve(({ headers, url: path }, response) => {
    asked.push(`${path} ${headers.authorization}`);
    response.setHeader('millrace-entry', 'handler.ts');
    response.setHeader('millrace-sha256', sent.sha256 ?? packed.sha256);
    const isKept = headers['if-none-match']?.includes(packed.sha256);
    answers.push(isKept ? 304 : 200);
    if (isKept) response.writeHead(304).end();
    else response.end(packed.bytes);
  });
  return { url, asked, answers, folder: `ep_1-1-${packed.sha256.slice(0, 16)}` };
}

function provide(url: string, version = 1, ...more: string[]): Promise<string> {
  const { values } = parseWorkerFlags([
    ...['--url', url, '--endpoint', 'ep_1', '--key', 'mr_key', '--version-cache', cache],
    ...['--handler-version', String(version), '--log-level', 'fatal', ...more],
  ]);
  return provideVersion({ ...values, handlerVersion: version });
}

const PLAIN: ProjectTexts = { 'handler.ts': 'export default () => 1;' };

describe('a version on a worker', () => {
  it('is the one of this platform if its endpoint is given by name', async () => {
    const one = await serveProject(PLAIN);
    const other = await serveProject({ 'handler.ts': 'export default () => 2;' });
    const read = async ({ url }: { url: string }) =>
      readFile(await provide(url, 1, '--endpoint', 'new-chat'), 'utf8');
    expect(await read(one)).toContain('=> 1');
    expect(await read(other)).toContain('=> 2');
    expect(await read(one)).toContain('=> 1');
    expect(await readdir(cache)).toHaveLength(2);
  });

  it('is not read from a temporary folder to which other users can write', async () => {
    vi.stubEnv('TMPDIR', cache);
    onTestFinished(() => void vi.unstubAllEnvs());
    const { asked, folder, url } = await serveProject(PLAIN);
    const flags = ['--url', url, '--endpoint', 'ep_1', '--key', 'mr_key', '--handler-version', '1'];
    const { values } = parseWorkerFlags([...flags, '--log-level', 'fatal']);
    const start = () => provideVersion({ ...values, handlerVersion: 1 });
    const shared = join(cache, `millrace-versions-${process.getuid?.()}`);
    await mkdir(shared);
    await chmod(shared, 0o777);
    await expect(start()).rejects.toThrow('other users can write to it');
    expect(asked).toEqual([]);
    await chmod(shared, 0o700);
    expect(await start()).toBe(join(shared, folder, 'files/handler.ts'));
  });

  it('is downloaded once with the key of the worker, and kept for later processes', async () => {
    const { answers, asked, folder, url } = await serveProject(PLAIN);
    const path = await provide(url);
    expect(path).toBe(join(cache, folder, 'files/handler.ts'));
    expect(await readFile(path, 'utf8')).toBe(PLAIN['handler.ts']);
    expect(await provide(url)).toBe(path);
    expect(asked[0]).toBe('/prefix/v1/endpoints/ep_1/versions/1/handler Bearer mr_key');
    expect(answers).toEqual([200, 304]);
  });

  it('is never another archive of the same number, as after a restore from a backup', async () => {
    const before = await serveProject({ 'handler.ts': 'export default () => "before";' });
    const after = await serveProject({ 'handler.ts': 'export default () => "restored";' });
    expect(await readFile(await provide(before.url), 'utf8')).toContain('before');
    expect(await readFile(await provide(after.url), 'utf8')).toContain('restored');
    expect(await readFile(await provide(before.url), 'utf8')).toContain('before');
    expect([before.answers, after.answers]).toEqual([[200, 304], [200]]);
  });

  it('finds the millrace of the worker', async () => {
    const { folder, url } = await serveProject(PLAIN);
    await provide(url);
    const linked = await realpath(join(cache, folder, 'node_modules/millrace'));
    expect(linked).toBe(await realpath(join(import.meta.dirname, '../../../..')));
  });

  it('may be provided by several processes at once', async () => {
    const { folder, url } = await serveProject(PLAIN);
    const paths = await Promise.all([1, 2, 3].map(() => provide(url)));
    expect(new Set(paths).size).toBe(1);
    expect(await readdir(cache)).toEqual([folder]);
  });

  it('is asked for again until the platform answers', async () => {
    const packed = await packProject(PLAIN);
    let calls = 0;
    const url = await serve((request, response) => {
      calls += 1;
      if (calls === 1) request.socket.destroy();
      else if (calls === 2) response.writeHead(503).end();
      else if (calls === 3) {
        response.writeHead(200, { 'content-length': packed.bytes.length });
        response.write(packed.bytes.subarray(0, 9), () => request.socket.destroy());
      } else {
        response.setHeader('millrace-entry', 'handler.ts');
        response.setHeader('millrace-sha256', packed.sha256);
        response.end(packed.bytes);
      }
    });
    expect(existsSync(await provide(url))).toBe(true);
    expect(calls).toBe(4);
  });

  it('is refused if its hash is another one, and leaves nothing', async () => {
    const { url } = await serveProject(PLAIN, { sha256: '0'.repeat(64) });
    await expect(provide(url)).rejects.toThrow('is damaged');
    expect(await readdir(cache)).toEqual([]);
  });

  it('ends the worker with the reason if the platform refuses it', async () => {
    const url = await serve((_request, response) => response.writeHead(404).end('no such version'));
    await expect(provide(url)).rejects.toThrow(/refuses version 1 of endpoint ep_1: 404 no such/);
  });

  it('is downloaded over HTTP by a worker over gRPC, which needs that address', async () => {
    const { folder, url } = await serveProject(PLAIN);
    for (const link of [['grpc://127.0.0.1:1'], ['http://127.0.0.1:1', '--link', 'grpc']]) {
      const [address = '', ...more] = link;
      await expect(provide(address, 1, ...more)).rejects.toThrow('over gRPC needs --http-url');
      const path = await provide(address, 1, ...more, '--http-url', url);
      expect(path).toBe(join(cache, folder, 'files/handler.ts'));
    }
    const wrong = provide('grpc://127.0.0.1:1', 1, '--http-url', 'grpc://127.0.0.1:1');
    await expect(wrong).rejects.toThrow('needs an http or https --http-url, got grpc://');
  });

  it('removes the versions that were used longest ago', async () => {
    const { folder, url } = await serveProject(PLAIN);
    const folderOf = (version: number) => folder.replace('ep_1-1-', `ep_1-${version}-`);
    for (let version = 1; version <= 6; version++) {
      await provide(url, version);
      const long = new Date(Date.now() - 1_000_000 + version * 1_000);
      await utimes(join(cache, folderOf(version), 'version.json'), long, long);
    }
    await provide(url, 2);
    await provide(url, 7);
    expect((await readdir(cache)).toSorted()).toEqual([2, 4, 5, 6, 7].map(folderOf));
  });
});

/** A package of the project itself, so that no registry is needed. */
const GREETING: ProjectTexts = {
  ...PLAIN,
  'greeting/package.json':
    '{"name":"greeting","version":"1.0.0","scripts":{"install":"echo ran > ran"}}',
};
const dependencies = { greeting: 'file:./greeting', millrace: 'file:../millrace-0.1.0.tgz' };
const installed = (path: string) => {
  const [folder = ''] = readdirSync(cache).filter((name) => name.startsWith('ep_1-1-'));
  return join(cache, folder, 'files/node_modules', path);
};

describe('the packages of a version', () => {
  it('are installed without millrace, which may be a file of the author', async () => {
    const { url } = await serveProject({
      ...GREETING,
      'package.json': JSON.stringify({ dependencies, devDependencies: { gone: 'file:./gone' } }),
    });
    await provide(url);
    expect(existsSync(installed('greeting/package.json'))).toBe(true);
    expect(existsSync(installed('millrace'))).toBe(false);
  });

  it('are those of the lock file, and install scripts do not run', async () => {
    const lock = {
      ...{ lockfileVersion: 3, requires: true },
      packages: {
        '': { dependencies },
        greeting: { version: '1.0.0', hasInstallScript: true },
        'node_modules/greeting': { resolved: 'greeting', link: true },
        'node_modules/millrace': { version: '0.1.0', resolved: 'file:../millrace-0.1.0.tgz' },
        // Only millrace needs it.
        'node_modules/zod': { version: '4.0.0', resolved: 'http://127.0.0.1:9/zod-4.0.0.tgz' },
      },
    };
    const { url } = await serveProject({
      ...GREETING,
      'package.json': JSON.stringify({ dependencies }),
      'package-lock.json': JSON.stringify(lock),
    });
    await provide(url);
    expect(existsSync(installed('greeting/package.json'))).toBe(true);
    expect(existsSync(installed('greeting/ran'))).toBe(false);
    expect(existsSync(installed('zod'))).toBe(false);
  });

  it('run their install scripts with --install-scripts', async () => {
    const { url } = await serveProject({
      ...GREETING,
      'package.json': JSON.stringify({ dependencies }),
    });
    await provide(url, 1, '--install-scripts');
    expect(existsSync(installed('greeting/ran'))).toBe(true);
  });

  it('are not installed longer than the time limit, nor by a process that npm has started', async () => {
    const noted = join(cache, 'pid');
    const install = `sleep 600 & echo $! > ${noted}; wait`;
    const { url } = await serveProject({
      ...PLAIN,
      'greeting/package.json': JSON.stringify({
        ...{ name: 'greeting', version: '1.0.0', scripts: { install } },
      }),
      'package.json': JSON.stringify({ dependencies }),
    });
    const provided = provide(url, 1, '--install-scripts', '--install-timeout', '5');
    await expect(provided).rejects.toThrow(/took longer than 5 s \(--install-timeout\)/);
    const pid = Number(await readFile(noted, 'utf8'));
    await vi.waitUntil(() => !isAlive(pid), { timeout: 60_000 });
  });

  it('are not installed if there are none but millrace', async () => {
    const { url } = await serveProject({
      ...PLAIN,
      'package.json': JSON.stringify({ dependencies: { millrace: '*' } }),
    });
    await provide(url);
    expect(existsSync(installed(''))).toBe(false);
  });

  it('are refused from a registry with a foreign certificate, with the variable to set', async () => {
    const authority = new Authority();
    onTestFinished(() => authority.remove());
    const server = createTlsServer(authority.sign('localhost')).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const { url } = await serveProject({
      ...PLAIN,
      '.npmrc': `registry=https://localhost:${port}\nfetch-retries=0\n`,
      'package.json': JSON.stringify({ dependencies: { shared: '1.0.0' } }),
    });
    await expect(provide(url)).rejects.toThrow(/certificate.*; .*NODE_EXTRA_CA_CERTS/);
  });

  it('are an error that says what to do if they cannot be installed, or are too large', async () => {
    const broken = await serveProject({
      ...PLAIN,
      'package.json': JSON.stringify({ dependencies: { gone: 'file:./gone.tgz' } }),
    });
    await expect(provide(broken.url)).rejects.toThrow(/npm install of the version failed.*gone/);
    const registry = await serve((_, response) => void response.writeHead(404).end('{}'));
    const foreign = await serveProject({
      ...PLAIN,
      '.npmrc': `registry=${registry}\nfetch-retries=0\n`,
      'package.json': JSON.stringify({ dependencies: { '@mono/shared': '1.0.0' } }),
    });
    await expect(provide(foreign.url)).rejects.toThrow(
      'Could not install @mono/shared@1.0.0: not in the registry',
    );
    const large = await serveProject({
      ...GREETING,
      'greeting/data': 'x'.repeat(1_100_000),
      'package.json': JSON.stringify({ dependencies }),
    });
    const limited = provide(large.url, 2, '--install-limit', '1');
    await expect(limited).rejects.toThrow(/has 2 MB with its packages, more than 1 MB/);
    expect((await readdir(cache)).filter((name) => name.startsWith('ep_1-2'))).toEqual([]);
  });
});

/** A killed process that nobody has waited for yet counts as dead. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
