// Decides which files an archive has besides the project's own folder: the local packages that it depends on, the files of path
// aliases, and the lock file of its workspace. All keep their places relative to each other.
import { existsSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, posix, relative, sep } from 'node:path';
import { type AliasRules, readAliasRules } from '../../base/alias-rules.ts';
import { isPlainObject } from '../../wire/json.ts';
import { CommandError } from '../command.ts';
import {
  isInside,
  type LocalPackage,
  listContent,
  nameFile,
  type Project,
  readJsonFile,
  readLocalPackage,
  toPath,
  writeManifest,
} from './project.ts';

const MANIFEST = 'package.json';
const LOCK_FILES = ['package-lock.json', 'npm-shrinkwrap.json'];

export interface ArchiveLayout {
  /** Absolute folder; paths of the archive are relative to it. */
  root: string;
  /** Path of the handler in the archive. */
  entry: string;
  /** Absolute folders, the project's first. `content`: paths that are packed even if .gitignore names them. */
  folders: { folder: string; content: string[] }[];
  /** Absolute files outside the folders. */
  files: string[];
  /** Files that the archive has with another content, by path. */
  written: ReadonlyMap<string, string>;
  /** Names of the packages outside the project, with their folders. Those of aliases are in `folders` alone. */
  packages: { name: string; folder: string }[];
}

/** @throws CommandError for a dependency that cannot be found */
export function planArchive({ entry, folder, handler }: Project): ArchiveLayout {
  const plain: ArchiveLayout = {
    root: folder,
    entry,
    folders: [{ folder, content: [] }],
    files: [],
    written: new Map(),
    packages: [],
  };
  const own = realpathSync(folder);
  const found = findParts(own, dirname(realpathSync(handler)));
  const lock = findLock(own);
  const isComplete = [...found.packages.values()].every(
    (each) => isInside(each.folder, own) && each.isForNpm,
  );
  const isOwnLock = lock === undefined || lock.folder === own;
  if (isComplete && isOwnLock && found.folders.size + found.files.size === 0) return plain;
  const root = findCommonFolder([
    ...[own, ...found.packages.keys(), ...found.folders],
    ...[...found.files].map(dirname),
    ...(isOwnLock ? [] : [lock.folder]),
  ]);
  for (const path of [...found.packages.keys(), ...found.folders, ...found.files]) {
    refuseHidden(root, path);
  }
  const others = [...found.packages.values()].filter((each) => each.folder !== own);
  return {
    root,
    entry: join(relative(root, own), entry).split(sep).join('/'),
    folders: [
      { folder: own, content: [] },
      ...others.map((each) => ({ folder: each.folder, content: listContent(each) })),
      ...[...found.folders].map((each) => ({ folder: each, content: [] })),
    ],
    files: [...found.files],
    written: writeFiles(root, found.packages, lock),
    packages: others.map((each) => ({ name: readName(each), folder: toPath(own, each.folder) })),
  };
}

/** Settings and keys of the author are in hidden places: an alias or a path must not send them unseen. @throws CommandError */
function refuseHidden(root: string, path: string): void {
  const hidden = relative(root, path)
    .split(sep)
    .some((part) => part.startsWith('.') && part !== '.' && part !== '..');
  if (!hidden) return;
  throw new CommandError(
    `${path} is outside the project and hidden, so it is not sent; change what names it: package.json, or paths or extends of tsconfig.json`,
  );
}

interface Parts {
  /** Local packages by folder. */
  packages: Map<string, LocalPackage>;
  /** Folders of aliases, outside the packages. */
  folders: Set<string>;
  files: Set<string>;
}

function findParts(own: string, handlerFolder: string): Parts {
  const packages = new Map<string, LocalPackage>();
  const folders = new Set<string>();
  const files = new Set<string>();
  const isKnown = (path: string) => [...packages.keys()].some((each) => isInside(path, each));
  const waiting = new Set([own]);
  // The loop also visits what it adds.
  for (const folder of waiting) {
    const found = readLocalPackage(folder);
    packages.set(folder, found);
    for (const used of found.uses) waiting.add(used);
    for (const tarball of found.tarballs) files.add(tarball);
    const rules = readAliasRules(folder === own ? handlerFolder : folder);
    for (const file of rules?.files ?? []) files.add(file);
    for (const target of rules ? listTargetFolders(rules) : []) {
      const owner = findManifestFolder(target);
      // An alias of a folder that contains the project, such as the workspace, adds nothing.
      if (owner !== undefined && !isInside(own, owner)) waiting.add(owner);
      else if (!isInside(own, target)) folders.add(target);
    }
  }
  const isApart = (path: string) => !isKnown(path) && !path.split(sep).includes('node_modules');
  return {
    packages,
    folders: new Set([...folders].filter(isApart)),
    files: new Set([...files].filter(isApart)),
  };
}

/** Existing folders with the files of aliases. */
function listTargetFolders({ paths }: AliasRules): string[] {
  const targets = Object.values(paths)
    .flat()
    .map((target) =>
      dirname(target.split('*')[0] === target ? target : `${target.split('*')[0]}_`),
    );
  const folders = [...new Set(targets)].filter(
    (each) => !each.split(sep).includes('node_modules') && existsSync(each),
  );
  return folders.filter((each) => statSync(each).isDirectory()).map((each) => realpathSync(each));
}

