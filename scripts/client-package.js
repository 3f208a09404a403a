// Writes the package `millrace-client` into a folder: `millrace/client` alone, without the server's dependencies.
// client-package.js [FOLDER]: default dist-client. Run it after `npm run build`, which writes the declarations.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { rolldown } from 'rolldown';

const [folder = 'dist-client'] = process.argv.slice(2);
const root = JSON.parse(readFileSync('package.json', 'utf8'));

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const imported = new Set([...(await bundle()), ...copyDeclarations('client.d.ts')]);
const dependencies = Object.fromEntries(
  [...imported].sort().map((name) => [name, requireVersion(name)]),
);
const { engines, license, peerDependencies, peerDependenciesMeta, type, version } = root;
const manifest = {
  name: 'millrace-client',
  version,
  description:
    'The TypeScript client of Millrace: submit jobs, read their streams, manage a platform.',
  keywords: ['client', 'job-queue', 'millrace', 'serverless', 'streaming', 'typescript'],
  ...{ license, type, engines },
  exports: {
    '.': { types: './types/client.d.ts', default: './client.js' },
    './package.json': './package.json',
  },
  files: ['client.js', 'types'],
  ...{ dependencies, peerDependencies, peerDependenciesMeta },
};
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
copyFileSync('LICENSE', join(folder, 'LICENSE'));
copyFileSync('docs/client.md', join(folder, 'README.md'));

/** Returns the packages that the code imports. */
async function bundle() {
  const built = await rolldown({
    input: { client: 'src/client.ts' },
    external: /^[^./]/,
    platform: 'node',
  });
  const { output } = await built.write({ dir: folder, format: 'esm' });
  await built.close();
  return output.flatMap(({ imports = [] }) => imports.filter((name) => !name.startsWith('node:')));
}

/** Copies a declaration and those that it needs; returns the packages that they import. */
function copyDeclarations(entry) {
  const dist = resolve('dist');
  const packages = new Set();
  const copied = new Set();
  const copy = (file) => {
    if (copied.has(file)) return;
    copied.add(file);
    const text = readFileSync(file, 'utf8');
    const target = join(folder, 'types', relative(dist, file));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
    const code = text.replaceAll(/\/\*[\s\S]*?\*\//g, '');
    for (const [, specifier] of code.matchAll(/(?:from|import\() ?['"]([^'"]+)['"]/g)) {
      if (specifier.startsWith('.')) {
        copy(resolve(dirname(file), specifier.replace(/\.[tj]s$/, '.d.ts')));
      } else if (!specifier.startsWith('node:')) {
        packages.add(/^(@[^/]+\/)?[^/]+/.exec(specifier)[0]);
      }
    }
  };
  copy(join(dist, entry));
  return packages;
}

/** @throws Error if the package is no dependency of this one */
function requireVersion(name) {
  const found = root.dependencies[name];
  if (found === undefined) throw new Error(`the client imports ${name}, which is no dependency`);
  return found;
}
