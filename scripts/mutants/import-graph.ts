// Finds the test files nearest to a source file in the import graph.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseSync } from 'oxc-parser';

/** Unit and conformance tests by source file, the nearest first: paths relative to `root`. */
export type FindTests = (sourceFile: string) => string[];

const TEST = /^test\/(unit|conformance)\/.*\.test\.ts$/;

/** @param files all TypeScript files under `root` */
export function createFindTests(root: string, files: readonly string[]): FindTests {
  const importers = new Map<string, string[]>();
  for (const file of files) {
    for (const imported of listImports(root, file)) {
      importers.set(imported, [...(importers.get(imported) ?? []), file]);
    }
  }
  return (sourceFile) => {
    const distances = measureDistances(sourceFile, importers);
    const tests = [...distances].filter(([file]) => TEST.test(file));
    const rank = ([file, distance]: readonly [string, number]) =>
      distance - 3 * countSharedFolders(sourceFile, file);
    return tests.toSorted((a, b) => rank(a) - rank(b)).map(([file]) => file);
  };
}

function listImports(root: string, file: string): string[] {
  const source = readFileSync(join(root, file), 'utf8');
  const { module } = parseSync(file, source);
  const requests = [
    // Entry files of threads and processes, which are not imported.
    ...[...source.matchAll(/new URL\('(\.[^']+\.ts)'/g)].map(([, path]) => path ?? ''),
    ...module.staticImports.map(({ moduleRequest }) => moduleRequest.value),
    ...module.staticExports.flatMap(({ entries }) =>
      entries.map(({ moduleRequest }) => moduleRequest?.value ?? ''),
    ),
  ];
  return requests.filter((path) => path.startsWith('.')).map((path) => join(dirname(file), path));
}

function measureDistances(
  start: string,
  importers: ReadonlyMap<string, readonly string[]>,
): Map<string, number> {
  const distances = new Map([[start, 0]]);
  // The loop also visits the entries that it adds.
  for (const [file, distance] of distances) {
    for (const importer of importers.get(file) ?? []) {
      if (!distances.has(importer)) distances.set(importer, distance + 1);
    }
  }
  return distances;
}

/**
 * Counts common path segments: `src/queue/leases/leases.ts` and
 * `test/unit/queue/leases/worker-loads.test.ts` share two; an equal name counts too.
 */
function countSharedFolders(sourceFile: string, testFile: string): number {
  const source = sourceFile.replace(/\.ts$/, '').split('/').slice(1);
  const test = testFile
    .replace(/\.test\.ts$/, '')
    .split('/')
    .slice(2);
  let shared = 0;
  while (shared < source.length && source[shared] === test[shared]) shared += 1;
  return shared;
}
