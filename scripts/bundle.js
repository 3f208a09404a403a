// Bundles the sources into dist.new, because Node resolves, reads and links each module of its own:
// for the platform's 500 modules this takes a quarter of the start. Most dependencies stay separate packages.
// bundle.js [FOLDER [PLUGIN]]: into another folder, with a Rolldown plugin, the default export of a module.

import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';
import { BUNDLED_PACKAGES } from './bundled-packages.ts';

const SOURCES = resolve('src');
const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
const [folder = 'dist.new', pluginFile] = process.argv.slice(2);

/** Files of the package that something outside the bundle loads by path. */
const ENTRIES = [
  'index',
  'testing',
  'outgoing',
  'process',
  'storage',
  'server',
  'cli/main',
  'base/log',
  'archive/inspect-thread',
  'store/disk/checkpoint-thread',
  'store/disk/integrity-process',
  'worker/execution/thread-entry',
  'worker/loading/load-check-process',
];

/** A module that starts another one by its path: as a process or a thread. */
const STARTS = /`\.\/([\w/-]+)\$\{extname\(import\.meta\.url\)\}`/g;

/** Stands in a module for its `import.meta.url` until its chunk is known. */
const PLACEHOLDER = '__MODULE_URL__';

/**
 * Keeps `import.meta.url` as it would be without bundling, because modules find files of the package
 * relative to themselves.
 */
const keepModuleUrls = {
  name: 'keep-module-urls',
  transform(code, id) {
    if (!isOwn(id) || !code.includes('import.meta.url')) return null;
    const path = relative(SOURCES, id).replace(/\.ts$/, '.js');
    for (const [, started] of code.matchAll(STARTS)) {
      const entry = join(dirname(path), started);
      if (ENTRIES.includes(entry)) continue;
      throw new Error(`src/${path} starts ${entry}: add it to ENTRIES`);
    }
    return code.replaceAll('import.meta.url', `${PLACEHOLDER}(${JSON.stringify(path)})`);
  },
  renderChunk(code, { fileName }) {
    return code.replaceAll(new RegExp(`${PLACEHOLDER}\\("([^"]*)"\\)`, 'g'), (_, path) => {
      const specifier = JSON.stringify(relative(dirname(fileName), path));
      return `new URL(${specifier}, import.meta.url).href`;
    });
  },
};

const PACKAGE_FILE = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//;

/** Bundled packages find their protocol files relative to themselves. */
const copyProtocols = {
  name: 'copy-protocols',
  transform(code, id) {
    if (!id.includes('/node_modules/') || !code.includes('__dirname')) return null;
    const [home, name] = PACKAGE_FILE.exec(id);
    for (const path of globSync('{,build/}proto/{grpc,health}/**/*.proto', { cwd: home })) {
      const target = join(folder, 'packages', name, path);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, readFileSync(join(home, path)));
    }
    const path = join('packages', name, dirname(relative(home, id)));
    return code.replaceAll('__dirname', `${PLACEHOLDER}FOLDER(${JSON.stringify(path)})`);
  },
  renderChunk(code, { fileName }) {
    const folders = new RegExp(`${PLACEHOLDER}FOLDER\\("([^"]*)"\\)`, 'g');
    return code.replaceAll(folders, (_, path) => {
      const specifier = JSON.stringify(relative(dirname(fileName), path));
      return `process.getBuiltinModule("node:path").join(import.meta.dirname, ${specifier})`;
    });
  },
};

/** Writes the licenses of all packages of which the bundle has a module. */
const writeLicenses = {
  name: 'write-licenses',
  generateBundle() {
    const homes = new Set();
    for (const id of this.getModuleIds()) homes.add(PACKAGE_FILE.exec(id)?.[0] ?? '');
    homes.delete('');
    const texts = new Map();
    for (const home of [...homes].sort()) {
      const { license, name, version } = JSON.parse(readFileSync(`${home}package.json`, 'utf8'));
      const [file] = globSync('{LICENSE,LICENCE,license}{,.md,.txt}', { cwd: home });
      const text = file === undefined ? '' : readFileSync(home + file, 'utf8').trim();
      texts.set(text, [...(texts.get(text) ?? []), `${name} ${version} (${license})`]);
    }
    const parts = [...texts].map(([text, names]) => `${names.join('\n')}\n\n${text}\n`);
    const source = parts.join(`\n${'-'.repeat(80)}\n\n`);
    this.emitFile({ type: 'asset', fileName: 'THIRD-PARTY-LICENSES.txt', source });
  },
};

