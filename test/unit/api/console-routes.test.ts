// The files of the web console: how a browser gets them.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Platform, startPlatform } from '../../support/api/platform.ts';

const INDEX = '<!doctype html><title>Millrace</title>';
const SCRIPT = 'export const text = "one two three one two three";'.repeat(2_000);

function buildConsole(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-console-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, 'assets'));
  writeFileSync(join(folder, 'index.html'), INDEX);
  writeFileSync(join(folder, 'assets/main-x.js'), SCRIPT);
  writeFileSync(join(folder, 'assets/main-x.js.br'), brotliCompressSync(SCRIPT));
  writeFileSync(join(folder, 'assets/main-x.js.gz'), gzipSync(SCRIPT));
  return folder;
}

const start = () => startPlatform({ server: { consoleFolder: buildConsole() } });

/** As a browser does, without a key. */
function read({ url }: Platform, path: string, headers: Record<string, string> = {}) {
  return fetch(url + path, { redirect: 'manual', headers: { accept: 'text/html', ...headers } });
}

describe('the console', () => {
  it('is where a browser is sent from /, and any other client learns what is served', async () => {
    const platform = await start();
    for (const path of ['/', '/console']) {
      const response = await read(platform, path);
      expect([response.status, response.headers.get('location')]).toEqual([302, '/console/']);
    }
    const response = await read(platform, '/', { accept: '*/*' });
    expect(await response.json()).toEqual({
      ...{ name: 'millrace', version: '1.2.3', console: '/console/' },
      ...{ openapi: '/openapi.json', readiness: '/readyz' },
    });
  });

  it('sends its page for every path of a page, with the policy that keeps foreign code out', async () => {
    const platform = await start();
    for (const path of ['/console/', '/console/endpoints/echo', '/console/index.html']) {
      const response = await read(platform, path);
      expect(await response.text()).toBe(INDEX);
      expect(Object.fromEntries(response.headers)).toMatchObject({
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy':
          "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
          "media-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; " +
          "form-action 'self'",
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cross-origin-opener-policy': 'same-origin',
        'cache-control': 'no-cache',
      });
    }
  });

  it.each(['br', 'gzip', 'identity'])(
    'sends a file as %s if the client asks for it',
    async (encoding) => {
      const platform = await start();
      const path = '/console/assets/main-x.js';
      const response = await read(platform, path, { 'accept-encoding': encoding });
      expect(await response.text()).toBe(SCRIPT);
      expect(response.headers.get('content-encoding') ?? 'identity').toBe(encoding);
      expect(response.headers.get('cache-control')).toContain('immutable');
      expect(response.headers.get('vary')).toContain('accept-encoding');
      const etag = response.headers.get('etag') ?? '';
      const again = await read(platform, path, { 'if-none-match': etag });
      expect(again.status).toBe(304);
      const head = await fetch(platform.url + path, { method: 'HEAD' });
      expect([head.status, await head.text()]).toEqual([200, '']);
    },
  );

  it('has no files but its own', async () => {
    const platform = await start();
    const paths = [
      'missing.js',
      'assets/main-x.js.br',
      '..%2f..%2fpackage.json',
      '%2e%2e/server.js',
    ];
    for (const path of paths) {
      const { status } = await read(platform, `/console/${path}`);
      expect([path, status]).toEqual([path, 404]);
    }
    const posted = await fetch(`${platform.url}/console/x`, { method: 'POST' });
    expect([posted.status, posted.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });

  it('says how it is built if it is missing, and that it is off if it is', async () => {
    const missing = await startPlatform({ server: { consoleFolder: '/nonexistent' } });
    expect(await (await read(missing, '/console/')).text()).toContain('npm run build');
    const off = await startPlatform();
    expect(await (await read(off, '/console/')).text()).toContain('--no-console');
    expect(await (await read(off, '/')).json()).not.toHaveProperty('console');
  });
});
