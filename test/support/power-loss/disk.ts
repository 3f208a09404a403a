// A folder whose disk can lose power. Processes that run with `environment` change it as any other; `cut` then makes it
// what a disk may hold after a power cut: each change that no fsync put there may be missing.
import {
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { createRandom } from '../random.ts';
import { type Change, measureLog, readLog, resetLog } from './disk-log.ts';
import { FileContent } from './file-content.ts';

interface File {
  inode: bigint;
  content: FileContent;
  /** Undefined: it is not a folder. */
  entries: Entries | undefined;
  /** Names in folders, as processes see them. */
  links: number;
  isChanged: boolean;
}

interface Entries {
  /** What processes see. */
  seen: Map<string, File>;
  /** What is on disk. */
  stored: Map<string, File>;
}

/** A change of names that is not on disk. */
interface NameChange {
  folders: readonly File[];
  apply: () => void;
}

export interface CutOptions {
  seed: number;
  /** Length of the log at the cut. Default: all of it. */
  at?: number;
  /** As if no fsync had done anything: a platform must lose data then, or the test sees nothing. */
  ignoreSync?: boolean;
}

export interface Lost {
  /** Files with changes that no fsync had put on disk. */
  files: number;
  /** Changes of names that no fsync of a folder had put on disk. */
  names: number;
}

export class PowerLossDisk {
  readonly folder: string;
  readonly #library: string;
  readonly #log: string;
  #start: DiskState;
  /** The log, once it is complete. */
  #changes: Buffer | undefined;

  /** `library`: the compiled power-loss.c. `log`: path of a file elsewhere. No process may use the folder. */
  constructor({ folder, library, log }: { folder: string; library: string; log: string }) {
    this.folder = folder;
    this.#library = library;
    this.#log = log;
    this.#start = DiskState.read(folder);
    resetLog(log);
  }

  /** For the processes that use the folder. `fail`: see power-loss.c. */
  environment(fail?: string): Record<string, string> {
    return {
      LD_PRELOAD: this.#library,
      POWER_LOSS_DIR: this.folder,
      POWER_LOSS_LOG: this.#log,
      ...(fail !== undefined && { POWER_LOSS_FAIL: fail }),
    };
  }

  /** Of the log, for a later `replay`: what the processes have done so far is in it. */
  get length(): number {
    return measureLog(this.#log);
  }

  /** All processes that use the folder have been killed; the next ones find what the disk held. */
  cut(options: CutOptions): Lost {
    const state = this.#start;
    const lost = this.#play(state, options);
    state.write(this.folder);
    this.#start = DiskState.read(this.folder);
    this.#changes = undefined;
    resetLog(this.#log);
    return lost;
  }

  /** Like `cut`, but replaces the content of another folder, and the log stays: the next replay may cut elsewhere. */
  replay(folder: string, options: CutOptions): Lost {
    mkdirSync(folder, { recursive: true });
    for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
    const state = this.#start.copy();
    const lost = this.#play(state, options);
    state.write(folder);
    return lost;
  }

  #play(state: DiskState, { at, ignoreSync = false, seed }: CutOptions): Lost {
    this.#changes ??= readFileSync(this.#log);
    for (const change of readLog(this.#changes, at ?? this.length)) {
      if (!(ignoreSync && change.kind === 'sync')) state.note(change);
    }
    return state.cut(createRandom(seed));
  }
}

/** The folder as processes see it, and what of it is on disk. */
class DiskState {
  readonly #root: File;
  readonly #files: Map<bigint, File>;
  #pending: NameChange[] = [];

  private constructor(root: File, files: Map<bigint, File>) {
    this.#root = root;
    this.#files = files;
  }

  /** Reads a folder, which is on disk as it is. */
  static read(folder: string): DiskState {
    const files = new Map<bigint, File>();
    const read = (path: string): File => {
      const about = statSync(path, { bigint: true });
      const known = files.get(about.ino);
      if (known) return known;
      const isFolder = about.isDirectory();
      const content = new FileContent(isFolder ? undefined : readFileSync(path));
      const file = createFile(about.ino, isFolder, content);
      files.set(about.ino, file);
      for (const name of isFolder ? readdirSync(path) : [])
        addEntry(file, name, read(join(path, name)));
      return file;
    };
    return new DiskState(read(folder), files);
  }

  /** Of a folder without changes. */
  copy(): DiskState {
    const files = new Map<bigint, File>();
    const copy = (file: File): File => {
      const known = files.get(file.inode);
      if (known) return known;
      const made = createFile(file.inode, file.entries !== undefined, file.content.copy());
      files.set(file.inode, made);
      for (const [name, entry] of file.entries?.stored ?? []) addEntry(made, name, copy(entry));
      return made;
    };
    return new DiskState(copy(this.#root), files);
  }

  /** The power fails. */
  cut(random: () => number): Lost {
    const files = [...this.#files.values()].filter(({ content }) => !content.isSynced);
    const lost = { files: files.length, names: this.#pending.length };
    const decisions = new Map<File | undefined, () => boolean>();
    for (const { apply, folders } of this.#pending.splice(0)) {
      const survives = decisions.get(folders[0]) ?? chooseSurvival(random);
      decisions.set(folders[0], survives);
      if (survives()) apply();
    }
    for (const file of files) file.content.cut(random);
    return lost;
  }

  note(change: Change): void {
    const file = this.#files.get(change.inode);
    switch (change.kind) {
      case 'create':
        this.#files.set(change.inode, createFile(change.inode, change.isFolder));
        break;
      case 'write':
      case 'resize':
        if (!file) break;
        file.isChanged = true;
        file.content.change(change);
        break;
      case 'sync':
        file?.content.sync();
        if (file?.entries) this.#syncNames(file);
        break;
      case 'failed-sync':
        // The library makes all later ones of the file fail as well.
        break;
      case 'link':
        this.#setName(change.folder, change.name, file);
        break;
      case 'unlink':
        this.#setName(change.folder, change.name, undefined);
        break;
      case 'move':
        this.#move(change, file);
    }
  }

  /** `file`: undefined if the name is removed, or if the library does not know the file. */
  #setName(inode: bigint, name: string, file: File | undefined): void {
    const folder = this.#files.get(inode);
    if (!folder?.entries) return;
    const { seen, stored } = folder.entries;
    this.#forget(seen.get(name));
    place(seen, name, file);
    if (file) file.links++;
    this.#pending.push({ folders: [folder], apply: () => place(stored, name, file) });
  }

  #move(move: Change & { kind: 'move' }, file: File | undefined): void {
    const [from, to] = [this.#files.get(move.from), this.#files.get(move.to)];
    if (!from?.entries || !to?.entries) return;
    const [old, next] = [from.entries, to.entries];
    place(old.seen, move.name, undefined);
    this.#forget(next.seen.get(move.newName));
    place(next.seen, move.newName, file);
    const apply = () => {
      if (old.stored.get(move.name) === file) old.stored.delete(move.name);
      place(next.stored, move.newName, file);
    };
    this.#pending.push({ folders: [to, from], apply });
  }

  /** A name of the file is gone. The system may give its inode to another file. */
  #forget(file: File | undefined): void {
    if (file && --file.links === 0) this.#files.delete(file.inode);
  }

  /** A change of two folders is on disk with either; with it all earlier ones of both. */
  #syncNames(folder: File): void {
    const folders = new Set([folder]);
    const synced = new Set<NameChange>();
    for (const change of this.#pending.toReversed()) {
      if (!change.folders.some((one) => folders.has(one))) continue;
      synced.add(change);
      for (const one of change.folders) folders.add(one);
    }
    for (const { apply } of synced.values().toArray().toReversed()) apply();
    this.#pending = this.#pending.filter((change) => !synced.has(change));
  }

  /** Makes a folder what is on disk. */
  write(path: string, folder = this.#root): void {
    const stored = folder.entries?.stored ?? new Map<string, File>();
    for (const name of readdirSync(path)) {
      const entry = stored.get(name);
      const isSame = statSync(join(path, name), { bigint: true }).ino === entry?.inode;
      if (!isSame) rmSync(join(path, name), { recursive: true });
    }
    const { gid, uid } = statSync(path);
    for (const [name, entry] of stored) {
      const target = join(path, name);
      const isNew = statSync(target, { throwIfNoEntry: false }) === undefined;
      if (isNew && entry.entries) mkdirSync(target, { mode: 0o700 });
      else if (!entry.entries && (isNew || entry.isChanged))
        writeFileSync(target, entry.content.bytes, { mode: 0o600 });
      if (isNew) chownSync(target, uid, gid);
      if (entry.entries) this.write(target, entry);
    }
  }
}

function createFile(inode: bigint, isFolder: boolean, content = new FileContent()): File {
  const entries = isFolder ? { seen: new Map(), stored: new Map() } : undefined;
  return { inode, content, entries, links: 0, isChanged: false };
}

function addEntry(folder: File, name: string, entry: File): void {
  entry.links++;
  folder.entries?.seen.set(name, entry);
  folder.entries?.stored.set(name, entry);
}

/** Of the changes of names in a folder: none, all, the first ones, or any. */
function chooseSurvival(random: () => number): () => boolean {
  let isOpen = true;
  const choices: (() => boolean)[] = [
    () => false,
    () => true,
    () => (isOpen &&= random() < 0.7),
    () => random() < 0.5,
  ];
  return choices[Math.floor(random() * choices.length)] ?? (() => true);
}

function place(names: Map<string, File>, name: string, file: File | undefined): void {
  if (file) names.set(name, file);
  else names.delete(name);
}
