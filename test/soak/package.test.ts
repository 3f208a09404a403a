// Installs a scaffolded project with the install scripts of its packages, one of which downloads Node.
// test/e2e/package.test.ts skips those scripts.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { npm, outerPath, packInto } from '../support/npm.ts';

const execute = promisify(execFile);
const launcher = resolve(import.meta.dirname, '../../bin/millrace.js');

it.each(['typescript', 'python', 'openai-proxy', 'image'])(
  'installs Node 24 in a project of the template %s, checks its types and passes its test',
  async (template) => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-package-'));
    try {
      const packed = join(folder, 'packed');
      mkdirSync(packed);
      const tarball = await packInto(packed);
      const init = [launcher, 'init', 'my-worker', '--from', tarball, '--template', template];
      await execute(process.execPath, init, { cwd: folder });
      const project = join(folder, 'my-worker');
      await npm(['install'], project);
      await npm(['run', 'check'], project);
      await npm(['test'], project);
      const node = join(project, 'node_modules/.bin/node');
      const { stdout } = await execute(node, ['--version'], { env: { PATH: outerPath } });
      expect(stdout).toMatch(/^v24\./);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
