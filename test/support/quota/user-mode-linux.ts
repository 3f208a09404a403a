// Boots User-Mode Linux, a kernel that runs as a process, for what the kernel of this machine may lack: file systems with
// project quotas. The guest sees the files of this machine, read-only.
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const KERNEL = '/usr/bin/linux.uml';
const MODULES = '/usr/lib/uml/modules';
const PROGRAMS = [
  '/usr/sbin/setquota',
  '/usr/sbin/mkfs.xfs',
  '/usr/sbin/mkfs.ext4',
  '/usr/sbin/insmod',
];
/** mkfs.xfs refuses less than 300 MB; the files are sparse. */
const DISK_BYTES = 400_000_000;
const RESULT = 'guest result: ';
const BOOT_LIMIT_MS = 90_000;

/** Why it cannot run here; undefined if it can. */
export function findGuestTrouble(): string | undefined {
  if (process.geteuid?.() !== 0) return 'User-Mode Linux needs root here';
  const missing = [KERNEL, MODULES, ...PROGRAMS].find((path) => !existsSync(path));
  if (missing === undefined) return undefined;
  return `${missing} is missing; install user-mode-linux, quota, xfsprogs, e2fsprogs and kmod`;
}

/**
 * Runs the TypeScript program in a guest with /mnt/xfs and /mnt/ext4, both with project quotas, and /mnt/plain without.
 * Resolves with what the program gave to `reportResult`, as JSON.
 */
export async function runInGuest(program: string): Promise<unknown> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-guest-'));
  try {
    const [xfs, ext4] = [join(folder, 'xfs'), join(folder, 'ext4')];
    for (const path of [xfs, ext4]) {
      writeFileSync(path, '');
      truncateSync(path, DISK_BYTES);
    }
    execFileSync('/usr/sbin/mkfs.xfs', ['-q', xfs]);
    const features = ['-O', 'project,quota', '-E', 'quotatype=prjquota'];
    execFileSync('/usr/sbin/mkfs.ext4', ['-q', ...features, ext4]);
    const init = join(folder, 'init');
    writeFileSync(init, writeInit(program));
    chmodSync(init, 0o755);
    return readResult(await boot([`ubdb=${xfs}`, `ubdc=${ext4}`, `init=${init}`]));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** In the guest. */
export function reportResult(result: unknown): void {
  process.stdout.write(`${RESULT}${JSON.stringify(result)}\n`);
}

function writeInit(program: string): string {
  const [kernel = ''] = readdirSync(MODULES);
  const quota = join(MODULES, kernel, 'kernel/fs/quota');
  return [
    '#!/bin/sh',
    'export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/mnt',
    'mount -t proc proc /proc; mount -t sysfs sys /sys',
    'mount -t tmpfs mnt /mnt',
    `insmod ${quota}/quota_tree.ko; insmod ${quota}/quota_v2.ko`,
    'mkdir /mnt/xfs /mnt/ext4 /mnt/plain',
    'mount -o prjquota /dev/ubdb /mnt/xfs; mount -o prjquota /dev/ubdc /mnt/ext4',
    `'${process.execPath}' '${program}'`,
    'umount /mnt/xfs /mnt/ext4',
    'halt -f',
  ].join('\n');
}

function boot(args: readonly string[]): Promise<string> {
  const fixed = ['mem=1G', 'rootfstype=hostfs', 'ro', 'con=null', 'con0=fd:0,fd:1', 'quiet'];
  const guest = spawn(KERNEL, [...fixed, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: BOOT_LIMIT_MS,
    killSignal: 'SIGKILL',
  });
  let output = '';
  for (const stream of [guest.stdout, guest.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  return new Promise((resolve, reject) => {
    guest.on('error', reject);
    guest.on('close', () => resolve(output));
  });
}

function readResult(output: string): unknown {
  const line = output.split('\n').find((each) => each.startsWith(RESULT));
  if (line === undefined) throw new Error(`the guest gave no result:\n${output}`);
  return JSON.parse(line.slice(RESULT.length));
}
