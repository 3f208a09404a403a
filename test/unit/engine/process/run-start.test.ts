import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  isOddName,
  makeEnvironment,
  shellArgs,
  writeRunScript,
} from '../../../../src/engine/process/run-start.ts';
import {
  parseRunExit,
  parseRunRecord,
  writeRunRecord,
} from '../../../../src/engine/process/runs.ts';
import type { Device } from '../../../../src/wire/link/worker-link.ts';

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

const runFile = '/c/1/run-1';
const folders = { disk: '/c/1/disk', temporary: '/c/1/disk/tmp', mount: undefined };
const spec = {
  id: 'pod_a',
  generation: 1,
  labels: {},
  image: 'none',
  args: '',
  handler: null,
  env: {},
  ports: [],
  diskGb: 1,
  registry: null,
  mounts: [],
  gpus: [],
  limits: null,
  network: null,
};

function device(uuid: string, index: number, kind: Device['kind'] = 'gpu'): Device {
  return { kind, index, uuid, name: 'pretended', memoryBytes: 1 };
}

const nvidia = [device('GPU-a', 0), device('GPU-b', 1), device('GPU-c', 2)];

function pin(gpus: string[], devices: Device[]): Record<string, string> {
  const made = makeEnvironment({
    run: runFile,
    spec: { ...spec, gpus },
    folders,
    ports: [],
    devices,
  });
  const names = /^(?:CUDA|NVIDIA|ROCR|HIP|ZE)_/;
  return Object.fromEntries(Object.entries(made).filter(([name]) => names.test(name)));
}

describe('the environment of a container', () => {
  it('contains PATH, its own folders and a language', () => {
    expect(makeEnvironment({ run: runFile, spec, folders, ports: [], devices: [] })).toEqual({
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: '/c/1/disk',
      TMPDIR: '/c/1/disk/tmp',
      LANG: 'C.UTF-8',
      MILLRACE_RUN: runFile,
    });
  });

  it('is overridden by the spec, except for ports and GPUs', () => {
    const env = { PATH: '/opt', A: 'b', PORT: '1', CUDA_VISIBLE_DEVICES: 'all' };
    const ports = [{ private: 80, public: 4_000, type: 'http' as const, ip: '127.0.0.1' }];
    const made = makeEnvironment({
      run: runFile,
      spec: { ...spec, env },
      folders,
      ports,
      devices: nvidia,
    });
    expect(made).toMatchObject({ PATH: '/opt', A: 'b', PORT: '4000', CUDA_VISIBLE_DEVICES: '-1' });
  });

  it('has the operator’s defaults, which the spec overrides', () => {
    const defaults = { LANG: 'de', A: 'default', B: 'default' };
    const options = {
      run: runFile,
      spec: { ...spec, env: { A: 'b' } },
      folders,
      ports: [],
      devices: [],
    };
    expect(makeEnvironment({ ...options, defaults })).toMatchObject({
      ...{ LANG: 'de', A: 'b', B: 'default' },
    });
  });

  it('names the port of each private port, and the first as PORT', () => {
    const ports = [9_000, 8_000].map((own, place) => ({
      private: own,
      public: 4_000 + place,
      type: 'tcp' as const,
      ip: '127.0.0.1',
    }));
    expect(makeEnvironment({ run: runFile, spec, folders, ports, devices: [] })).toMatchObject({
      PORT: '4000',
      MILLRACE_PORT_9000: '4000',
      MILLRACE_PORT_8000: '4001',
    });
  });

  it('names the folder of its mount', () => {
    const options = {
      run: runFile,
      spec,
      folders: { ...folders, mount: '/v/data' },
      ports: [],
      devices: [],
    };
    expect(makeEnvironment(options)).toMatchObject({ MILLRACE_MOUNT: '/v/data' });
  });
});

describe('GPUs', () => {
  it('are shown by their UUIDs for NVIDIA, in the order given', () => {
    expect(pin(['GPU-c', 'GPU-a'], nvidia)).toEqual({
      CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
      CUDA_VISIBLE_DEVICES: 'GPU-c,GPU-a',
      NVIDIA_VISIBLE_DEVICES: 'GPU-c,GPU-a',
      HIP_VISIBLE_DEVICES: '-1',
    });
  });

  it('are all hidden from a container without any', () => {
    expect(pin([], nvidia)).toEqual({
      CUDA_VISIBLE_DEVICES: '-1',
      NVIDIA_VISIBLE_DEVICES: 'void',
      HIP_VISIBLE_DEVICES: '-1',
    });
  });

  it('are shown by their indices for AMD, without a conflicting CUDA variable', () => {
    const amd = [device('amd-x', 0), device('amd-y', 1)];
    expect(pin(['amd-y'], amd)).toEqual({ ROCR_VISIBLE_DEVICES: '1', HIP_VISIBLE_DEVICES: '0' });
  });

  it('are shown by their indices for Intel', () => {
    expect(pin(['intel-x'], [device('intel-x', 3)])).toMatchObject({
      ZE_AFFINITY_MASK: '3',
      CUDA_VISIBLE_DEVICES: '-1',
    });
  });

  it('are not mentioned on a machine without GPUs', () => {
    expect(pin([], [device('cpu', 0, 'cpu')])).toEqual({});
  });
});
