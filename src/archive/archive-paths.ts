// Decides which paths an archive may contain: relative, inside the folder, printable, and each once.
import type { ArchiveLimits } from '../wire/archive-limits.ts';

/** The limit of most file systems. */
const MAX_NAME_BYTES = 255;

/** Characters of a path in a message. */
const MAX_QUOTED = 512;

/** C0 and C1 control characters, DEL, and the replacement of bytes that are not UTF-8. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it refuses
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\ufffd]/;

/** Says why an archive cannot contain the path of a file or folder; undefined if it can. */
export function findPathProblem(path: string, limits: ArchiveLimits): string | undefined {
  if (path === '') return 'is empty';
  if (UNPRINTABLE.test(path)) return 'contains a control character or is not UTF-8';
  if (!path.isWellFormed()) return 'is not UTF-8';
  if (path.includes('\\')) return 'contains a backslash';
  if (path.startsWith('/') || /^[A-Za-z]:/.test(path)) return 'is absolute; use a relative path';
  const names = path.split('/');
  if (names.includes('..')) return 'leaves the folder';
  if (names.includes('') || names.includes('.')) return 'has an empty part or "."';
  if (names.length > limits.pathDepth) return `has more than ${limits.pathDepth} parts`;
  if (Buffer.byteLength(path) > limits.pathBytes) return `is longer than ${limits.pathBytes} bytes`;
  if (names.some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES)) {
    return `has a name longer than ${MAX_NAME_BYTES} bytes`;
  }
  return undefined;
}

/** Quotes the path, cut and escaped, for a message. */
export function quotePath(path: string): string {
  return JSON.stringify(path.length > MAX_QUOTED ? `${path.slice(0, MAX_QUOTED)}…` : path);
}

/** Collects the paths of one archive: no path is a file twice, or both a file and a folder. */
export class ArchivePaths {
  readonly #files = new Set<string>();
  readonly #folders = new Set<string>();
  readonly #limits: ArchiveLimits;

  constructor(limits: ArchiveLimits) {
    this.#limits = limits;
  }

  /** @throws ArchiveError */
  addFile(path: string): void {
    this.#check(path);
    if (this.#files.has(path)) throw new ArchiveError(`${quotePath(path)} appears twice`);
    if (this.#folders.has(path)) throw fileAndFolder(path);
    this.#addParents(path);
    this.#files.add(path);
    if (this.#files.size > this.#limits.files) throw tooManyFiles(this.#limits);
  }

  /** @throws ArchiveError */
  addFolder(path: string): void {
    this.#check(path);
    if (this.#files.has(path)) throw fileAndFolder(path);
    this.#addParents(path);
    this.#keepFolder(path);
  }

  #check(path: string): void {
    const problem = findPathProblem(path, this.#limits);
    if (problem !== undefined) throw new ArchiveError(`The path ${quotePath(path)} ${problem}`);
  }

  #addParents(path: string): void {
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
      const folder = path.slice(0, at);
      // A known folder has known parents.
      if (this.#folders.has(folder)) return;
      if (this.#files.has(folder)) throw fileAndFolder(folder);
      this.#keepFolder(folder);
    }
  }

  #keepFolder(path: string): void {
    this.#folders.add(path);
    if (this.#folders.size > this.#limits.files) {
      throw new ArchiveError(`The archive has more than ${this.#limits.files} folders`);
    }
  }
}

function fileAndFolder(path: string): ArchiveError {
  return new ArchiveError(`${quotePath(path)} is both a file and a folder`);
}

const BYTES_PER_MB = 1_048_576;

/** The archive, or a folder to pack, breaks a rule; the message names the path, the value and the limit. */
export class ArchiveError extends Error {
  override readonly name = 'ArchiveError';
}

export function tooManyFiles(limits: ArchiveLimits): ArchiveError {
  return new ArchiveError(`The archive has more than ${limits.files} files`);
}

export function tooLargeUnpacked(limits: ArchiveLimits): ArchiveError {
  return new ArchiveError(
    `The files have more than ${formatMegabytes(limits.unpackedBytes)} together`,
  );
}

export function tooLargePacked(limits: ArchiveLimits): ArchiveError {
  return new ArchiveError(`The archive has more than ${formatMegabytes(limits.bytes)}`);
}

function formatMegabytes(bytes: number): string {
  const megabytes = bytes / BYTES_PER_MB;
  return megabytes >= 1 ? `${Math.round(megabytes)} MB` : `${bytes} bytes`;
}
