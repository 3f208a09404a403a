// Pods as another user: only root can start one, so that these tests run where they are root's.
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { removeAsOwner } from '../../../../src/engine/process/pod-user.ts';
import { makeSpec, OnePod, shell } from '../../../support/containers/one-pod.ts';

const podUser = { uid: 65_534, gid: 65_534, name: 'nobody' };
const mounts = [{ kind: 'persistent' as const, source: 'data', path: '/data' }];
let pod: OnePod;

beforeEach(() => {
  pod = new OnePod();
  chmodSync(pod.folder, 0o711);
  pod.engine = pod.open({ podUser });
});

afterEach(() => pod.clear());

describe.skipIf(process.geteuid?.() !== 0)('a pod with its own user', () => {
  it('has its user, no group of root, and its own files', async () => {
    const script =
      'id -u; id -g; id -G; umask; echo x > file; echo y > data/file; ls "$HOME" "$TMPDIR"';
    expect(await pod.printed({ args: shell(script), mounts })).toMatch(
      /^65534\n65534\n65534\n0022\n.*file/s,
    );
    for (const path of [pod.disk, join(pod.folder, 'volumes/pod_a/data')]) {
      expect(statSync(path)).toMatchObject({ uid: 65_534, gid: 65_534 });
      expect(statSync(path).mode & 0o777).toBe(0o700);
    }
  });

  it('cannot read, change or list the engine’s files or the folder above', async () => {
    writeFileSync(join(pod.folder, 'secret'), 'key', { mode: 0o600 });
    const { folder, home } = pod;
    const paths = [`${home}/container.json`, `${home}/run-1`, `${home}/log`, `${folder}/secret`];
    const tries = [
      ...paths.flatMap((path) => [`cat ${path}`, `echo x >> ${path}`, `rm -f ${path}`]),
      ...['', 'containers', 'disks', 'volumes'].map((name) => `ls ${folder}/${name}`),
      `mkdir ${folder}/disks/x`,
      'mv "$HOME" "$HOME.x"',
      'cat /proc/$PPID/mem',
    ];
    const script = tries.map((each) => `(${each}) 2>/dev/null && echo "did ${each}"`).join('\n');
    expect(await pod.printed({ args: shell(`${script}\necho end`) })).toBe('end\n');
  });

  it('can open its output by name', async () => {
    const script = 'echo one >> /dev/stdout; echo two >> /dev/stderr';
    expect(await pod.printed({ args: shell(script) })).toBe('one\ntwo\n');
  });

  it('cannot become root by its environment', async () => {
    writeFileSync(join(pod.folder, 'env.sh'), `id -u >> ${pod.folder}/who`, { mode: 0o644 });
    const env = { ENV: `${pod.folder}/env.sh`, BASH_ENV: `${pod.folder}/env.sh` };
    await pod.printed({ args: shell('true'), env: { ...env, LD_PRELOAD: '/nowhere.so' } });
    expect(existsSync(join(pod.folder, 'who'))).toBe(false);
  });

  it('is refused with an unreadable handler, with a remedy', async () => {
    const handler = join(pod.folder, 'handler.mjs');
    writeFileSync(handler, '', { mode: 0o600 });
    await expect(pod.engine.create(makeSpec({ handler }))).rejects.toMatchObject({
      code: 'refused',
      message: expect.stringMatching(/handler\.mjs.*nobody.*--pod-user root/),
    });
    chmodSync(handler, 0o644);
    await pod.engine.create(makeSpec({ handler }));
  });

  it('is removed with all of its files, even in unreadable folders', async () => {
    const script =
      'mkdir -p a/.b; echo x > a/.b/c; chmod 0 a/.b; chmod 500 a .; echo x > data/file';
    await pod.printed({ args: shell(script), mounts });
    await pod.engine.remove('pod_a', 'remove');
    expect(readdirSync(join(pod.folder, 'discarded'))).toEqual([]);
    expect(readdirSync(join(pod.folder, 'volumes'))).toEqual([]);
  });

  it('cannot take over a file of root by a hard link in place of its temporary folder', async () => {
    const secret = join(pod.folder, 'secret');
    writeFileSync(secret, 'key', { mode: 0o600 });
    await pod.printed({ args: shell('echo x') });
    rmSync(join(pod.disk, 'tmp'), { recursive: true });
    linkSync(secret, join(pod.disk, 'tmp'));
    await pod.engine.start('pod_a');
    await pod.untilPrinted('x\nx\n');
    expect(statSync(secret).uid).toBe(0);
  });

  it('keeps the files that it wrote as root', async () => {
    pod.engine = pod.open();
    await pod.printed({ args: shell('echo x >> file; wc -l < file; echo y >> data/file'), mounts });
    pod.engine = pod.open({ podUser });
    await pod.engine.start('pod_a');
    await pod.untilPrinted('2\n');
    expect(await pod.untilExited()).toMatchObject({ exitCode: 0 });
  });
});

describe.skipIf(process.geteuid?.() !== 0)('a folder that is removed as its owner', () => {
  it('is removed without the targets of its links', async () => {
    const own = join(pod.folder, 'own');
    const other = join(pod.folder, 'other');
    for (const path of [own, other]) mkdirSync(path);
    writeFileSync(join(other, 'file'), '');
    symlinkSync(other, join(own, 'link'));
    execFileSync('chown', ['-hR', '65534:65534', own]);
    await removeAsOwner(own);
    expect(existsSync(own)).toBe(false);
    expect(readFileSync(join(other, 'file'), 'utf8')).toBe('');
  });

  it('is removed by two removals at once', async () => {
    const own = join(pod.folder, 'own');
    mkdirSync(join(own, 'inner'), { recursive: true });
    execFileSync('chown', ['-hR', '65534:65534', own]);
    await Promise.all([removeAsOwner(own), removeAsOwner(own), removeAsOwner(own)]);
    expect(existsSync(own)).toBe(false);
  });

  it.each(['own', 'own/inner'])('is never removed as root: %s', async (name) => {
    const kept = join(pod.folder, 'own/inner/closed');
    mkdirSync(kept, { recursive: true });
    execFileSync('chown', ['-hR', '65534:65534', join(pod.folder, 'own')]);
    execFileSync('chown', ['-h', '0:0', kept]);
    writeFileSync(join(kept, 'file'), '');
    await expect(removeAsOwner(join(pod.folder, name))).rejects.toThrow();
    expect(existsSync(join(kept, 'file'))).toBe(true);
  });
});
