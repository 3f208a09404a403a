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
/** Files that replace those of TEMPLATE, or join them. */
const PYTHON_TEMPLATE = join(TEMPLATE, 'python');
const PYTHON_LIBRARY = fileURLToPath(
  new URL('../../process/python/millrace_model.py', import.meta.url),
);

const TEMPLATES = ['typescript', 'python'];

/** Files that may exist before the project is created. */
const HARMLESS = ['.git', 'LICENSE'];

const options = {
  from: text({
    placeholder: 'PATH',
    help: 'tarball or folder of millrace to depend on; a tarball is copied into vendor/',
  }),
  template: text({
    placeholder: 'NAME',
    help: 'typescript: the handler does the work; python: it calls a model in Python. Default: typescript',
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
    'With --template python, the handler keeps a Python program running and calls its functions.',
    'Without --from, an installed millrace adds the published package of its version as the dependency; a ' +
      'millrace that runs from a checkout of its repository adds that checkout. To build an image, give --from ' +
      'a tarball (`npm pack` in a checkout), because the Dockerfile needs every dependency in the folder.',
  ],
  positionals: [
    { name: '[folder]', help: 'project folder, created if missing; default: the current folder' },
  ],
  options,
  examples: [
    'millrace init my-handler',
    'millrace init my-model --template python',
    'millrace init my-handler --from ./millrace-0.1.0.tgz',
  ],
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
  const files = listFiles(values.template);
  checkFolder(folder, values.force);
  const written = writeProject(folder, files, chooseOrigin(values.from));
  const enter =
    folder === process.cwd() ? '' : `cd ${relative(process.cwd(), folder) || folder} && `;
  void print(
    `${written.map((file) => `  ${file}`).join('\n')}\n\nNext: ${enter}npm install && npm test && npm start\n`,
  );
  return EXIT.ok;
}

/** Path of each file in the template, by its path in the project. */
function listFiles(template = 'typescript'): Map<string, string> {
  if (!TEMPLATES.includes(template)) {
    throw new UsageError(`--template: ${template} is none of ${TEMPLATES.join(', ')}`);
  }
  const folders = template === 'python' ? [TEMPLATE, PYTHON_TEMPLATE] : [TEMPLATE];
  const files = new Map<string, string>();
  for (const folder of folders) {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (entry.isDirectory()) continue;
      // npm omits dot files and nested package.json files from packages, or treats them as its own.
      const { name } = entry;
      const target = name === '_package.json' ? 'package.json' : name.replace(/^_/, '.');
      files.set(target, join(folder, name));
    }
  }
  if (template === 'python') files.set('millrace_model.py', PYTHON_LIBRARY);
  return files;
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

function writeProject(
  folder: string,
  files: ReadonlyMap<string, string>,
  origin: Origin,
): string[] {
  try {
    mkdirSync(folder, { recursive: true });
    return writeFiles(folder, files, origin);
  } catch (error) {
    throw new CommandError(error instanceof Error ? error.message : String(error));
  }
}

function writeFiles(folder: string, files: ReadonlyMap<string, string>, origin: Origin): string[] {
  const words = new Map(Object.entries(collectWords(folder, origin)));
  const fill = (line: string) =>
    line.replaceAll(/\{\{(.+?)\}\}/g, (whole, word: string) => words.get(word) ?? whole);
  const written = [...files.keys()].sort();
  for (const [target, source] of files) {
    writeFileSync(join(folder, target), fill(readFileSync(source, 'utf8')));
  }
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
