// Links, anchors and file names in the docs, and names of docs in the sources: each exists.
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const PAGES = globSync(
  ['*.md', 'docs/**/*.md', 'examples/{README,*/README}.md', 'clients/*/*.md', 'bench/*.md'],
  { cwd: ROOT },
);
const SOURCES = globSync('{src,test,bench,bin,scripts,handlers,examples}/**/*.{ts,js,proto}', {
  cwd: ROOT,
  exclude: ['**/node_modules'],
});

/** Pages that describe the sources. */
const SOURCE_PAGES = [
  'ARCHITECTURE.md',
  'CONTRIBUTING.md',
  ...globSync('docs/decisions/*.md', { cwd: ROOT }),
];
const FILES = globSync(
  '{src,test,bench,bin,scripts,console,handlers,examples}/**/*.{c,js,proto,py,ts,tsx}',
  {
    cwd: ROOT,
    exclude: ['**/node_modules'],
  },
);

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

function stripBlocks(markdown: string): string {
  return markdown.replaceAll(/^```.*?^```/gms, '');
}

/** As GitHub makes anchors of titles. */
function toAnchor(title: string): string {
  const text = title.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').replaceAll(/[`*]/g, '');
  return text
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-');
}

function listAnchors(page: string): string[] {
  const titles = stripBlocks(read(page)).matchAll(/^#+ (.*)$/gm);
  return [...titles].map(([, title = '']) => toAnchor(title));
}

/** Whether the file exists, and the anchor in it if it is a page. */
function exists(path: string, anchor = ''): boolean {
  if (!existsSync(join(ROOT, path))) return false;
  if (anchor === '' || !path.endsWith('.md')) return true;
  return listAnchors(path).includes(anchor);
}

function listBrokenLinks(page: string): string[] {
  const links = stripBlocks(read(page)).matchAll(/\]\(([^)\s]+)\)/g);
  return [...links]
    .map(([, target = '']) => target)
    .filter((target) => !/^(https?|mailto):/.test(target))
    .filter((target) => {
      const [path = '', anchor] = target.split('#');
      return !exists(path === '' ? page : join(dirname(page), path), anchor);
    });
}

/** Paths in backticks; one that ends in `/` must be a folder. */
function listMissingFiles(page: string): string[] {
  const named = read(page).matchAll(/`((?:src|test|bench|scripts|docs|bin)\/[\w./-]+)`/g);
  return [...named]
    .map(([, path = '']) => path)
    .filter((path) => !path.endsWith('/results') && !isThere(path));
}

/** Names of files in backticks, also without their folder, that no file of the repository has. */
function listMissingNames(page: string): string[] {
  const named = read(page).matchAll(/`((?!dist\/)[\w./-]*\w\.(?:c|js|proto|py|ts|tsx))`/g);
  return [...named]
    .map(([, name = '']) => name)
    .filter((name) => !FILES.some((file) => `/${file}`.endsWith(`/${name}`)));
}

function isThere(path: string): boolean {
  if (!existsSync(join(ROOT, path))) return false;
  return !path.endsWith('/') || statSync(join(ROOT, path)).isDirectory();
}

describe.each(PAGES)('%s', (page) => {
  it('links only to pages, anchors and files that exist', () => {
    expect(listBrokenLinks(page)).toEqual([]);
  });

  it('names only files and folders that exist', () => {
    expect(listMissingFiles(page)).toEqual([]);
  });
});

it.each(SOURCE_PAGES)('names only files of the repository in %s', (page) => {
  expect(listMissingNames(page)).toEqual([]);
});

it('names only pages and anchors that exist in the sources', () => {
  const broken = SOURCES.flatMap((source) =>
    [...read(source).matchAll(/\b(docs\/[\w/-]+\.md)(?:#([\w-]+))?/g)]
      .filter(([, path = '', anchor]) => !exists(path, anchor))
      .map(([text]) => `${source}: ${text}`),
  );
  expect(broken).toEqual([]);
});
