// The base image with what the official Node images have besides Node, as far as the projects of `millrace init` need it: the
// user `node`. And Python, which the template `python` would install with apt.
import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { copyInto, listLibraries } from './base-image.ts';
import { docker } from './docker.ts';

const execute = promisify(execFile);

/** Of the standard library: large, and not needed here. */
const LEFT_OUT: ReadonlySet<string> = new Set([
  ...['__pycache__', 'test', 'idlelib', 'tkinter', 'ensurepip', 'dist-packages', 'site-packages'],
]);

/** Builds the image under `tag` on the base image `base`, with the Python of this machine. */
export async function buildProjectBase(
  tag: string,
  { base, ldd }: { base: string; ldd: string },
): Promise<void> {
  const context = mkdtempSync(join(tmpdir(), 'millrace-project-base-'));
  try {
    await copyPython(join(context, 'root'), ldd);
    const user = [
      "echo 'node:x:1000:1000::/home/node:/bin/sh' >>/etc/passwd",
      "echo 'node:x:1000:' >>/etc/group",
      'mkdir -p /home/node && chown 1000:1000 /home/node',
    ];
    const lines = [`FROM ${base}`, 'COPY root/ /', `RUN ${user.join(' && ')}`];
    writeFileSync(join(context, 'Dockerfile'), `${lines.join('\n')}\n`);
    await docker('build', '--force-rm', '--tag', tag, context);
  } finally {
    rmSync(context, { recursive: true, force: true });
  }
}

/** At the same paths as on this machine, because Python finds its library from its own path. */
async function copyPython(root: string, ldd: string): Promise<void> {
  const command = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : 'python3';
  const show =
    'import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path("stdlib"))';
  const { stdout } = await execute(command, ['-c', show]);
  const [program = '', library = ''] = stdout.trim().split('\n');
  for (const path of [program, ...(await listLibraries(ldd, program))]) copyInto(root, path);
  cpSync(library, join(root, library), {
    recursive: true,
    filter: (path) => !LEFT_OUT.has(basename(path)),
  });
  const link = join(root, 'usr/local/bin/python3');
  mkdirSync(dirname(link), { recursive: true });
  symlinkSync(program, link);
}
