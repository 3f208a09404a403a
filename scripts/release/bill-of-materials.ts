// Writes the software bill of materials of a package (CycloneDX): what `npm install` of it brings, and what its bundles
// contain.
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

interface Manifest {
  name: string;
  version: string;
  license?: string;
  dependencies?: Record<string, string>;
}

interface LockEntry {
  version?: string;
  hasInstallScript?: boolean;
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
  peerDependenciesMeta?: Record<string, { optional?: boolean }>;
}

export interface Lock {
  packages: Record<string, LockEntry>;
}

/** Named in code that the console shows, not imported. */
const OWN_PACKAGE = 'millrace';

/** Packages that the console's sources import: they are bundled, and so no dependencies. */
export function listBundled(folder = 'console/src'): string[] {
  const found = new Set<string>();
  for (const path of globSync('**/*.{ts,tsx}', { cwd: folder })) {
    const text = readFileSync(join(folder, path), 'utf8');
    for (const [, name] of text.matchAll(/(?:from|import) '((?:@[^/']+\/)?[^./'][^/']*)[^']*'/g)) {
      if (name !== undefined && !name.startsWith('node:')) found.add(name);
    }
  }
  found.delete(OWN_PACKAGE);
  return [...found].sort();
}

/** A project with the package's dependencies alone, each at the version of our lock file. */
export function composeProject(
  { dependencies = {}, license, name, version }: Manifest,
  { packages }: Lock,
  bundled: readonly string[],
): { manifest: Manifest; lock: object } {
  const more = bundled.map((each) => {
    const { version: locked } = packages[`node_modules/${each}`] ?? {};
    if (locked === undefined) throw new Error(`package-lock.json has no ${each}`);
    return [each, locked] as const;
  });
  const own = { name, version, ...(license !== undefined && { license }) };
  const manifest = { ...own, dependencies: { ...dependencies, ...Object.fromEntries(more) } };
  const all = listNeeded(Object.keys(manifest.dependencies), packages).map(
    (path) => [path, asDependency(packages[path])] as const,
  );
  const lock = {
    ...{ name, version, lockfileVersion: 3, requires: true },
    packages: { '': manifest, ...Object.fromEntries(all) },
  };
  return { manifest, lock };
}

/** The places in the lock file of packages, and of all that they need on any system. @throws Error if one is missing */
export function listNeeded(names: readonly string[], packages: Lock['packages']): string[] {
  const found = new Set(names.map((name) => locate(name, '', packages)));
  // The loop also visits what it adds.
  for (const path of found) {
    const { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } =
      packages[path] ?? {};
    const peers = Object.keys(peerDependencies ?? {}).filter(
      (name) => !peerDependenciesMeta?.[name]?.optional,
    );
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      found.add(locate(name, path, packages));
    }
    for (const name of peers) found.add(locate(name, path, packages));
  }
  return [...found].sort();
}

/** Finds a package as Node does: in the folder that needs it, or in one above. */
function locate(name: string, from: string, packages: Lock['packages']): string {
  for (let folder = from; ; folder = folder.slice(0, folder.lastIndexOf('node_modules/'))) {
    const path = join(folder, 'node_modules', name);
    if (packages[path]) return path;
    if (folder === '') throw new Error(`package-lock.json has no ${name}`);
  }
}

/** npm would leave out packages that are marked as only needed for development. */
function asDependency(entry: LockEntry = {}): object {
  return { ...entry, ...{ dev: undefined, devOptional: undefined, peer: undefined } };
}

/** `run` runs npm and returns its output. The registry is not asked. */
export function writeBill(
  manifest: Manifest,
  { bundled, path, run }: { bundled: readonly string[]; path: string; run: RunNpm },
): void {
  const temporary = mkdtempSync(join(tmpdir(), 'millrace-sbom-'));
  try {
    // npm names the package after its folder.
    const folder = join(temporary, manifest.name);
    mkdirSync(folder);
    const lock: Lock = JSON.parse(readFileSync('package-lock.json', 'utf8'));
    const project = composeProject(manifest, lock, bundled);
    writeFileSync(join(folder, 'package.json'), JSON.stringify(project.manifest));
    writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(project.lock));
    const format = ['--sbom-format', 'cyclonedx', '--package-lock-only', '--omit', 'dev'];
    const bill: unknown = JSON.parse(run(['sbom', ...format, '--omit', 'peer'], folder));
    writeFileSync(path, `${JSON.stringify(bill, null, 2)}\n`);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

export type RunNpm = (args: readonly string[], folder: string) => string;