function findManifestFolder(folder: string): string | undefined {
  if (existsSync(join(folder, MANIFEST))) return folder;
  const parent = dirname(folder);
  return parent === folder ? undefined : findManifestFolder(parent);
}

function findCommonFolder(folders: readonly string[]): string {
  return folders.reduce((common, folder) => {
    let at = common;
    while (!isInside(folder, at)) at = dirname(at);
    return at;
  });
}

interface FoundLock {
  /** Folder of the lock file. */
  folder: string;
  name: string;
  lock: Lock;
}

/** The project's own lock file, or that of the workspace that it belongs to. */
function findLock(own: string, folder = own): FoundLock | undefined {
  const name = LOCK_FILES.find((each) => existsSync(join(folder, each)));
  if (name === undefined) {
    const parent = dirname(folder);
    return parent === folder ? undefined : findLock(own, parent);
  }
  const packages = readJsonFile(join(folder, name))?.['packages'];
  if (!isPlainObject(packages)) return undefined;
  const isListed = folder === own || Object.hasOwn(packages, toPath(folder, own));
  return isListed ? { folder, name, lock: packages } : undefined;
}

/** The package.json of each package and of the root, and the lock file. */
function writeFiles(
  root: string,
  packages: ReadonlyMap<string, LocalPackage>,
  found: FoundLock | undefined,
): Map<string, string> {
  const manifests = new Map<string, Record<string, unknown>>();
  for (const [folder, each] of packages) {
    if (each.manifest) manifests.set(toPath(root, folder), writeManifest(each));
  }
  if (manifests.size > 0) {
    const { overrides, type } = readJsonFile(join(root, MANIFEST)) ?? {};
    const rootManifest = manifests.get('.') ?? { private: true, type, overrides };
    // npm installs what the root depends on.
    const links = [...packages.values()].flatMap((each) =>
      each.manifest && each.folder !== root ? [[readName(each), nameFile(root, each.folder)]] : [],
    );
    const dependencies = { ...Object.fromEntries(links), ...Object(rootManifest['dependencies']) };
    manifests.set('.', { ...rootManifest, dependencies });
  }
  const written = new Map<string, string>();
  for (const [folder, manifest] of manifests) {
    written.set(
      join(folder, MANIFEST).split(sep).join('/'),
      `${JSON.stringify(manifest, null, 2)}\n`,
    );
  }
  if (found) {
    const packagesOfLock = moveLock(found.lock, { from: toPath(root, found.folder), manifests });
    const lock = { lockfileVersion: 3, requires: true, packages: packagesOfLock };
    written.set(found.name, `${JSON.stringify(lock, null, 2)}\n`);
  }
  return written;
}

function readName({ folder, manifest }: LocalPackage): string {
  const name = manifest?.['name'];
  return typeof name === 'string' && name !== '' ? name : (folder.split(sep).at(-1) ?? 'project');
}

/** The member `packages` of package-lock.json. */
export type Lock = Readonly<Record<string, unknown>>;

interface Move {
  /** Folder of the lock file in the root of the archive; "." for the root itself. */
  from: string;
  /** The package.json of each local package, by its folder in the root; "." for the root. */
  manifests: ReadonlyMap<string, Record<string, unknown>>;
}

const OWN_NAME = 'millrace';
/** Lists of a package.json that the lock file repeats. */
const LISTS = ['dependencies', 'optionalDependencies', 'peerDependencies'];
const REPEATED = ['name', 'version', ...LISTS, 'peerDependenciesMeta', 'engines', 'bin'];

function moveLock(lock: Lock, { from, manifests }: Move): Record<string, unknown> {
  const moved: Record<string, unknown> = {};
  for (const [folder, manifest] of manifests) {
    moved[folder === '.' ? '' : folder] = Object.fromEntries(
      REPEATED.flatMap((key) => (manifest[key] === undefined ? [] : [[key, manifest[key]]])),
    );
  }
  for (const [path, entry] of Object.entries(lock)) {
    const place = posix.join(from, path);
    const [holder = '', first] = place.split(/\/?node_modules\//, 2);
    // Local packages are there already, with what their package.json has now.
    if (first === undefined || !isPlainObject(entry)) continue;
    if (!manifests.has(holder || '.') || new RegExp(`node_modules/${OWN_NAME}(/|$)`).test(place))
      continue;
    if (entry['link'] !== true) moved[place] = entry;
    else if (typeof entry['resolved'] === 'string') {
      const resolved = posix.join(from, entry['resolved']);
      if (manifests.has(resolved)) moved[place] = { resolved, link: true };
    }
  }
  for (const [folder, manifest] of manifests) {
    const listed = LISTS.flatMap((list) => Object.entries(Object(manifest[list])));
    for (const [name, spec] of listed) {
      const path = /^file:(.*)$/.exec(String(spec))?.[1];
      const resolved = path === undefined ? undefined : posix.join(folder, path);
      if (resolved === undefined || !manifests.has(resolved)) continue;
      const isLinked = listPlaces(folder).some((place) => {
        const link = moved[posix.join(place, 'node_modules', name)];
        return isPlainObject(link) && link['link'] === true;
      });
      if (!isLinked) moved[posix.join('node_modules', name)] = { resolved, link: true };
    }
  }
  return moved;
}

/** The folder and those above it. */
function listPlaces(folder: string): string[] {
  return folder === '.' ? ['.'] : [folder, ...listPlaces(posix.dirname(folder))];
}
