// Reports changed modules in folders and their subfolders. It compares file states after each
// event, because the events of operating systems and editors differ.
import { type FSWatcher, readdirSync, statSync, watch } from 'node:fs';
import { extname, join } from 'node:path';
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

export interface FolderWatchOptions {
  folders: readonly string[];
  clock: Clock;
  /** Called with the absolute paths of modules that were changed, added or removed. */
  onChange: (paths: ReadonlySet<string>) => void;
  /** Called if the operating system refuses to watch a folder: changes there go unnoticed. */
  onTrouble: (folder: string, error: unknown) => void;
}

interface Snapshot {
  folders: Set<string>;
  /** State of each file by path: it differs for each version of the file. */
  files: Map<string, string>;
}

export class FolderWatch {
  readonly #options: FolderWatchOptions;
  readonly #watchers = new Map<string, FSWatcher>();
  #files: Snapshot['files'];
  #cancel: () => void = () => {};
  #isClosed = false;

  constructor(options: FolderWatchOptions) {
    this.#options = options;
    this.#files = this.#readSnapshot();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  #schedule(): void {
    if (this.#isClosed) return;
    this.#cancel();
    this.#cancel = this.#options.clock.after(SETTLE_MS, () => this.#compare());
  }

  #compare(): void {
    const before = this.#files;
    const after = this.#readSnapshot();
    this.#files = after;
    const paths = [...before.keys(), ...after.keys()];
    const changed = new Set(paths.filter((path) => before.get(path) !== after.get(path)));
    if (changed.size > 0) this.#options.onChange(changed);
  }

  #readSnapshot(): Snapshot['files'] {
    const found: Snapshot = { folders: new Set(), files: new Map() };
    for (const folder of this.#options.folders) collect(folder, found);
    for (const [folder, watcher] of this.#watchers) {
      if (found.folders.has(folder)) continue;
      watcher.close();
      this.#watchers.delete(folder);
    }
    for (const folder of found.folders) if (!this.#watchers.has(folder)) this.#watch(folder);
    return found.files;
  }

  #watch(folder: string): void {
    try {
      const watcher = watch(folder, { persistent: false }, () => this.#schedule());
      watcher.on('error', () => this.#schedule());
      this.#watchers.set(folder, watcher);
      // Catches changes that were made before the watch began.
      this.#schedule();
    } catch (error) {
      this.#options.onTrouble(folder, error);
    }
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
  found.folders.add(folder);
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
