// Replaces dist by a finished build with one rename, because npx builds a linked checkout while a
// platform may run from it.
import { cpSync, existsSync, renameSync, rmSync } from 'node:fs';

cpSync('src/cli/commands/init-template', 'dist.new/cli/commands/init-template', {
  recursive: true,
});
cpSync('src/process/python', 'dist.new/process/python', { recursive: true });
cpSync('src/wire/link/worker.proto', 'dist.new/wire/link/worker.proto');
rmSync('dist.old', { recursive: true, force: true });
if (existsSync('dist')) renameSync('dist', 'dist.old');
renameSync('dist.new', 'dist');
rmSync('dist.old', { recursive: true, force: true });
