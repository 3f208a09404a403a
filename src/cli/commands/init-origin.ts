// Chooses where a new project gets millrace from. A checkout is packed, so that every project can be copied into
// an image without the checkout.
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot, readPackageInfo } from '../../base/package-info.ts';
import { isPlainObject } from '../../wire/json.ts';
import { CommandError } from '../command.ts';
import { inheritWithoutKeys } from '../config.ts';
import { UsageError } from '../options.ts';
import { findNpm } from '../worker/npm-run.ts';

const OWN_NAME = 'millrace';
const VENDOR = 'vendor';

/** `registry`: the version on npm. `checkout`: a folder of the package, to be packed. */
export type Origin =
  | { kind: 'registry'; version: string }
  | { kind: 'checkout'; folder: string }
  | { kind: 'tarball'; file: string };

/**
 * From `--from`; without it, from where the running millrace is.
 * @throws UsageError
 */
export function chooseOrigin(from: string | undefined): Origin {
  if (from === undefined) return findOwnOrigin();
  const path = resolve(from);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) throw new UsageError(`--from: ${from}: file or folder not found`);
  if (stats.isFile()) {
    if (/\.(tgz|tar\.gz)$/.test(path)) return { kind: 'tarball', file: path };
    throw new UsageError(`--from: ${from} is neither a folder nor a .tgz file`);
  }
  if (readJson(join(path, 'package.json'))['name'] !== OWN_NAME) {
    throw new UsageError(`--from: ${from} is not a folder of the package ${OWN_NAME}`);
  }
  return { kind: 'checkout', folder: path };
}

function findOwnOrigin(): Origin {
  if (!packageRoot.split(sep).includes('node_modules')) {
    return { kind: 'checkout', folder: packageRoot };
  }
  const file = findInstalledTarball();
  if (file !== undefined) return { kind: 'tarball', file };
  return { kind: 'registry', version: `^${readPackageInfo().version}` };
}

/** The tarball that npm installed the running package from, if it still exists. */
function findInstalledTarball(): string | undefined {
  const modules = dirname(packageRoot);
  const { packages } = readJson(join(modules, '.package-lock.json'));
  const entry = isPlainObject(packages) ? packages[`node_modules/${OWN_NAME}`] : undefined;
  const resolved = isPlainObject(entry) ? entry['resolved'] : undefined;
  if (typeof resolved !== 'string' || !resolved.startsWith('file:')) return undefined;
  const file = resolved.startsWith('file:///')
    ? fileURLToPath(resolved)
    : resolve(dirname(modules), resolved.slice('file:'.length));
  return statSync(file, { throwIfNoEntry: false })?.isFile() ? file : undefined;
}

/**
 * Puts a tarball into the project's folder `vendor`, unless millrace comes from the registry.
 * @returns what package.json names, and the path of the tarball in the project
 * @throws CommandError
 */
export function provideMillrace(
  project: string,
  origin: Origin,
): { dependency: string; written: string[] } {
  if (origin.kind === 'registry') return { dependency: origin.version, written: [] };
  const vendor = join(project, VENDOR);
  mkdirSync(vendor, { recursive: true });
  const name =
    origin.kind === 'checkout' ? packCheckout(origin.folder, vendor) : basename(origin.file);
  if (origin.kind === 'tarball') copyFileSync(origin.file, join(vendor, name));
  return { dependency: `file:${VENDOR}/${name}`, written: [`${VENDOR}/${name}`] };
}

/** @returns the name of the tarball */
function packCheckout(folder: string, vendor: string): string {
  if (!existsSync(join(folder, 'dist/index.js'))) {
    throw new CommandError(`${folder} is not built; run \`npm ci\` there`);
  }
  const args = [join(folder, 'scripts/release/pack.ts'), vendor, ...findNpm()];
  try {
    execFileSync(process.execPath, args, {
      cwd: folder,
      env: inheritWithoutKeys({ npm_config_update_notifier: 'false' }),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  } catch (error) {
    throw new CommandError(
      `packing ${folder} failed: ${error instanceof Error ? error.message : error}`,
    );
  }
  const name = `${OWN_NAME}-${String(readJson(join(folder, 'package.json'))['version'])}.tgz`;
  if (readdirSync(vendor).includes(name)) return name;
  throw new CommandError(`packing ${folder} has not written ${name}`);
}

/** Empty if the file is missing or no JSON object. */
function readJson(path: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return isPlainObject(value) ? value : {};
  } catch {
    return {};
  }
}
