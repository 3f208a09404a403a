// Lists the files of a project that belong in an archive: all but those that an ignore file names,
// installed packages, version control, secrets, and data of a platform.
import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import ignore, { type Ignore } from 'ignore';
import { ARCHIVE_LIMITS, type ArchiveLimits } from '../wire/archive-limits.ts';
import { isPlainObject } from '../wire/json.ts';
import { ArchiveError, tooManyFiles } from './archive-error.ts';
import { findPathProblem, quotePath } from './archive-paths.ts';

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
