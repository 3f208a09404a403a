// The pages of the documentation site: which Markdown file becomes which page, in which section, and where its links lead.
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';

/** Sections of the side bar, in order. `*` stands for all other pages of a folder, by name. */
const SECTIONS: Readonly<Record<string, readonly string[]>> = {
  'Start here': [
    'README.md',
    'docs/guides/tutorial.md',
    'examples/tour/README.md',
    'docs/README.md',
  ],
  Handlers: [
    'docs/handlers.md',
    'docs/model-process.md',
    'docs/model-server.md',
    'docs/storage.md',
    'docs/gpus.md',
    'docs/guides/openai-server.md',
    'docs/guides/image-model.md',
  ],
  Jobs: [
    'docs/client.md',
    'clients/python/README.md',
    'docs/webhooks.md',
    'docs/retries.md',
    'docs/dead-letters.md',
    'docs/schedules.md',
    'docs/flows.md',
    'docs/limits.md',
    'docs/fair-queuing.md',
    'docs/finding-jobs.md',
    'docs/why-jobs-wait.md',
    'docs/events.md',
  ],
  Platform: ['docs/*.md'],
  Operations: ['docs/operations/README.md', 'docs/operations/*.md'],
  'Move to Millrace': ['docs/guides/*.md', 'docs/runpod.md'],
  Examples: ['examples/README.md', 'examples/*/README.md', 'handlers/README.md'],
  Reference: [
    'docs/protocol.md',
    'docs/operations/options.md',
    'docs/benchmarks.md',
    'docs/glossary.md',
    'CHANGELOG.md',
  ],
  Design: [
    'ARCHITECTURE.md',
    'CONTRIBUTING.md',
    'CODE_OF_CONDUCT.md',
    'AGENTS.md',
    'SECURITY.md',
    'docs/decisions/README.md',
    'docs/decisions/*.md',
  ],
};

export interface Page {
  section: string;
  /** Path in the repository: `docs/flows.md`. */
  source: string;
  /** Path on the site, without its extension: `flows`. */
  path: string;
  title: string;
  /** First paragraph, as plain text. */
  summary: string;
  /** Markdown whose links lead to pages and files of the site. */
  text: string;
}

export interface Site {
  pages: readonly Page[];
  /** Files that pages link to or show, by their path on the site. */
  files: ReadonlyMap<string, string>;
}

export function readSite(root: string): Site {
  const sources = listSources(root);
  const paths = new Map([...sources.keys()].map((source) => [source, toPath(source)]));
  const files = new Map<string, string>();
  const pages = [...sources].map(([source, section]): Page => {
    const written = readFileSync(join(root, source), 'utf8');
    const text = mapLinks(written, (link) => {
      const resolved = resolveLink(root, source, link);
      if (resolved === undefined) return link;
      const { anchor, target } = resolved;
      const path = paths.get(target);
      if (path !== undefined) return `${relate(source, `${path}.md`)}${anchor}`;
      const copied = fileName(target);
      files.set(copied, target);
      return relate(source, copied);
    });
    return { section, source, path: toPath(source), ...describe(text, source), text };
  });
  return { pages, files };
}

/** Each source once, with its section: named ones first, then what the globs of later sections leave. */
function listSources(root: string): Map<string, string> {
  const named = new Set(Object.values(SECTIONS).flat());
  const found = new Map<string, string>();
  for (const [section, patterns] of Object.entries(SECTIONS)) {
    for (const pattern of patterns) {
      const matches = globSync(pattern, { cwd: root }).toSorted();
      if (matches.length === 0) throw new Error(`${section}: no file is named ${pattern}`);
      for (const source of matches) {
        const isElsewhere = source !== pattern && named.has(source);
        if (!isElsewhere && !found.has(source)) found.set(source, section);
      }
    }
  }
  return found;
}

function toPath(source: string): string {
  if (source === 'README.md') return 'index';
  if (source === 'docs/README.md') return 'contents';
  const path = source.replace(/^docs\//, '').replace(/\.md$/, '');
  if (/^(examples|clients)\//.test(path) && path !== 'examples/README') return dirname(path);
  if (path.endsWith('/README')) return `${dirname(path)}/index`;
  return source.includes('/') ? path : path.toLowerCase();
}

/** Sources are text to read, whatever type a server gives their extension. */
function fileName(target: string): string {
  if (/\.(json|png|svg)$/.test(target)) return target.replace(/^docs\//, '');
  return `files/${target}.txt`;
}

interface Resolved {
  /** File of the repository. */
  target: string;
  /** With its `#`, or empty. */
  anchor: string;
}

/** Undefined for links to other sites and within the page. @throws Error if there is no such file. */
function resolveLink(root: string, source: string, link: string): Resolved | undefined {
  if (/^([a-z]+:|#)/.test(link)) return;
  const [path = '', anchor] = link.split('#');
  const named = posix.join(posix.dirname(source), path).replace(/\/$/, '');
  const target = findFile(root, named);
  if (target === undefined) throw new Error(`${source}: the link ${link} leads to no file`);
  return { target, anchor: anchor === undefined ? '' : `#${anchor}` };
}

/** A folder is its README; the tree of one without is not part of the site. */
function findFile(root: string, path: string): string | undefined {
  if (!existsSync(join(root, path))) return;
  if (!statSync(join(root, path)).isDirectory()) return path;
  const files = [`${path}/README.md`, ...globSync(`${path}/*`, { cwd: root }).toSorted()];
  return files.find((file) => existsSync(join(root, file)) && statSync(join(root, file)).isFile());
}

function relate(source: string, target: string): string {
  const from = posix.dirname(toPath(source));
  const path = posix.relative(from, target);
  return path.startsWith('.') ? path : `./${path}`;
}

/** Applies `map` to the target of each link and image outside code. */
function mapLinks(markdown: string, map: (target: string) => string): string {
  const code = /(^```[\s\S]*?^```|`[^`\n]+`)/gm;
  const pieces = markdown.split(code).map((piece, index) => {
    if (index % 2 === 1) return `\0${index}\0`;
    return piece;
  });
  const kept = markdown.split(code);
  return pieces
    .join('')
    .replaceAll(
      /(\]\()([^)\s]+)(\))/g,
      (_, open: string, target: string, close: string) => `${open}${map(target)}${close}`,
    )
    .replaceAll(/\0(\d+)\0/g, (_, index: string) => kept[Number(index)] ?? '');
}

function describe(markdown: string, source: string): Pick<Page, 'title' | 'summary'> {
  const title = /^# (.*)$/m.exec(markdown)?.[1];
  if (title === undefined) throw new Error(`${source}: the page has no title`);
  const body = markdown.slice(markdown.indexOf(title) + title.length);
  const paragraph = body.split(/\n{2,}/).find((each) => /^[A-Z*`[]/.test(each.trim())) ?? '';
  return { title: toPlainText(title), summary: toPlainText(paragraph) };
}

export function toPlainText(markdown: string): string {
  return markdown
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/[*`]/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

/** As GitHub makes anchors of titles. */
export function toAnchor(title: string): string {
  return toPlainText(title)
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-');
}
