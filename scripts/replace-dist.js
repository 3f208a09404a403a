// Replaces dist by a finished build with one rename, because npx builds a linked checkout while a
// platform may run from it.
import { cpSync, existsSync, globSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { followDeclarations } from './declarations.js';

cpSync('src/cli/commands/init-template', 'dist.new/cli/commands/init-template', {
  recursive: true,
});
cpSync('src/process/python', 'dist.new/process/python', { recursive: true });
cpSync('src/wire/link/worker.proto', 'dist.new/wire/link/worker.proto');
removeUnneededDeclarations();
rmSync('dist.old', { recursive: true, force: true });
if (existsSync('dist')) renameSync('dist', 'dist.old');
renameSync('dist.new', 'dist');
rmSync('dist.old', { recursive: true, force: true });

/** Most declarations describe internals: thousands of small files for whoever installs the package. */
function removeUnneededDeclarations() {
  const { exports } = JSON.parse(readFileSync('package.json', 'utf8'));
  const types = Object.values(exports).flatMap((each) => each.types ?? []);
  const { files } = followDeclarations(types.map((path) => path.replace(/^.\/dist/, 'dist.new')));
  for (const path of globSync('dist.new/**/*.d.ts')) if (!files.has(resolve(path))) rmSync(path);
}
