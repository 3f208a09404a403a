// `millrace init`: scaffolds a handler project from the files of init-template/.
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot, readPackageInfo } from '../../base/package-info.ts';
import { isPlainObject } from '../../wire/json.ts';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import { inheritWithoutKeys } from '../config.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag, text, UnknownWordError, UsageError } from '../options.ts';
import { print } from '../output.ts';
import { findNpm } from '../worker/version-install.ts';

const COMMON = fileURLToPath(new URL('./init-template/', import.meta.url));
const PYTHON_LIBRARY = fileURLToPath(
  new URL('../../process/python/millrace_model.py', import.meta.url),
);
/** The ready-made handlers, beside `src` and `dist`. */
const HANDLERS = fileURLToPath(new URL('../../../handlers/', import.meta.url));

interface Template {
  name: string;
  /** For --help. */
  help: string;
  /** For the project's README, after the project's name. */
  about: string;
  /** Input of a job as JSON, for the README. */
  example: string;
  /** Packages besides those of every project; this package tests its own versions of them. */
  dependencies: readonly string[];
  /** Files from elsewhere, by their path in the project. */
  sources: Readonly<Record<string, string>>;
}

const TEMPLATES: readonly Template[] = [
  {
    name: 'typescript',
    help: 'the handler does the work',
    about: 'A Millrace handler: `handler.ts`.',
    example: '{"text":"one two\\nthree"}',
    dependencies: [],
    sources: {},
  },
  {
    name: 'python',
    help: 'it calls a model in Python',
    about:
      'A Millrace handler with a model in Python: `handler.ts` starts `model.py` once and calls its functions for every ' +
      'job.\n`millrace_model.py` is the library between them. It needs Python 3.9 or newer.',
    example: '{"text":"one two\\nthree"}',
    dependencies: [],
    sources: { 'millrace_model.py': PYTHON_LIBRARY },
  },
  {
    name: 'openai-proxy',
    help: 'it streams the answers of an OpenAI-compatible server',
    about:
      'A Millrace handler that sends jobs to an OpenAI-compatible server and streams its answers. Set two variables in the ' +
      'environment of\nthe worker: `OPENAI_BASE_URL` with the version, such as `http://127.0.0.1:8080/v1`, and `OPENAI_API_KEY`. ' +
      'For a server that wants no\nkey, any text will do. For an endpoint, add `--env OPENAI_BASE_URL=… --env OPENAI_API_KEY=…` to `deploy`.',
    example: '{"model":"llama-3.1-8b","messages":[{"role":"user","content":"Say hi"}]}',
    dependencies: ['eventsource-parser', 'undici'],
    sources: takeHandlers(
      'openai-proxy.ts',
      ...[
        'collect-bytes.ts',
        'completion-stream.ts',
        'openai-upstream.ts',
        'retry-after.ts',
        'sse.ts',
      ],
    ),
  },
  {
    name: 'image',
    help: 'it resizes and converts images with sharp',
    about: 'A Millrace handler that turns, resizes and converts images with sharp.',
    example: '{"image":"R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7","format":"png"}',
    dependencies: ['sharp'],
    sources: takeHandlers('image.ts'),
  },
];

function takeHandlers(handler: string, ...library: string[]): Record<string, string> {
  const files = library.map((name) => [`lib/${name}`, join(HANDLERS, 'lib', name)]);
  return { 'handler.ts': join(HANDLERS, handler), ...Object.fromEntries(files) };
}

/** One phrase for each template. */

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

export const initCommand = defineCommand({
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
  exitCodes: {
    ok: 'done',
    failed: 'the folder is not empty, or cannot be written',
  },
  run,
});

async function run({ values, positionals }: ParsedArguments<typeof options>): Promise<number> {
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

const OWN_NAME = 'millrace';
const VENDOR = 'vendor';

/** `registry`: the version on npm. `checkout`: a folder of the package, to be packed. */
type Origin =
  | { kind: 'registry'; version: string }
  | { kind: 'checkout'; folder: string }
  | { kind: 'tarball'; file: string };

/**
 * From `--from`; without it, from where the running millrace is.
 * @throws UsageError
 */
function chooseOrigin(from: string | undefined): Origin {
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
function provideMillrace(
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

function describeTemplates(): string {
  return TEMPLATES.map(({ help, name }) => `${name}: ${help}`).join('; ');
}

/** @throws UnknownWordError */
function findTemplate(name = 'typescript'): Template {
  const found = TEMPLATES.find((template) => template.name === name);
  if (found) return found;
  const names = TEMPLATES.map((template) => template.name);
  throw new UnknownWordError('template', name, names);
}

/** Path of each file of the template, by its path in the project. */
export function listFiles({ name, sources }: Template): Map<string, string> {
  const files = new Map<string, string>();
  for (const folder of [COMMON, join(COMMON, name)]) {
    if (folder !== COMMON && name === 'typescript') continue;
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (entry.isDirectory()) continue;
      // npm omits dot files and nested package.json files from packages, or treats them as its own.
      const target =
        entry.name === '_package.json' ? 'package.json' : entry.name.replace(/^_/, '.');
      files.set(target, join(folder, entry.name));
    }
  }
  for (const [target, source] of Object.entries(sources)) files.set(target, source);
  return files;
}
