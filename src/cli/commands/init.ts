// `millrace init`: scaffolds a handler project from the files of init-template/.
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot, readPackageInfo } from '../../base/package-info.ts';
import { checkArguments } from '../arguments.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { parseOptions } from '../option-parser.ts';
import { flag, text, UsageError } from '../options.ts';
import { print } from '../output.ts';

const TEMPLATE = fileURLToPath(new URL('./init-template/', import.meta.url));

/** Files that may exist before the project is created. */
const HARMLESS = ['.git', 'LICENSE'];

const options = {
  from: text({
    placeholder: 'PATH',
    help: 'tarball or folder of millrace to depend on; a tarball is copied into vendor/',
  }),
  force: flag({
    help: 'write into a folder that is not empty; replace files of the same name',
  }),
};

export const initCommand: Command = {
  name: 'millrace init',
  description: [
    'Writes a TypeScript handler with its test, a package.json, a tsconfig.json, a Dockerfile and a ' +
      'README. Node 24 is a development dependency of the project. Run `npm install` afterwards.',
    'Without --from, an installed millrace adds the published package of its version as the dependency; a ' +
      'millrace that runs from a checkout of its repository adds that checkout. To build an image, give --from ' +
      'a tarball (`npm pack` in a checkout), because the Dockerfile needs every dependency in the folder.',
  ],
  positionals: [
    { name: '[folder]', help: 'project folder, created if missing; default: the current folder' },
  ],
  options,
  examples: ['millrace init my-handler', 'millrace init my-handler --from ./millrace-0.1.0.tgz'],
  exitCodes: [
    { code: EXIT.ok, meaning: 'done' },
    { code: EXIT.failed, meaning: 'the folder is not empty, or cannot be written' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  checkArguments(initCommand.positionals, positionals);
  const [given = '.'] = positionals;
  const folder = resolve(given);
  checkFolder(folder, values.force);
  const written = writeProject(folder, chooseOrigin(values.from));
  const enter =
    folder === process.cwd() ? '' : `cd ${relative(process.cwd(), folder) || folder} && `;
  void print(
    `${written.map((file) => `  ${file}`).join('\n')}\n\nNext: ${enter}npm install && npm test && npm start\n`,
  );
  return EXIT.ok;
}

function checkFolder(folder: string, isForced: boolean): void {
  const stats = statSync(folder, { throwIfNoEntry: false });
  if (stats && !stats.isDirectory()) throw new CommandError(`${folder} is a file`);
  if (!stats || isForced) return;
  if (readdirSync(folder).every((name) => HARMLESS.includes(name))) return;
  throw new CommandError(`${folder} is not empty; give --force to write into it`);
}

/** Where the project installs the package from. */
type Origin =
  | { kind: 'version'; version: string }
  | { kind: 'folder'; folder: string }
  | { kind: 'tarball'; file: string };

function chooseOrigin(from: string | undefined): Origin {
  if (from === undefined) {
    const isInstalled = packageRoot.split(sep).includes('node_modules');
    if (!isInstalled) return { kind: 'folder', folder: packageRoot };
    return { kind: 'version', version: `^${readPackageInfo().version}` };
  }
  const path = resolve(from);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) throw new UsageError(`--from: ${from}: file or folder not found`);
  if (stats.isFile()) {
    if (/\.(tgz|tar\.gz)$/.test(path)) return { kind: 'tarball', file: path };
    throw new UsageError(`--from: ${from} is neither a folder nor a .tgz file`);
  }
  if (readPackageName(path) === 'millrace') return { kind: 'folder', folder: path };
  throw new UsageError(`--from: ${from} is not a folder of the package millrace`);
}

function readPackageName(folder: string): unknown {
  try {
    const info: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    return typeof info === 'object' && info !== null && 'name' in info ? info.name : undefined;
  } catch {
    return undefined;
  }
}

function writeProject(folder: string, origin: Origin): string[] {
  try {
    mkdirSync(folder, { recursive: true });
    return writeFiles(folder, origin);
  } catch (error) {
    throw new CommandError(error instanceof Error ? error.message : String(error));
  }
}

function writeFiles(folder: string, origin: Origin): string[] {
  const words = new Map(Object.entries(collectWords(folder, origin)));
  const fill = (line: string) =>
    line.replaceAll(/\{\{(.+?)\}\}/g, (whole, word: string) => words.get(word) ?? whole);
  const written = readdirSync(TEMPLATE)
    .sort()
    .map((source) => {
      // npm omits dot files and nested package.json files from packages, or treats them as its own.
      const target = source === '_package.json' ? 'package.json' : source.replace(/^_/, '.');
      writeFileSync(join(folder, target), fill(readFileSync(join(TEMPLATE, source), 'utf8')));
      return target;
    });
  if (origin.kind !== 'tarball') return written;
  mkdirSync(join(folder, 'vendor'), { recursive: true });
  copyFileSync(origin.file, join(folder, 'vendor', basename(origin.file)));
  return [...written, `vendor/${basename(origin.file)}`];
}

/** Values for `{{word}}` in the template. The versions are those that this package is tested with. */
function collectWords(folder: string, origin: Origin): Record<string, string> {
  const { dependencies, devDependencies } = readPackageInfo();
  return {
    ...dependencies,
    ...devDependencies,
    name: nameProject(folder),
    millrace: describeOrigin(folder, origin),
  };
}

function describeOrigin(folder: string, origin: Origin): string {
  switch (origin.kind) {
    case 'version':
      return origin.version;
    case 'folder':
      return `file:${relative(folder, origin.folder).split(sep).join('/')}`;
    case 'tarball':
      return `file:vendor/${basename(origin.file)}`;
  }
}

/** Derives a package name that npm accepts from the folder's name; never the name of a dependency. */
function nameProject(folder: string): string {
  const name = basename(folder)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '');
  return name === '' || name === 'millrace' ? 'millrace-handler' : name;
}
