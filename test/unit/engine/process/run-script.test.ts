import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parseRunRecord } from '../../../../src/engine/process/run-record.ts';
import { isOddName, writeRunScript } from '../../../../src/engine/process/run-script.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-script-'));
const note = { startedAt: 5, ports: [], groups: { tracking: null, memory: null, cpu: null } };
let made = 0;

afterAll(() => rmSync(folder, { recursive: true }));

function script(
  command: string[],
  oddVariables: Record<string, string> = {},
  joins: string[] = [],
) {
  const runFile = join(folder, `it's run ${++made}`);
  const text = writeRunScript({
    command,
    runFile,
    note: JSON.stringify({ ...note, startedAt: made }),
    joins,
    oddVariables,
  });
  const record = () => parseRunRecord(readFileSync(runFile, 'utf8'));
  return { text, record };
}

/** In a group of its own, as it ends with all of that. */
function run(text: string, env: Record<string, string> = {}) {
  const child = spawn('/bin/sh', ['-c', text], { env, detached: true, stdio: 'pipe' });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data) => {
      printed += data.toString();
    });
  }
  return { child, ended: once(child, 'close').then(() => printed) };
}

describe('the script of a run', () => {
  it('leaves behind who led it and how it ended', async () => {
    const { record, text } = script(['/bin/sh', '-c', 'exit 42']);
    const { child, ended } = run(text);
    await ended;
    expect(record()).toMatchObject({ ...note, startedAt: made, exitCode: 42, outOfMemory: false });
    expect(record()?.leader.pid).toBe(child.pid);
  });

  it('runs the command once, however many take it up', async () => {
    const { record, text } = script(['/bin/echo', 'once']);
    const all = await Promise.all([1, 2, 3, 4].map(() => run(text).ended));
    expect(all.join('')).toBe('once\n');
    expect(record()).toMatchObject({ exitCode: 0 });
  });

  it('outlives a TERM for the whole group, which its command gets', async () => {
    const { record, text } = script([
      '/bin/sh',
      '-c',
      'trap "exit 9" TERM; echo up; while :; do sleep 0.1; done',
    ]);
    const { child, ended } = run(text, { PATH: '/usr/bin:/bin' });
    await once(child.stdout, 'data');
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM');
    await ended;
    expect(record()).toMatchObject({ exitCode: 9 });
  });

  it('does not begin outside of its groups', async () => {
    const gone = join(folder, 'gone/cgroup.procs');
    const { record, text } = script(['/bin/echo', 'unlimited'], {}, [gone]);
    expect(await run(text).ended).toBe('');
    expect(record).toThrow('ENOENT');
  });

  it('needs nothing of the PATH that the command is given', async () => {
    const { text } = script(['/bin/echo', 'found']);
    expect(await run(text, { PATH: '/nowhere' }).ended).toBe('found\n');
  });

  it('adds nothing to the environment, and hands down what a shell would not', async () => {
    const odd = { IFS: ':', PWD: '/else', 'a.b': "it's\n$x", SHLVL: '7', PPID: '1', _: 'u' };
    const { text } = script([process.execPath, '-p', 'JSON.stringify(process.env)'], odd);
    const seen = JSON.parse(await run(text, { PLAIN: 'a\n"b"' }).ended);
    expect(seen).toEqual({ ...odd, PLAIN: 'a\n"b"' });
  });

  it('leaves no file open for the command', async () => {
    const look = '[ -e /proc/self/fd/3 ] && echo open || echo closed';
    expect(await run(script(['/bin/sh', '-c', look]).text).ended).toBe('closed\n');
  });

  it('takes along what the command has left of its group', async () => {
    // It has the output open, which is closed when the last of them has ended.
    const { text } = script(['/bin/sh', '-c', 'sleep 1000 & echo up']);
    expect(await run(text, { PATH: '/usr/bin:/bin' }).ended).toBe('up\n');
  });

  it('says nothing itself when the command is killed', async () => {
    const { record, text } = script(['/bin/sh', '-c', 'kill -9 $$']);
    expect(await run(text).ended).toBe('');
    expect(record()).toMatchObject({ exitCode: 137 });
  });
});

describe('a name that is not left to a shell', () => {
  it.each(['PATH', 'HOME', 'A', '_a', 'LD_LIBRARY_PATH', 'PORT', 'CUDA_VISIBLE_DEVICES'])(
    'is not %s',
    (name) => {
      expect(isOddName(name)).toBe(false);
    },
  );

  it.each([
    'PWD',
    'IFS',
    '_',
    'PS1',
    'OPTIND',
    'BASH_ENV',
    'UID',
    'a.b',
    'a-b',
    'RANDOM',
    'LINENO',
  ])('is %s', (name) => {
    expect(isOddName(name)).toBe(true);
  });

  it.each(['PATH', 'PWD', 'IFS', 'OPTIND', 'PPID', 'PS4', 'LINENO', 'UID', 'TERM', 'LANG', 'MAIL'])(
    'is %s, or the shell here passes it on',
    (name) => {
      const env = { [name]: 'kept' };
      const { stdout } = spawnSync('/bin/sh', ['-c', '/usr/bin/env'], { env, encoding: 'utf8' });
      expect(isOddName(name) || stdout.includes(`${name}=kept\n`)).toBe(true);
    },
  );
});

describe('the record of a run', () => {
  const lines = [readFileSync('/proc/self/stat', 'utf8').trim(), 'boot', JSON.stringify(note)].join(
    '\n',
  );

  it('is none before all of it is written', () => {
    for (let end = 0; end <= lines.length; end++) {
      expect(parseRunRecord(lines.slice(0, end))).toBeUndefined();
    }
    expect(parseRunRecord(`${lines}\n`)).toMatchObject({ exitCode: null });
  });

  it('has no exit code before that is written whole', () => {
    expect(parseRunRecord(`${lines}\n13`)?.exitCode).toBeNull();
    expect(parseRunRecord(`${lines}\n137\n`)?.exitCode).toBe(137);
  });

  it('goes by the first who says how it ended', () => {
    expect(parseRunRecord(`${lines}\n3\n137\n`)?.exitCode).toBe(3);
  });
});
