// Builds a base image for Dockerfile.worker without a registry: the Node that runs the tests, its
// npm, and the programs that the build calls, each with its shared libraries.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';

const execute = promisify(execFile);

const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';
const PATH = '/usr/local/bin:/usr/bin:/bin';

/** Programs that the machine must have, by name. */
interface Parts {
  busybox: string;
  'tini-static': string;
  ldd: string;
  npm: string;
}

/** Returns the parts, or a sentence about the first missing one. */
export function findParts(): Parts | string {
  if (process.platform !== 'linux') return 'the base image is made of a Linux machine’s own files';
  const parts = {
    busybox: findProgram('busybox'),
    'tini-static': findProgram('tini-static'),
    ldd: findProgram('ldd'),
    npm: findProgram('npm'),
  };
  const { busybox, 'tini-static': tini, ldd, npm } = parts;
  if (busybox && tini && ldd && npm) return { busybox, 'tini-static': tini, ldd, npm };
  const missing = Object.entries(parts).filter(([, path]) => path === undefined);
  return `the base image needs ${missing.map(([name]) => name).join(', ')}`;
}

function findProgram(name: string): string | undefined {
  return (process.env['PATH'] ?? '')
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));
}

/** Imports the image under the tag into the engine that `docker` reaches. */
export async function importBaseImage(tag: string, parts: Parts): Promise<void> {
  const root = mkdtempSync(join(tmpdir(), 'millrace-base-'));
  try {
    await furnish(root, parts);
    const environment = [`PATH=${PATH}`, `NODE_EXTRA_CA_CERTS=${CERTIFICATES}`];
    const changes = environment.flatMap((each) => ['--change', `ENV ${each}`]);
    const pack = spawn('tar', ['--owner=0', '--group=0', '-C', root, '-c', '.'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const load = spawn('docker', ['import', ...changes, '-', tag], {
      stdio: ['pipe', 'ignore', 'inherit'],
    });
    const ends = Promise.all([once(pack, 'close'), once(load, 'close')]);
    await pipeline(pack.stdout, load.stdin);
    const [[packed], [loaded]] = await ends;
    if (packed !== 0 || loaded !== 0) throw new Error('the base image cannot be imported');
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

async function furnish(root: string, parts: Parts): Promise<void> {
  const bin = join(root, 'usr/local/bin');
  for (const folder of ['etc', 'root', 'tmp', 'bin', 'usr/bin', 'usr/local/bin']) {
    mkdirSync(join(root, folder), { recursive: true });
  }
  chmodSync(join(root, 'tmp'), 0o1777);
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\n');
  copyInto(root, CERTIFICATES);

  copyFileSync(process.execPath, join(bin, 'node'));
  copyFileSync(parts['tini-static'], join(bin, 'tini-static'));
  copyFileSync(parts.busybox, join(root, 'bin/busybox'));
  for (const program of [process.execPath, parts.busybox]) {
    for (const library of await listLibraries(parts.ldd, program)) copyInto(root, library);
  }
  const { stdout } = await execute(parts.busybox, ['--list']);
  for (const applet of stdout.split('\n').filter((name) => name && name !== 'busybox')) {
    symlinkSync('/bin/busybox', join(root, 'bin', applet));
  }
  // Scripts call it by this path.
  symlinkSync('/bin/busybox', join(root, 'usr/bin/env'));

  const npmHome = dirname(dirname(realpathSync(parts.npm)));
  cpSync(npmHome, join(root, 'usr/local/lib/npm'), { recursive: true });
  symlinkSync('../lib/npm/bin/npm-cli.js', join(bin, 'npm'));
}

/** Copies a file to the same path below the root; a link becomes the file that it leads to. */
export function copyInto(root: string, path: string): void {
  mkdirSync(join(root, dirname(path)), { recursive: true });
  copyFileSync(path, join(root, path));
}

/** Of glibc, as every image with it has them: packages with native code need them. */
const NATIVE_LIBRARIES = ['libresolv.so.2', 'librt.so.1'];

/** Returns the shared libraries of a program, and those of native packages; none for a static one. */
export async function listLibraries(ldd: string, program: string): Promise<string[]> {
  const linked = await execute(ldd, [program]).catch(() => ({ stdout: '' }));
  const libraries = [...linked.stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path);
  const beside = libraries.find((path) => path.endsWith('/libc.so.6'));
  if (!beside) return libraries;
  const others = NATIVE_LIBRARIES.map((name) => join(dirname(beside), name));
  return [...new Set([...libraries, ...others.filter((path) => existsSync(path))])];
}
