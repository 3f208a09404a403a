// Builds the documentation site, `npm run docs`: static files that any web server can serve, with search, and the same
// pages as Markdown for programs that read.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { makeApiReference } from './api-reference.ts';
import { makeCommandReference } from './command-reference.ts';
import { type Page, readSite, type Site } from './pages.ts';

const HELP = `Usage: npm run docs -- [options]

Build the documentation site.

Options:
  --out FOLDER   where to write it (default site)
  --base PATH    path that the site is served below, such as /v0.1.0/ for one of several versions (default /)
  --serve PORT   serve the site on this port after the build, until Ctrl+C
`;

const ROOT = resolve(import.meta.dirname, '../..');
const VITEPRESS = join(ROOT, 'node_modules/vitepress/bin/vitepress.js');
const ICON = 'console/public/icon.svg';
/** Sections whose list is closed until a reader opens it. */
const CLOSED = new Set(['Platform', 'Operations', 'Examples', 'HTTP API', 'Commands', 'Design']);

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'site' },
    base: { type: 'string', default: '/' },
    serve: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
});

if (values.help) process.stdout.write(HELP);
else await buildSite(resolve(values.out), values.base, values.serve);

async function buildSite(out: string, base: string, port: string | undefined): Promise<void> {
  // Below node_modules, because the pages import Vue.
  const work = mkdtempSync(join(ROOT, 'node_modules/.docs-'));
  try {
    const site = await makeSite();
    writePages(work, site);
    const outline = { base, ...makeOutline(site.pages) };
    writeFileSync(join(work, 'outline.json'), JSON.stringify(outline));
    runVitePress(work, ['build', import.meta.dirname, '--outDir', out]);
    writeTexts(out, site.pages);
    process.stdout.write(`${site.pages.length} pages are in ${out}\n`);
    if (port === undefined) return;
    runVitePress(work, ['preview', import.meta.dirname, '--outDir', out, '--port', port]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function makeSite(): Promise<Site> {
  const { files, pages } = readSite(ROOT);
  const openApi: unknown = JSON.parse(readFileSync(join(ROOT, 'docs/openapi.json'), 'utf8'));
  const references = [...makeApiReference(openApi), ...(await makeCommandReference())];
  return { files, pages: [...pages, ...references] };
}

function runVitePress(work: string, args: readonly string[]): void {
  execFileSync(process.execPath, [VITEPRESS, ...args], {
    stdio: 'inherit',
    env: { ...process.env, DOCS_WORK: work },
  });
}

/** Pages for VitePress. Text outside of code is no template of Vue. */
function writePages(work: string, { files, pages }: Site): void {
  for (const { path, text } of pages) {
    write(join(work, 'pages', `${path}.md`), `::: v-pre\n${text}\n:::\n`);
  }
  for (const [path, source] of [...files, ['icon.svg', ICON] as const]) {
    copy(source, join(work, 'pages/public', path));
    // Pages also show pictures, and links lead to some.
    if (/\.(png|svg)$/.test(path)) copy(source, join(work, 'pages', path));
  }
}

/** `llms.txt`, `llms-full.txt`, and a `.md` beside each page: https://llmstxt.org */
function writeTexts(out: string, pages: readonly Page[]): void {
  for (const { path, text } of pages) write(join(out, `${path}.md`), text);
  const lists = groupBySection(pages).map(([section, own]) =>
    [
      `## ${section}\n`,
      ...own.map(({ path, summary, title }) => `- [${title}](${path}.md): ${summary}`),
    ].join('\n'),
  );
  const [home] = pages;
  write(join(out, 'llms.txt'), `# Millrace\n\n> ${home?.summary}\n\n${lists.join('\n\n')}\n`);
  const whole = pages.map(({ path, text }) => `<!-- ${path}.md -->\n\n${text.trimEnd()}\n`);
  write(join(out, 'llms-full.txt'), whole.join('\n'));
}

/** What the settings of VitePress need to know. */
function makeOutline(pages: readonly Page[]) {
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));
  return {
    version: `v${version}`,
    versions: listReleases().filter((release) => release !== `v${version}`),
    sections: groupBySection(pages).map(([text, own]) => ({
      text,
      collapsed: CLOSED.has(text),
      items: own.map(({ path, title }) => ({ text: title, link: `/${path}` })),
    })),
  };
}

function groupBySection(pages: readonly Page[]): [section: string, pages: Page[]][] {
  return [...Map.groupBy(pages, ({ section }) => section)];
}

/** Tags of releases, the newest first. */
function listReleases(): string[] {
  const tags = execFileSync('git', ['tag', '--list', 'v*', '--sort=-v:refname'], { cwd: ROOT });
  return tags.toString().split('\n').filter(Boolean);
}

function copy(source: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  cpSync(join(ROOT, source), target);
}

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
