// Reads the imports of a handler's own modules from their texts, to find the place of an error that Node reports without one.
import { spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findAlias } from './path-aliases.ts';

export interface FoundImport {
  specifier: string;
  /** `file:line` */
  place: string;
  /** Absolute path; undefined for packages. */
  target: string | undefined;
}

const IMPORT = /\b(?:from|import|require)\s*\(?\s*(['"])([^'"\n]+)\1/g;
const MODULE = /\.[cm]?[jt]s$/;
const MAX_MODULES = 1_000;
const MAX_MODULE_BYTES = 1_048_576;
const CHECK_TIMEOUT_MS = 10_000;

export function listImports(file: string): FoundImport[] {
  const text = readText(file);
  return [...text.matchAll(IMPORT)].map(({ 2: specifier = '', index }) => {
    const line = text.slice(0, index).split('\n').length;
    return { specifier, place: `${file}:${line}`, target: locateTarget(specifier, file) };
  });
}

/** The first matching import of the handler's file or of a module that it imports. */
export function findImport(
  entry: string,
  isMeant: (found: FoundImport) => boolean,
): FoundImport | undefined {
  for (const file of walkModules(entry)) {
    const found = listImports(file).find(isMeant);
    if (found) return found;
  }
  return undefined;
}

/** The handler's file and the modules that it imports, without those of packages. */
function* walkModules(entry: string): Generator<string> {
  const seen = new Set([entry]);
  // The loop also visits what it adds.
  for (const file of seen) {
    yield file;
    for (const { target } of listImports(file)) {
      if (seen.size >= MAX_MODULES) break;
      if (target !== undefined && MODULE.test(target)) seen.add(target);
    }
  }
}

function locateTarget(specifier: string, importer: string): string | undefined {
  if (specifier.startsWith('file:')) return fileURLToPath(specifier);
  if (/^\.{0,2}\//.test(specifier)) return resolve(dirname(importer), specifier);
  return findAlias(specifier, importer)?.file;
}

function readText(file: string): string {
  try {
    return statSync(file).size > MAX_MODULE_BYTES ? '' : readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Compiles each module without running it; throws the error that has the message given first. */
const CHECK = `
  import { readFileSync } from 'node:fs';
  import { stripTypeScriptTypes } from 'node:module';
  import { SourceTextModule } from 'node:vm';
  const [message, ...files] = process.argv.slice(1);
  for (const file of files) {
    try {
      const text = readFileSync(file, 'utf8');
      new SourceTextModule(/ts$/.test(file) ? stripTypeScriptTypes(text) : text, { identifier: file });
    } catch (error) {
      if (error.message === message) throw error;
    }
  }`;

/**
 * Returns what Node prints for the first syntax error with this message: `file:line`, the line, a marker. Runs in a
 * process of its own, because Node adds the place only to uncaught errors.
 */
export function findSyntaxError(entry: string, message: string): string | undefined {
  const options = ['--no-warnings', '--experimental-vm-modules', '--input-type=module'];
  const args = [...options, '--eval', CHECK, '--', message, ...walkModules(entry)];
  const { stderr } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: CHECK_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  return stderr || undefined;
}
