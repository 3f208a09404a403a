// Lists the files of a project that belong in an archive, and packs them: all but those that an ignore file names,
// installed packages, version control, secrets, and data of a platform.

import { createHash } from 'node:crypto';
import { constants, type FileHandle, open, readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import ignore, { type Ignore } from 'ignore';
import { Header } from 'tar/header';
import { Pax } from 'tar/pax';
import { ARCHIVE_LIMITS, type ArchiveLimits } from '../wire/archive-limits.ts';
import { isPlainObject } from '../wire/json.ts';
import {
  ArchiveError,
  ArchivePaths,
  findPathProblem,
  quotePath,
  tooLargePacked,
  tooLargeUnpacked,
  tooManyFiles,
} from './archive-paths.ts';
import type { ArchivedFile } from './unpack.ts';

const OWN_IGNORE_FILE = '.millraceignore';
const GIT_IGNORE_FILE = '.gitignore';

/** No ignore file brings these back. */
const NEVER = new Set(['node_modules', '.git', '.hg', '.svn', '.DS_Store', '.millrace']);

/** The database in the data folder of a platform. */
const DATABASE = 'millrace.db';

/** What `millrace serve --key-file` writes: lines of keys and nothing else. Its name is the user's choice. */
const KEY_FILE = /^(MILLRACE_(ADMIN|WORKER)_KEY=\S+\n)+$/;
const MAX_KEY_FILE_BYTES = 1024;

const MANIFEST = 'package.json';
const OWN_PACKAGE = 'millrace';

/** Left out unless a line of .millraceignore with `!` names them. */
const SECRETS = ['.env*', '.npmrc', '.netrc', '*.pem', '*.key', '*.p12', '*.pfx', 'id_rsa*'];
const MORE_SECRETS = ['id_ecdsa*', 'id_ed25519*', '.ssh/', '.aws/', '.gnupg/'];

const MAX_IGNORE_FILE_BYTES = 1_048_576;
/** Folders above the project in which a .gitignore is looked for. */
const MAX_ANCESTORS = 32;

export interface ProjectFile {
  /** Relative, with `/`. */
  path: string;
  bytes: number;
}

/** `ignored`: by an ignore file; `secret`, `tool`: by the rules above. */
export type OmissionReason = 'ignored' | 'secret' | 'tool';

export interface Omission {
  /** A folder ends with `/`; what is in it is not listed. */
  path: string;
  reason: OmissionReason;
}

export interface ProjectFiles {
  /** Sorted by path. */
  files: ProjectFile[];
  /** Paths of the files that are probably secret, and that the ignore file names with `!`. */
  secrets: string[];
  omissions: Omission[];
  /** Name of the ignore files that count. */
  ignoreFile: string;
}

/** The rules of one ignore file, for paths below its folder. */
interface IgnoreLayer {
  /** Path of the project in the ignore file's folder, or of that folder in the project; "" or ends with "/". */
  above: string;
  below: string;
  rules: Ignore;
}

/**
 * `content` names files and folders that no .gitignore leaves out.
 * @throws ArchiveError for a link, another special file, an invalid path or too many files
 */
export async function listProjectFiles(
  folder: string,
  limits: ArchiveLimits = ARCHIVE_LIMITS,
  content: readonly string[] = [],
): Promise<ProjectFiles> {
  const own = await readRules(join(folder, OWN_IGNORE_FILE));
  const ignoreFile = own ? OWN_IGNORE_FILE : GIT_IGNORE_FILE;
  const ownPackage = await findOwnPackage(folder);
  const walk = new ProjectWalk(folder, {
    ignoreFile,
    limits,
    ownPackage,
    content: own ? [] : content,
  });
  await walk.visit('', own ? [] : await readAncestors(folder));
  const { files, omissions, secrets } = walk;
  files.sort((one, other) => (one.path < other.path ? -1 : 1));
  return { files, secrets, omissions, ignoreFile };
}

interface WalkOptions {
  limits: ArchiveLimits;
  ownPackage: string | undefined;
  content: readonly string[];
}

class ProjectWalk {
  readonly files: ProjectFile[] = [];
  readonly secrets: string[] = [];
  readonly omissions: Omission[] = [];
  readonly #folder: string;
  readonly #ignoreFile: string;
  readonly #limits: ArchiveLimits;
  /** Path of the tarball of millrace that the project installs. Workers use their own copy. */
  readonly #ownPackage: string | undefined;
  readonly #contentRules: Ignore;
  readonly #secretRules = ignore().add([...SECRETS, ...MORE_SECRETS]);

  constructor(
    folder: string,
    { content, ignoreFile, limits, ownPackage }: Pick<ProjectFiles, 'ignoreFile'> & WalkOptions,
  ) {
    this.#folder = folder;
    this.#ignoreFile = ignoreFile;
    this.#limits = limits;
    this.#ownPackage = ownPackage;
    this.#contentRules = ignore().add(content.map((path) => `/${path}`));
  }

  /** `below`: the folder in the project, "" or ending with "/". `layers`: the innermost first. */
  async visit(below: string, layers: readonly IgnoreLayer[]): Promise<void> {
    const rules = await readRules(join(this.#folder, below, this.#ignoreFile));
    const all = rules ? [{ above: '', below, rules }, ...layers] : layers;
    const entries = await readdir(join(this.#folder, below), { withFileTypes: true });
    if (below !== '' && entries.some(({ name }) => name === DATABASE)) {
      this.omissions.push({ path: below, reason: 'tool' });
      return;
    }
    for (const entry of entries) {
      const path = below + entry.name;
      const tested = entry.isDirectory() ? `${path}/` : path;
      const reason = this.#findOmission(entry.name, tested, all);
      if (reason !== undefined) this.omissions.push({ path: tested, reason });
      else if (entry.isDirectory()) await this.visit(tested, all);
      else if (entry.isFile()) await this.#addUnlessKeys(path);
      else throw new ArchiveError(explainSpecial(path, entry.isSymbolicLink()));
    }
  }

  async #addUnlessKeys(path: string): Promise<void> {
    const at = join(this.#folder, path);
    const { size: bytes } = await stat(at);
    // Everyone who may download the archive would have the keys.
    if (bytes <= MAX_KEY_FILE_BYTES && KEY_FILE.test(await readFile(at, 'utf8'))) {
      this.omissions.push({ path, reason: 'tool' });
    } else {
      this.#add(path, bytes);
    }
  }

  #add(path: string, bytes: number): void {
    const problem = findPathProblem(path, this.#limits);
    if (problem !== undefined) throw new ArchiveError(`The path ${quotePath(path)} ${problem}`);
    this.files.push({ path, bytes });
    if (this.#secretRules.ignores(path)) this.secrets.push(path);
    if (this.files.length > this.#limits.files) throw tooManyFiles(this.#limits);
  }

  #findOmission(
    name: string,
    tested: string,
    layers: readonly IgnoreLayer[],
  ): OmissionReason | undefined {
    if (NEVER.has(name) || tested === this.#ownPackage) return 'tool';
    const verdict = testLayers(tested, layers);
    const isWanted = verdict === 'wanted' && this.#ignoreFile === OWN_IGNORE_FILE;
    if (!isWanted && this.#secretRules.ignores(tested)) return 'secret';
    return verdict === 'ignored' && !this.#contentRules.ignores(tested) ? 'ignored' : undefined;
  }
}

/** The innermost ignore file that names the path decides. */
function testLayers(tested: string, layers: readonly IgnoreLayer[]) {
  for (const { above, below, rules } of layers) {
    const { ignored, unignored } = rules.test(above + tested.slice(below.length));
    if (ignored) return 'ignored';
    if (unignored) return 'wanted';
  }
  return undefined;
}

function explainSpecial(path: string, isLink: boolean): string {
  const kind = isLink ? 'a symbolic link' : 'neither a file nor a folder';
  return `${quotePath(path)} is ${kind}; replace it with a file, or leave it out with a line in ${OWN_IGNORE_FILE}`;
}

/** Reads the .gitignore of each folder between the repository's and the project's, the innermost first. */
async function readAncestors(folder: string): Promise<IgnoreLayer[]> {
  const layers: IgnoreLayer[] = [];
  let at = folder;
  for (let level = 0; level < MAX_ANCESTORS; level++) {
    if (await exists(join(at, '.git'))) return layers;
    const parent = dirname(at);
    if (parent === at) break;
    at = parent;
    const rules = await readRules(join(at, GIT_IGNORE_FILE));
    const above = `${relative(at, folder).split(sep).join('/')}/`;
    // Rules that leave out the whole project say nothing about its files.
    if (rules && !rules.ignores(above)) layers.push({ above, below: '', rules });
  }
  // Without a repository, files above the project do not count.
  return [];
}

/** Undefined if the project does not depend on a tarball of millrace, or not in a form that npm would understand. */
async function findOwnPackage(folder: string): Promise<string | undefined> {
  let manifest: unknown;
  try {
    manifest = JSON.parse(await readFile(join(folder, MANIFEST), 'utf8'));
  } catch {
    return undefined;
  }
  const dependencies = isPlainObject(manifest) ? manifest['dependencies'] : undefined;
  const given = isPlainObject(dependencies) ? dependencies[OWN_PACKAGE] : undefined;
  const [, path] = typeof given === 'string' ? (/^file:(?:\.\/)?(.+\.tgz)$/.exec(given) ?? []) : [];
  return path;
}

/** Undefined if the file does not exist. */
async function readRules(path: string): Promise<Ignore | undefined> {
  let text: string;
  try {
    const { size } = await stat(path);
    if (size > MAX_IGNORE_FILE_BYTES) {
      throw new ArchiveError(
        `${path} has ${size} bytes; at most ${MAX_IGNORE_FILE_BYTES} are read`,
      );
    }
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  return ignore({ ignorecase: false }).add(text);
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

function isMissing(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ENOENT' || code === 'ENOTDIR' || code === 'EISDIR';
}

const BLOCK_BYTES = 512;
const READ_BYTES = 256 * 1024;
/** Two empty blocks end a tar file. */
const END = Buffer.alloc(2 * BLOCK_BYTES);

/** Position of the operating system in gzip's header, and the value for an unknown one. */
const GZIP_SYSTEM = { at: 9, unknown: 255 };

export interface PackedArchive {
  bytes: Buffer;
  /** Of the archive, hex. */
  sha256: string;
  /** Sorted by path. */
  files: ArchivedFile[];
  unpackedBytes: number;
}

/**
 * `paths` are files, relative to the folder, with `/`. `written` has the content of those that are not read.
 * @throws ArchiveError, and the errors of the file system
 */
export async function packFiles(
  folder: string,
  paths: readonly string[],
  limits: ArchiveLimits = ARCHIVE_LIMITS,
  written: ReadonlyMap<string, string> = new Map(),
): Promise<PackedArchive> {
  const files: ArchivedFile[] = [];
  const parts: Buffer[] = [];
  const source = { folder, paths: paths.toSorted(), limits, written };
  await pipeline(writeTar(source, files), createGzip(), (packed) => collect(packed, parts, limits));
  const bytes = Buffer.concat(parts);
  bytes[GZIP_SYSTEM.at] = GZIP_SYSTEM.unknown;
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return { bytes, sha256, files, unpackedBytes: files.reduce((sum, file) => sum + file.bytes, 0) };
}

async function collect(packed: AsyncIterable<Buffer>, parts: Buffer[], limits: ArchiveLimits) {
  let bytes = 0;
  for await (const part of packed) {
    bytes += part.length;
    if (bytes > limits.bytes) throw tooLargePacked(limits);
    parts.push(part);
  }
}

interface TarSource {
  folder: string;
  paths: readonly string[];
  limits: ArchiveLimits;
  written: ReadonlyMap<string, string>;
}

/** Yields the tar file, and appends what it has written to `files`. */
async function* writeTar(
  { folder, limits, paths, written }: TarSource,
  files: ArchivedFile[],
): AsyncGenerator<Buffer, void, undefined> {
  const seen = new ArchivePaths(limits);
  let unpackedBytes = 0;
  for (const path of paths) {
    seen.addFile(path);
    const text = written.get(path);
    await using file = text === undefined ? await openFile(folder, path) : undefined;
    const content = Buffer.from(text ?? '');
    const { mode, size } = (await file?.stat()) ?? { mode: 0o644, size: content.length };
    unpackedBytes += size;
    if (unpackedBytes > limits.unpackedBytes) throw tooLargeUnpacked(limits);
    const isExecutable = (mode & 0o111) !== 0;
    yield formatHeader(path, size, isExecutable);
    const hash = createHash('sha256');
    for await (const part of file ? readContent(file, path, size) : [content]) {
      hash.update(part);
      yield part;
    }
    yield Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
    files.push({ path, bytes: size, sha256: hash.digest('hex'), isExecutable });
  }
  yield END;
}

/** @throws ArchiveError if the path is no file */
async function openFile(folder: string, path: string): Promise<FileHandle> {
  // NOFOLLOW: the path was a file when it was listed. NONBLOCK: opening a pipe would wait for a writer.
  const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_RDONLY } = constants;
  const file = await open(join(folder, path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw new ArchiveError(`${quotePath(path)} is not a file`);
}

async function* readContent(file: FileHandle, path: string, size: number) {
  let bytes = 0;
  for await (const part of file.createReadStream({ autoClose: false, highWaterMark: READ_BYTES })) {
    bytes += part.length;
    if (bytes > size) break;
    yield part;
  }
  if (bytes !== size) throw new ArchiveError(`${quotePath(path)} changed while it was packed`);
}

function formatHeader(path: string, size: number, isExecutable: boolean): Buffer {
  const header = new Header({ path, size, mode: isExecutable ? 0o755 : 0o644, type: 'File' });
  const needsRecord = header.encode();
  const block = header.block ?? Buffer.alloc(0);
  return needsRecord ? Buffer.concat([new Pax({ path, size }).encode(), block]) : block;
}