/** The modules with which each process or thread of a worker starts. */
const WORKER_PARTS = {
  launcher: 'cli/main',
  command: 'cli/worker/worker',
  supervisor: 'cli/worker/supervise',
  process: 'cli/worker/run-worker',
  thread: 'worker/execution/thread-entry',
  handler: 'index',
};
/** It shares modules with a worker, and must load no others of it. */
const PLATFORM = join(SOURCES, 'cli/commands/serve.ts');
/** Parts that load little and may import more later, which must then bring nothing of the other parts. */
const SMALL_PARTS = ['supervisor', 'thread'];

/** What a part has loaded need not be kept apart for the parts that follow it in its process. */
const IMPLIED = [
  ['launcher', ['platform', 'command', 'supervisor', 'supervisor-later', 'process']],
  ['command', ['supervisor', 'supervisor-later', 'process']],
  ['supervisor', ['supervisor-later']],
];

/** The parts that load each module, by the module's file. */
const partsOfModules = new Map();

function findParts(context) {
  const readInfo = (id) => context.getModuleInfo(id);
  addPart('platform', followImports([PLATFORM], readInfo));
  for (const [part, file] of Object.entries(WORKER_PARTS)) {
    const loaded = followImports([join(SOURCES, `${file}.ts`)], readInfo);
    addPart(part, loaded);
    if (!SMALL_PARTS.includes(part)) continue;
    const later = [...loaded].flatMap((id) => readInfo(id)?.dynamicallyImportedIds ?? []);
    addPart(`${part}-later`, followImports(later.filter(isOwn), readInfo));
  }
}

function addPart(part, modules) {
  for (const id of modules) partsOfModules.set(id, [...(partsOfModules.get(id) ?? []), part]);
}

function followImports(modules, readInfo) {
  const reached = new Set(modules);
  // The loop also visits what it adds.
  for (const id of reached) {
    for (const imported of readInfo(id)?.importedIds ?? []) {
      if (isOwn(imported)) reached.add(imported);
    }
  }
  return reached;
}

function isPackage(id) {
  return /^[^./]/.test(id);
}

/** Packages that a bundled package imports are bundled too, unless they are dependencies of Millrace. */
function isBundled(id, importer) {
  const isOf = (name) => id === name || id.startsWith(`${name}/`);
  if (!importer?.includes('/node_modules/')) return BUNDLED_PACKAGES.some(isOf);
  return !isBuiltin(id) && !Object.keys(dependencies).some(isOf);
}

function isOwn(id) {
  return id.startsWith(SOURCES);
}

/**
 * Puts modules of a worker into one chunk if the same parts load them, whichever other commands do. Otherwise each set of
 * commands that shares modules has a chunk: a worker and its supervisor would load 59 chunks instead of 27. Finding each costs time,
 * and so many calls of Node's path functions make V8 compile them with TurboFan, whose code then stays in memory.
 */
function nameWorkerChunk(id, context) {
  if (partsOfModules.size === 0) findParts(context);
  const parts = partsOfModules.get(id) ?? [];
  if (!parts.some((part) => part in WORKER_PARTS)) return null;
  const [, implied] = IMPLIED.find(([part]) => parts.includes(part)) ?? [];
  return parts.filter((part) => !implied?.includes(part)).join('+');
}

const plugins = [keepModuleUrls, copyProtocols, writeLicenses];
if (pluginFile) plugins.unshift((await import(pathToFileURL(resolve(pluginFile)).href)).default);

const bundle = await rolldown({
  input: Object.fromEntries(ENTRIES.map((name) => [name, `src/${name}.ts`])),
  external: (id, importer) => isPackage(id) && !isBundled(id, importer),
  platform: 'node',
  preserveEntrySignatures: 'allow-extension',
  plugins,
});
await bundle.write({
  dir: folder,
  format: 'esm',
  codeSplitting: {
    // Otherwise the first chunk takes all that it imports.
    includeDependenciesRecursively: false,
    groups: [{ name: nameWorkerChunk, debugName: 'parts of a worker' }],
  },
  entryFileNames: '[name].js',
  // A running process may load a chunk after `dist` has been replaced; its name tells it apart.
  chunkFileNames: 'chunks/[name]-[hash].js',
});
await bundle.close();

// `millrace/client` shares no chunk: programs of others bundle it, for browsers too.
const client = await rolldown({
  input: 'src/client.ts',
  platform: 'neutral',
  transform: { target: 'es2022' },
});
await client.write({ file: join(folder, 'client.js'), format: 'esm' });
await client.close();
