// `millrace init`: scaffolds a handler project from the files of init-template/.
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { readPackageInfo } from '../../base/package-info.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import { flag, text } from '../options.ts';
import { print } from '../output.ts';
import { chooseOrigin, type Origin, provideMillrace } from './init-origin.ts';
import { describeTemplates, findTemplate, listFiles, type Template } from './init-templates.ts';

const MANIFEST = 'package.json';

/** Files that may exist before the project is created. */
const HARMLESS = ['.git', 'LICENSE'];

const options = {
  from: text({
    placeholder: 'PATH',
    help: 'tarball or checkout of millrace to depend on; a checkout is packed',
  }),
  template: text({
    placeholder: 'NAME',
    help: `${describeTemplates()}. Default: typescript`,
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
    'The project depends on the millrace that runs this command. If that is a checkout of the repository, or ' +
      'was installed from a tarball, the project gets a tarball in vendor/. Otherwise it depends on the ' +
      'published package of the same version.',
  ],
  positionals: [
    { name: '[folder]', help: 'project folder, created if missing; default: the current folder' },
  ],
  options,
  examples: [
    'millrace init my-handler',
    'millrace init my-model --template python',
    'millrace init my-proxy --template openai-proxy',
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
  const template = findTemplate(values.template);
  const origin = chooseOrigin(values.from);
  checkFolder(folder, values.force);
  const written = writeProject(folder, template, origin);
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

function writeProject(folder: string, template: Template, origin: Origin): string[] {
  try {
    mkdirSync(folder, { recursive: true });
    const { dependency, written } = provideMillrace(folder, origin);
    return [...writeFiles(folder, template, dependency), ...written];
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(error instanceof Error ? error.message : String(error));
  }
}

/** @param millrace what package.json names as the dependency */
function writeFiles(folder: string, template: Template, millrace: string): string[] {
  const { about, dependencies: added, example } = template;
  const { dependencies, devDependencies } = readPackageInfo();
  // The versions are those that this package is tested with.
  const versions = { ...dependencies, ...devDependencies };
  const own = { about, example, name: nameProject(folder), millrace };
  const words = new Map(Object.entries({ ...versions, ...own }));
  const files = listFiles(template);
  for (const [target, source] of files) {
    mkdirSync(dirname(join(folder, target)), { recursive: true });
    const content = target === MANIFEST ? addPackages(source, added) : readFileSync(source, 'utf8');
    writeFileSync(join(folder, target), fill(content, words));
  }
  return [...files.keys()].sort();
}

/** The package.json of the template with placeholders for the versions of more packages. */
function addPackages(manifest: string, names: readonly string[]): string {
  const added = names.map((name) => `    "${name}": "{{${name}}}",\n`).join('');
  return readFileSync(manifest, 'utf8').replace(/^ {4}"zod"/m, `${added}$&`);
}

/** Replaces each `{{word}}`. */
function fill(line: string, words: ReadonlyMap<string, string>): string {
  return line.replaceAll(/\{\{(.+?)\}\}/g, (whole, word: string) => words.get(word) ?? whole);
}

/** Derives a package name that npm accepts from the folder's name; never the name of a dependency. */
function nameProject(folder: string): string {
  const name = basename(folder)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '');
  return name === '' || name === 'millrace' ? 'millrace-handler' : name;
}
