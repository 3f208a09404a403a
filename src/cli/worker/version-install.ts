// Installs the dependencies of an unpacked version with npm. The platform's package is never installed: imports of
// `millrace` get the worker's own copy.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { lstat, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { packageRoot } from '../../base/package-info.ts';
import { killGroup } from '../../base/process/process-groups.ts';
import { CommandError } from '../command.ts';
import { inheritWithoutKeys, readVariable } from '../config.ts';

const OWN_NAME = 'millrace';
const LOCK_FILES = ['package-lock.json', 'npm-shrinkwrap.json'];
const BYTES_PER_MB = 1_048_576;

interface InstallOptions {
  /** Folder with the version's files. */
  folder: string;
  /** A folder that this installation alone uses, for npm's cache. */
  temporary: string;
  timeoutMs: number;
  /** Most bytes of the folder with its packages. */
  maxBytes: number;
  scripts: 'run' | 'ignore';
}

interface Project {
  dependencies: Record<string, unknown>;
  [name: string]: unknown;
}

/** @returns whether npm ran @throws CommandError that says what to do */
export async function installDependencies(options: InstallOptions): Promise<boolean> {
  const { folder, maxBytes, scripts, temporary, timeoutMs } = options;
  const project = await readProject(folder);
  if (!project || !(await leaveOutOwn(folder, project))) return false;
  const isLocked = LOCK_FILES.some((name) => existsSync(join(folder, name)));
  const args = [
    ...(isLocked ? ['ci'] : ['install', '--no-package-lock']),
    ...['--omit=dev', '--no-audit', '--no-fund', '--no-update-notifier'],
    ...(scripts === 'ignore' ? ['--ignore-scripts'] : []),
    `--cache=${join(temporary, 'npm-cache')}`,
  ];
  await runNpm(args, { folder, timeoutMs });
  const bytes = await measureFolder(folder);
  if (bytes <= maxBytes) return true;
  const [has, limit] = [bytes, maxBytes].map((each) => Math.ceil(each / BYTES_PER_MB));
  throw new CommandError(
    `the version has ${has} MB with its packages, more than ${limit} MB; raise --install-limit, or use fewer packages`,
  );
}

/** Handlers without packages of their own find `millrace` and `zod` beside their folder. */
export async function linkOwnPackages(parent: string): Promise<void> {
  const modules = join(parent, 'node_modules');
  await mkdir(modules, { recursive: true });
  await symlink(packageRoot, join(modules, OWN_NAME), 'dir');
  const zod = createRequire(import.meta.url).resolve('zod/package.json');
  await symlink(dirname(zod), join(modules, 'zod'), 'dir');
}

/** Undefined without a package.json. @throws CommandError */
async function readProject(folder: string): Promise<Project | undefined> {
  const path = join(folder, 'package.json');
  if (!existsSync(path)) return undefined;
  const project = await readJson(path);
  if (!isRecord(project)) throw new CommandError('package.json is not an object');
  const { dependencies = {} } = project;
  if (!isRecord(dependencies)) {
    throw new CommandError('package.json: dependencies is not an object');
  }
  return { ...project, dependencies };
}

/**
 * Removes `millrace` from package.json and the lock file, because it may name a registry, a folder or a file that
 * only the author's machine has. @returns whether other packages are left to install
 */
async function leaveOutOwn(folder: string, project: Project): Promise<boolean> {
  const { [OWN_NAME]: own, ...others } = project.dependencies;
  const optional = isRecord(project['optionalDependencies'])
    ? Object.keys(project['optionalDependencies'])
    : [];
  if (Object.keys(others).length + optional.length === 0) return false;
  if (own === undefined && !hasOwnAnywhere(project)) return true;
  await writeFile(join(folder, 'package.json'), JSON.stringify(withoutOwn(project), null, 2));
  for (const name of LOCK_FILES) {
    const path = join(folder, name);
    if (!existsSync(path)) continue;
    const lock = await readJson(path);
    if (isRecord(lock)) await writeFile(path, JSON.stringify(lockWithoutOwn(lock), null, 2));
  }
  return true;
}

const GROUPS = ['dependencies', 'devDependencies', 'peerDependencies', 'optionalDependencies'];

function hasOwnAnywhere(project: Record<string, unknown>): boolean {
  return GROUPS.some((group) => {
    const given = project[group];
    return isRecord(given) && OWN_NAME in given;
  });
}

function withoutOwn(project: Record<string, unknown>): Record<string, unknown> {
  const changed = GROUPS.flatMap((group) => {
    const given = project[group];
    if (!isRecord(given)) return [];
    const { [OWN_NAME]: _own, ...others } = given;
    return [[group, others] as const];
  });
  return { ...project, ...Object.fromEntries(changed) };
}

