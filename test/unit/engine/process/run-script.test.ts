import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  parseRunExit,
  parseRunRecord,
  writeRunRecord,
} from '../../../../src/engine/process/run-record.ts';
import { isOddName, shellArgs, writeRunScript } from '../../../../src/engine/process/run-script.ts';

const note = {
  startedAt: 5,
  ports: [],
  groups: { tracking: null, memory: null, cpu: null, pids: null },
  gpus: [],
  exitFile: 'exit-ab',
};

interface Started {
  env?: Record<string, string>;
  odd?: Record<string, string>;
  input?: string;
  /** Changes the script on its way. */
  cut?: (text: string) => string;
}

/** In a group of its own, as it ends with all of that. */
function run(command: string[], started: Started = {}) {
  const { cut = (text) => text, env = {}, input, odd = {} } = started;
  const child = spawn('/bin/sh', shellArgs('run-1'), {
    env,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  });
  let printed = '';
  let exit = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (data) => {
      printed += data.toString();
    });
  }
  child.stdio[3]?.on('data', (data) => {
    exit += data.toString();
  });
  child.stdin?.end(cut(writeRunScript({ command, oddVariables: odd, input })));
  const ended = once(child, 'close').then(() => ({ printed, exit: parseRunExit(exit) }));
  return { child, ended };
}

describe('the script of a run', () => {
  it('records how its command ended', async () => {
    const { ended } = run(['/bin/sh', '-c', 'exit 42']);
    expect((await ended).exit).toMatchObject({ exitCode: 42, outOfMemory: false });
  });

  it('runs nothing if it arrives incomplete', async () => {
    const command = ['/bin/echo', 'ran'];
    const input = 'line';
    const script = writeRunScript({ command, oddVariables: {}, input });
    const { length } = script;
    for (const end of [0, 30, script.indexOf(input) + 2, length - 20, length - 3]) {
      const { ended } = run(command, { input, cut: (text) => text.slice(0, end) });
      const { exit, printed } = await ended;
      expect(exit.exitCode).toBeNull();
      expect(printed).not.toContain('ran');
    }
  });

  it('survives SIGTERM to the whole group, and its command receives it', async () => {
    const script = 'trap "exit 9" TERM; echo up; while :; do sleep 0.1; done';
    const { child, ended } = run(['/bin/sh', '-c', script], { env: { PATH: '/usr/bin:/bin' } });
    if (child.stdout) await once(child.stdout, 'data');
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM');
    expect((await ended).exit).toMatchObject({ exitCode: 9 });
  });

  it('does not depend on the command’s PATH', async () => {
    const { ended } = run(['/bin/echo', 'found'], { env: { PATH: '/nowhere' } });
    expect((await ended).printed).toBe('found\n');
  });

  it('adds nothing to the environment and passes on variables that a shell would not', async () => {
    const odd = { IFS: ':', PWD: '/else', 'a.b': "it's\n$x", SHLVL: '7', PPID: '1', _: 'u' };
    const command = [process.execPath, '-p', 'JSON.stringify(process.env)'];
    const { printed } = await run(command, { odd, env: { PLAIN: 'a\n"b"' } }).ended;
    expect(JSON.parse(printed)).toEqual({ ...odd, PLAIN: 'a\n"b"' });
  });

  it('passes no open file and no input to the command', async () => {
    const look = 'for fd in 3 4 5; do [ -e /proc/self/fd/$fd ] && echo open; done; cat; echo end';
    const { ended } = run(['/bin/sh', '-c', look], { env: { PATH: '/usr/bin:/bin' } });
    expect((await ended).printed).toBe('end\n');
  });

  it('gives the command its input as it is', async () => {
    const input = JSON.stringify({ KEY: `'a' "b" $c \\ \`d\`\n` });
    const { ended } = run(['/bin/cat'], { input });
    expect((await ended).printed).toBe(`${input}\n`);
  });

  it('ends the remaining processes of its group', async () => {
    // It has the output open, which is closed when the last of them has ended.
    const { ended } = run(['/bin/sh', '-c', 'sleep 1000 & echo up'], {
      env: { PATH: '/usr/bin:/bin' },
    });
    expect((await ended).printed).toBe('up\n');
  });

  it('prints nothing when the command is killed', async () => {
    const { ended } = run(['/bin/sh', '-c', 'kill -9 $$']);
    expect(await ended).toMatchObject({ printed: '', exit: { exitCode: 137 } });
  });
});

describe('a variable name that a shell drops', () => {
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
    'is %s, unless this machine’s shell passes it on',
    (name) => {
      const env = { [name]: 'kept' };
      const { stdout } = spawnSync('/bin/sh', ['-c', '/usr/bin/env'], { env, encoding: 'utf8' });
      expect(isOddName(name) || stdout.includes(`${name}=kept\n`)).toBe(true);
    },
  );
});

describe('the record of a run', () => {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const text = writeRunRecord(stat, 'boot', note);

  it('is missing until it is complete, or if it is damaged', () => {
    for (let end = 0; end < text.length; end++) {
      expect(parseRunRecord(text.slice(0, end))).toBeUndefined();
    }
    expect(parseRunRecord(text.replace('"ports":[]', '"ports":{}'))).toBeUndefined();
    expect(parseRunRecord(text.replace('exit-ab', '../../container.json'))).toBeUndefined();
    expect(parseRunRecord(text)).toMatchObject({ ...note, leader: { pid: process.pid } });
  });
});

describe('the exit code of a run', () => {
  it('is missing until it is complete', () => {
    expect(parseRunExit('13').exitCode).toBeNull();
    expect(parseRunExit('137\n').exitCode).toBe(137);
  });

  it('is the first recorded one', () => {
    expect(parseRunExit('3\n137\n').exitCode).toBe(3);
    expect(parseRunExit('x\n-1\n99999\n').exitCode).toBeNull();
  });
});
