// Finds the declarations that an entry of the package needs.
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** @returns the paths of the declarations, and the packages that they import */
export function followDeclarations(entries) {
  const files = new Set(entries.map((entry) => resolve(entry)));
  const packages = new Set();
  // The loop also visits what it adds.
  for (const file of files) {
    const code = readFileSync(file, 'utf8').replaceAll(/\/\*[\s\S]*?\*\//g, '');
    for (const [, specifier] of code.matchAll(/(?:from|import\() ?['"]([^'"]+)['"]/g)) {
      if (specifier.startsWith('.')) {
        files.add(resolve(dirname(file), specifier.replace(/\.[tj]s$/, '.d.ts')));
      } else if (!specifier.startsWith('node:')) {
        packages.add(/^(@[^/]+\/)?[^/]+/.exec(specifier)[0]);
      }
    }
  }
  return { files, packages };
}
