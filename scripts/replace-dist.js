// Puts a finished build in the place of the one before it, from one moment to the next: npx builds a
// checkout that it links, and a platform that is running from it must not lose its files meanwhile.
import { cpSync, existsSync, renameSync, rmSync } from 'node:fs';

cpSync('src/cli/commands/init-template', 'dist.new/cli/commands/init-template', {
  recursive: true,
});
cpSync('src/wire/link/worker.proto', 'dist.new/wire/link/worker.proto');
rmSync('dist.old', { recursive: true, force: true });
if (existsSync('dist')) renameSync('dist', 'dist.old');
renameSync('dist.new', 'dist');
rmSync('dist.old', { recursive: true, force: true });
