// Reports changed modules in folders and their subfolders. It compares file states after each
// event, because the events of operating systems and editors differ.
import { existsSync, type FSWatcher, readdirSync, readFileSync, statSync, watch } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';

/**
 * Extensions of modules that a handler can import, and of the Python programs that it runs as model
 * processes. Other files are ignored, for example those that handlers write.
 */
const MODULE_EXTENSIONS = new Set([
  '.ts',
  '.mts',
  '.cts',
  '.js',
  '.mjs',
  '.cjs',
  '.json',
  '.wasm',
  '.node',
  '.py',
]);

/** Quiet time after which a save counts as complete, ms: one save causes several events. */
const SETTLE_MS = 100;
/** A file that keeps changing is compared after this time, ms. */
const MAX_SETTLE_MS = 1_000;

/** An import in a module's text; its specifier ends with the name of a file. */
const IMPORT = /\b(?:from|import|require)\s*\(?\s*['"]([^'"\n]+)['"]/g;
const MAX_MODULE_BYTES = 1_048_576;

interface FolderWatchOptions {
  folders: readonly string[];
  clock: Clock;
  /** Called with the absolute paths of modules that were changed, added or removed. */
  onChange: (paths: ReadonlySet<string>) => void;
  /** Called if the operating system refuses to watch a folder: changes there go unnoticed. */
  onTrouble: (folder: string, error: unknown) => void;
}

interface Snapshot {
  /** Identity of each folder by path: it differs for a folder that was made again. */
  folders: Map<string, string>;
  /** State of each file by path: it differs for each version of the file. */
  files: Map<string, string>;
}

interface Watched {
  watcher: FSWatcher;
  identity: string;
}

export class FolderWatch {
  readonly #options: FolderWatchOptions;
  readonly #watched = new Map<string, Watched>();
  #files: Snapshot['files'];
  #cancel: () => void = () => {};
  /** Time of the oldest change that is not yet compared, Unix ms. */
  #changedAt: number | undefined;
  #isClosed = false;

  constructor(options: FolderWatchOptions) {
    this.#options = options;
    this.#files = this.#readSnapshot();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
    for (const { watcher } of this.#watched.values()) watcher.close();
    this.#watched.clear();
  }

  #schedule(): void {
    if (this.#isClosed) return;
    this.#cancel();
    const { clock } = this.#options;
    this.#changedAt ??= clock.now();
    const left = this.#changedAt + MAX_SETTLE_MS - clock.now();
    this.#cancel = clock.after(Math.max(0, Math.min(SETTLE_MS, left)), () => this.#compare());
  }

  #compare(): void {
    this.#changedAt = undefined;
    const before = this.#files;
    const after = this.#readSnapshot();
    this.#files = after;
    const paths = [...before.keys(), ...after.keys()];
    const changed = new Set(paths.filter((path) => before.get(path) !== after.get(path)));
    // Handlers write JSON files too.
    const isJson = (path: string) => extname(path) === '.json';
    const imported = [...changed].some(isJson) ? listImported(paths) : undefined;
    for (const path of changed) {
      if (isJson(path) && !imported?.has(basename(path))) changed.delete(path);
    }
    if (changed.size > 0) this.#options.onChange(changed);
  }

  #readSnapshot(): Snapshot['files'] {
    const found: Snapshot = { folders: new Map(), files: new Map() };
    for (const folder of this.#options.folders) collect(folder, found);
    const parents = this.#options.folders.flatMap((folder) => listParents(folder));
    for (const [folder, { identity, watcher }] of this.#watched) {
      const current = found.folders.get(folder) ?? (parents.includes(folder) && identify(folder));
      if (current === identity) continue;
      watcher.close();
      this.#watched.delete(folder);
    }
    for (const [folder, identity] of found.folders) this.#watch(folder, identity);
    for (const folder of parents) {
      const identity = identify(folder);
      if (identity !== undefined) this.#watch(folder, identity, parents);
    }
    return found.files;
  }

  /** `parents`: the folder is one of them, and only what happens to the watched folders counts. */
  #watch(folder: string, identity: string, parents?: readonly string[]): void {
    if (this.#watched.has(folder)) return;
    const names =
      parents && [folder, ...parents, ...this.#options.folders].map((path) => basename(path));
    try {
      const watcher = watch(folder, { persistent: false }, (_, name) => {
        if (!names || name === null || names.includes(name)) this.#schedule();
      });
      watcher.on('error', () => this.#schedule());
      this.#watched.set(folder, { watcher, identity });
      // Catches changes that were made before the watch began.
      this.#schedule();
    } catch (error) {
      if (!parents) this.#options.onTrouble(folder, error);
    }
  }
}

/** The folders through which a watched one can be replaced: up to one that exists, and to the working folder. */
function listParents(folder: string): string[] {
  const parent = dirname(folder);
  if (parent === folder) return [];
  const isLast = existsSync(parent) && !dirname(parent).startsWith(process.cwd());
  return [parent, ...(isLast ? [] : listParents(parent))];
}

/** Returns undefined if the folder does not exist. An inode number alone is no identity, because it may be reused. */
function identify(folder: string): string | undefined {
  const stats = statSync(folder, { bigint: true, throwIfNoEntry: false });
  return stats?.isDirectory() ? `${stats.ino} ${stats.birthtimeNs}` : undefined;
}

/** Names of the files that the modules import. */
function listImported(paths: readonly string[]): Set<string> {
  const texts = [...new Set(paths)].filter((path) => /\.[cm]?[jt]s$/.test(path)).map(readModule);
  const specifiers = texts.flatMap((text) =>
    [...text.matchAll(IMPORT)].map(([, name = '']) => name),
  );
  return new Set(specifiers.map((specifier) => basename(specifier)));
}

function readModule(path: string): string {
  try {
    return statSync(path).size > MAX_MODULE_BYTES ? '' : readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function collect(folder: string, found: Snapshot): void {
  if (found.folders.has(folder)) return;
  let entries: ReturnType<typeof readEntries>;
  try {
    entries = readEntries(folder);
  } catch {
    return; // Removed since it was listed.
  }
  // A virtual environment of Python, which has thousands of files.
  if (entries.some(({ name }) => name === 'pyvenv.cfg')) return;
  const identity = identify(folder);
  if (identity === undefined) return;
  found.folders.set(folder, identity);
  for (const entry of entries) {
    if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) collect(path, found);
    else if (MODULE_EXTENSIONS.has(extname(entry.name))) addFile(path, found);
  }
}

function readEntries(folder: string) {
  return readdirSync(folder, { withFileTypes: true });
}

function addFile(path: string, { files }: Snapshot): void {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (stats?.isFile()) files.set(path, `${stats.mtimeNs} ${stats.size} ${stats.ino}`);
}
