// Ends with 0 if `dist` was built from the present sources: a build after it would write the same again. Otherwise begins
// `dist.new` with their hash, which becomes that of `dist` when the build has ended.
import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

const MARK = 'built-from';
/** All that the images copy for their build, so that a build depends on nothing else. */
const SOURCES = ['{package,package-lock,tsconfig,tsconfig.build}.json', '{scripts,console,src}/**'];

const hash = createHash('sha256').update(process.version);
for (const entry of globSync(SOURCES, { withFileTypes: true }).sort(byPath)) {
  if (entry.isFile()) hash.update(`\0${pathOf(entry)}\0`).update(readFileSync(pathOf(entry)));
}
const built = hash.digest('hex');

if (!existsSync(`dist/${MARK}`) || readFileSync(`dist/${MARK}`, 'utf8') !== built) {
  process.exitCode = 1;
  rmSync('dist.new', { recursive: true, force: true });
  mkdirSync('dist.new');
  writeFileSync(`dist.new/${MARK}`, built);
}

function pathOf({ name, parentPath }) {
  return `${parentPath}/${name}`;
}

function byPath(a, b) {
  return pathOf(a) < pathOf(b) ? -1 : 1;
}