function lockWithoutOwn(lock: Record<string, unknown>): Record<string, unknown> {
  const { packages } = lock;
  if (!isRecord(packages)) return lock;
  const place = `node_modules/${OWN_NAME}`;
  const kept = Object.entries(packages).flatMap(([path, entry]) => {
    if (path === place || path.startsWith(`${place}/`)) return [];
    return [[path, path === '' && isRecord(entry) ? withoutOwn(entry) : entry] as const];
  });
  return { ...lock, packages: Object.fromEntries(kept) };
}

async function measureFolder(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isFile()) bytes += (await lstat(join(entry.parentPath, entry.name))).size;
  }
  return bytes;
}

/** @throws CommandError */
async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CommandError(`${path} of the version cannot be read: ${reason}`);
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Characters at the end of npm's output in an error. */
const SHOWN_OUTPUT = 2_000;
const CA_HINT =
  '; if the registry has a certificate of your own authority, set NODE_EXTRA_CA_CERTS for `serve`, or for containers with `deploy --env`';
/** Signals that end this process; they do not reach npm, which has a session of its own. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** @throws CommandError with npm's last output */
export async function runNpm(
  args: readonly string[],
  { folder, timeoutMs }: { folder: string; timeoutMs: number },
): Promise<void> {
  const [program, ...first] = findNpm();
  const child = spawn(program ?? 'npm', [...first, ...args], {
    cwd: folder,
    env: inheritWithoutKeys({ npm_config_update_notifier: 'false' }),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const endGroup = () => {
    if (child.pid !== undefined) killGroup(child.pid);
  };
  const release = endWithProcess(endGroup);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    endGroup();
  }, timeoutMs);
  let output = '';
  const note = (part: Buffer) => {
    output = (output + part.toString('utf8')).slice(-SHOWN_OUTPUT);
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  const { code, error } = await new Promise<{ code: number | null; error?: Error }>((resolve) => {
    child.on('error', (failed) => resolve({ code: null, error: failed }));
    child.on('close', (exitCode) => resolve({ code: exitCode }));
    // A process that npm has left behind would hold its output open.
    child.on('exit', endGroup);
  });
  clearTimeout(timer);
  release();
  if (code === 0) return;
  const what = `npm ${args[0]} of the version failed`;
  if (error) {
    throw new CommandError(
      `${what}: ${error.message}; the version has dependencies, so the worker needs npm beside its Node or on its PATH`,
    );
  }
  const why = isLate
    ? `it took longer than ${timeoutMs / 1_000} s (--install-timeout)`
    : `exit code ${code}`;
  const missing = isLate ? undefined : findMissing(output);
  if (missing !== undefined) {
    throw new CommandError(`Could not install ${missing}: not in the registry`);
  }
  const hint = /self-signed certificate|unable to (?:get|verify)/i.test(output) ? CA_HINT : '';
  throw new CommandError(`${what}: ${why}: ${readErrors(output)}${hint}`);
}

/** @returns the function that undoes it */
function endWithProcess(end: () => void): () => void {
  const onSignal = (signal: NodeJS.Signals) => {
    end();
    release();
    // With the default effect, now that nothing listens.
    process.kill(process.pid, signal);
  };
  process.once('exit', end);
  for (const signal of SIGNALS) process.once(signal, onSignal);
  const release = () => {
    process.off('exit', end);
    for (const signal of SIGNALS) process.off(signal, onSignal);
  };
  return release;
}

/** The package or the version that the registry lacks, as npm names it. */
function findMissing(output: string): string | undefined {
  const [, name, version] =
    /^npm error 404 .*'(\S+@\S+)'|^npm error notarget No .*version found for (\S+?)\.?$/m.exec(
      output,
    ) ?? [];
  return name ?? version;
}

/** npm's errors in one line, without its warnings and the path of its log. */
function readErrors(output: string): string {
  const errors = [...output.matchAll(/^npm error (.*)$/gm)].map(([, text = '']) => text);
  const said = errors.filter((text) => !/complete log of this run|^code |^errno /.test(text));
  return (said.length > 0 ? said : [output.trim().split('\n').at(-1) ?? '']).join('; ');
}

/** The program and its first arguments: npm beside the running Node, else the one on the PATH. */
export function findNpm(): string[] {
  const beside = join(dirname(process.execPath), '../lib/node_modules/npm/bin/npm-cli.js');
  if (existsSync(beside)) return [process.execPath, beside];
  const folders = (readVariable('PATH') ?? '').split(':');
  const found = folders.map((folder) => join(folder, 'npm')).find((path) => existsSync(path));
  return [found ?? 'npm'];
}
