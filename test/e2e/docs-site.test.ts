// `npm run docs`, looked at in a real browser: pages, search, dark mode, links, and the texts for programs.
import { execFile } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, posix, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { launchBrowser, openPage } from '../support/browser.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const BASE = '/v0/';
const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
};

let out: string;
let server: Server;
let url: string;
let browser: Browser;

// The build alone takes half a minute on a quiet machine.
beforeAll(async () => {
  out = mkdtempSync(join(tmpdir(), 'docs-site-'));
  const args = ['scripts/docs/docs.ts', '--out', out, '--base', BASE];
  await promisify(execFile)(process.execPath, args, { cwd: ROOT });
  server = createServer((request, response) => {
    const path = decodeURIComponent(request.url ?? '').replace(/\/$/, '/index.html');
    const file = join(out, path.replace(BASE, '/').split('?')[0] ?? '');
    const isThere = path.startsWith(BASE) && existsSync(file);
    response.writeHead(isThere ? 200 : 404, {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
    });
    response.end(isThere ? readFileSync(file) : '');
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const address = server.address();
  url = typeof address === 'object' ? `http://127.0.0.1:${address?.port}${BASE}` : '';
  browser = await launchBrowser();
}, 240_000);

afterAll(async () => {
  await browser.close();
  server.close();
  rmSync(out, { recursive: true, force: true });
});

async function open(path: string) {
  const { close, complaints, page } = await openPage(browser);
  onTestFinished(close);
  await page.goto(`${url}${path}`, { waitUntil: 'networkidle' });
  // Before Vue has mounted the page, it reacts to no key.
  await page.waitForFunction('document.querySelector("#app").__vue_app__ !== undefined');
  return { complaints, page };
}

function read(path: string): string {
  return readFileSync(join(out, path), 'utf8');
}

function listHtml(): string[] {
  return globSync('**/*.html', { cwd: out });
}

/** The file of a link, and its anchor; undefined for other sites. */
function findTarget(page: string, link: string): { file: string; anchor: string } | undefined {
  if (/^[a-z]+:/.test(link)) return;
  const [path = '', anchor = ''] = link.replaceAll('&amp;', '&').split('#');
  const absolute = path.startsWith('/')
    ? path.slice(BASE.length)
    : posix.join(posix.dirname(page), path);
  const file = path === '' ? page : absolute.replace(/(^|\/)$/, '$1index.html');
  return { file, anchor: decodeURIComponent(anchor) };
}

describe('the documentation site', () => {
  it('has only links to pages, files and anchors that exist', () => {
    const broken = listHtml()
      .filter((page) => page !== '404.html')
      .flatMap((page) =>
        [...read(page).matchAll(/<a [^>]*href="([^"]*)"/g)]
          .map(([, link = '']) => ({ page, link, target: findTarget(page, link) }))
          .filter(({ target }) => {
            if (!target) return false;
            if (!existsSync(join(out, target.file))) return true;
            return target.anchor !== '' && !read(target.file).includes(`id="${target.anchor}"`);
          })
          .map(({ link }) => `${page}: ${link}`),
      );
    expect(broken).toEqual([]);
  });

  it('shows pages without a complaint of the browser', async () => {
    for (const path of ['', 'flows.html', 'api/jobs.html', 'commands/jobs.html']) {
      const { complaints, page } = await open(path);
      expect(await page.locator('h1').count()).toBe(1);
      expect(complaints).toEqual([]);
    }
  });

  it('finds pages without a server', async () => {
    const { page } = await open('');
    await page.keyboard.press('Control+k');
    await page.locator('#localsearch-input').fill('resubmit failed jobs');
    const found = page.locator('.VPLocalSearchBox .result', { hasText: 'Dead letters' });
    await found.first().click();
    await page.waitForURL('**/dead-letters*');
  });

  it('follows the color scheme of the system', async () => {
    const { page } = await open('');
    const background = () =>
      page.evaluate('getComputedStyle(document.body).backgroundColor') as Promise<string>;
    const light = await background();
    await page.emulateMedia({ colorScheme: 'dark' });
    await expect.poll(background).not.toBe(light);
  });

  it('has each page as Markdown, and a list of them for programs', () => {
    const listed = [...read('llms.txt').matchAll(/^- \[[^\]]+\]\(([^)]+)\): ./gm)];
    const pages = listed.map(([, path = '']) => path);
    expect(pages.filter((path) => !existsSync(join(out, path)))).toEqual([]);
    const html = listHtml().map((path) => path.replace(/html$/, 'md'));
    expect(pages.toSorted()).toEqual(html.filter((path) => path !== '404.md').toSorted());
    expect(read('llms-full.txt')).toContain(read('flows.md'));
  });

  it('has a page for each tag of the OpenAPI document, with all of its operations', () => {
    const openApi = JSON.parse(read('openapi.json')) as { paths: Record<string, object> };
    const text = globSync('api/*.md', { cwd: out }).map(read).join('\n');
    const missing = Object.entries(openApi.paths).flatMap(([path, methods]) =>
      Object.keys(methods)
        .filter((method) => /^(get|post|put|patch|delete)$/.test(method))
        .map((method) => `${method.toUpperCase()} ${path}`)
        .filter((operation) => !text.includes(`${operation}\n`)),
    );
    expect(missing).toEqual([]);
  });
});
