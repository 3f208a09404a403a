// Writes the package `millrace-client` into a folder: `millrace/client` alone, without the server's dependencies.
// client-package.js [FOLDER]: default dist-client. Run it after `npm run build`, which writes the code and the declarations.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { followDeclarations } from './declarations.js';

/** The code loads it if a program has registered a tracer. */
const TRACING = '@opentelemetry/api';
/** A function that takes or returns buffers. */
const NODE_FUNCTION = /^export declare function [^;]*\bBuffer\b[^;]*;\n/gm;

const [folder = 'dist-client'] = process.argv.slice(2);
const root = JSON.parse(readFileSync('package.json', 'utf8'));

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
copyFileSync('dist/client.js', join(folder, 'client.js'));
const dependencies = Object.fromEntries(
  [...copyDeclarations('client.d.ts')].sort().map((name) => [name, requireVersion(name)]),
);
const { author, bugs, homepage, license, repository, type, version } = root;
const manifest = {
  name: 'millrace-client',
  version,
  description:
    'The TypeScript client of Millrace: submit jobs, read their streams, manage a platform.',
  keywords: ['client', 'job-queue', 'millrace', 'serverless', 'streaming', 'typescript'],
  // What the root does not name is left out.
  ...{ author, bugs, homepage, license, repository },
  ...{ type, engines: { node: '>=20' }, sideEffects: false },
  exports: {
    '.': { types: './types/client.d.ts', default: './client.js' },
    './package.json': './package.json',
  },
  files: ['client.js', 'types'],
  dependencies,
  peerDependencies: { [TRACING]: root.peerDependencies[TRACING] },
  peerDependenciesMeta: { [TRACING]: root.peerDependenciesMeta[TRACING] },
};
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
copyFileSync('LICENSE', join(folder, 'LICENSE'));
copyFileSync('docs/client.md', join(folder, 'README.md'));

/** Copies a declaration and those that it needs; returns the packages that they import. */
function copyDeclarations(entry) {
  const { files, packages } = followDeclarations([join('dist', entry)]);
  for (const file of files) {
    const target = join(folder, 'types', relative('dist', file));
    mkdirSync(dirname(target), { recursive: true });
    // The client calls no function for Node alone, and a program for browsers does not know their types.
    writeFileSync(target, readFileSync(file, 'utf8').replaceAll(NODE_FUNCTION, ''));
  }
  return packages;
}

/** @throws Error if the package is no dependency of this one */
function requireVersion(name) {
  const found = root.dependencies[name];
  if (found === undefined) throw new Error(`the client imports ${name}, which is no dependency`);
  return found;
}
