// Packs Millrace as others install it: pack.ts FOLDER [NPM...]. Prints what `npm pack --json` prints. Packs the existing
// build. The package differs from this folder: its package.json has no scripts, and its pages have no links to files that
// stay here.
// This script imports no package, because `millrace init` runs it in a checkout.
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, posix, resolve } from 'node:path';
import { type PackedFiles, readPacked } from './package-contents.ts';

const ROOT = resolve(import.meta.dirname, '../..');
function pack(out: string, [program = 'npm', ...first]: readonly string[]): string {
  const runNpm = (args: readonly string[], cwd: string) =>
    execFileSync(program, [...first, 'pack', ...args, '--ignore-scripts', '--json'], {
      ...{ cwd, encoding: 'utf8', maxBuffer: 2 ** 28, stdio: ['ignore', 'pipe', 'pipe'] },
    });
  const stage = mkdtempSync(join(tmpdir(), 'millrace-pack-'));
  try {
    copyFiles(readPacked(runNpm(['--dry-run'], ROOT)), stage);
    const { allowScripts, overrides, scripts, workspaces, ...manifest } = JSON.parse(
      readFileSync(join(ROOT, 'package.json'), 'utf8'),
    );
    writeFileSync(join(stage, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    return runNpm(['--pack-destination', out], stage);
  } finally {
    rmSync(stage, { recursive: true });
  }
}

/** Copies the files of the package into a folder. */
function copyFiles({ files }: PackedFiles, folder: string): void {
  const paths = new Set(files.map(({ path }) => path));
  for (const path of paths) {
    const target = join(folder, path);
    mkdirSync(dirname(target), { recursive: true });
    if (path.endsWith('.md')) {
      writeFileSync(target, dropLinks(readFileSync(join(ROOT, path), 'utf8'), path, paths));
    } else copyFileSync(join(ROOT, path), target);
  }
}

/** Removes pictures and links of a page whose files are not in the package. */
export function dropLinks(text: string, page: string, packed: ReadonlySet<string>): string {
  return text.replaceAll(/(!?)\[([^\][]*)\]\(([^)#\s]+)(#[^)]*)?\)/g, (link, mark, label, path) => {
    const target = posix.join(posix.dirname(page), path);
    const isThere = /^\w+:/.test(path) || [...packed].some((each) => isIn(each, target));
    return isThere ? link : mark ? '' : label;
  });
}

function isIn(file: string, target: string): boolean {
  return file === target || file.startsWith(`${target.replace(/\/$/, '')}/`);
}

if (import.meta.main) {
  const [out = '.', ...npm] = process.argv.slice(2);
  process.stdout.write(pack(resolve(out), npm));
}
