// bin/millrace.js: which Node runs the command, and how signals and exit codes pass through it.
// The real file stands in a small package of its own, whose main does what a test needs.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../..');

const mainSource = `
import { text } from 'node:stream/consumers';

const scenes = {
  async tell(rest) {
    const stdin = await text(process.stdin);
    console.log(JSON.stringify({ major: Number.parseInt(process.versions.node, 10), rest, stdin }));
    return 7;
  },
  wait() {
    const alive = setInterval(() => {}, 1000);
    return new Promise((done) => {
      for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
        process.once(signal, () => {
          clearInterval(alive);
          console.log('ended by ' + signal);
          done(9);
        });
      }
      console.log('waiting');
    });
  },
  die() {
    process.kill(process.pid, 'SIGKILL');
    return new Promise(() => {});
  },
};

export function main([scene, ...rest]) {
  return scenes[scene](rest);
}
`;

/** A Node below 24: the machine's own if it is one, else this one with another version number. */
function findOldNode(): string[] {
  const path = (process.env['PATH'] ?? '').split(delimiter);
  const outside = path.filter((folder) => !folder.includes('node_modules')).join(delimiter);
  const pretend = "Object.defineProperty(process.versions, 'node', { value: '20.0.0' })";
  try {
    const version = execFileSync('node', ['--version'], { env: { PATH: outside } }).toString();
    if (Number.parseInt(version.slice(1), 10) < 24) {
      const find = ['-p', 'process.execPath'];
      return [
        execFileSync('node', find, { env: { PATH: outside } })
          .toString()
          .trim(),
      ];
    }
  } catch {
    // No Node but the one that runs the tests.
  }
  return [process.execPath, '--import', `data:text/javascript,${pretend}`];
}

const oldNode = findOldNode();

let folder: string;
let elsewhere: string;
const started: ChildProcess[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-launcher-'));
  elsewhere = join(folder, 'elsewhere');
  for (const path of ['elsewhere/project', 'package/bin', 'package/dist/cli']) {
    await mkdir(join(folder, path), { recursive: true });
  }
  await copyFile(join(root, 'bin/millrace.js'), join(folder, 'package/bin/millrace.js'));
  await writeFile(join(folder, 'package/package.json'), '{ "type": "module" }');
  await writeFile(join(folder, 'package/dist/cli/main.js'), mainSource);
});

afterEach(async () => {
  for (const child of started.splice(0)) child.kill('SIGKILL');
  await rm(folder, { recursive: true });
});

/** Puts this repository's `node` package into a folder's node_modules. */
async function installNode(at: string): Promise<void> {
  await mkdir(join(at, 'node_modules'));
  await symlink(join(root, 'node_modules/node'), join(at, 'node_modules/node'));
}

/** Puts a `node` package there that says it is older, and ends with 99 if somebody runs it. */
async function installOldNode(at: string): Promise<void> {
  const home = join(at, 'node_modules/node');
  await mkdir(join(home, 'bin'), { recursive: true });
  await writeFile(join(home, 'package.json'), '{ "version": "22.1.0" }');
  await writeFile(join(home, 'bin/node'), '#!/bin/sh\nexit 99\n', { mode: 0o755 });
}

type Start = { node: string[]; args: string[]; stdin?: string; env?: NodeJS.ProcessEnv };

function start({ node: [command = '', ...options], args, stdin = '', env = {} }: Start) {
  const script = join(folder, 'package/bin/millrace.js');
  const child = spawn(command, [...options, script, ...args], {
    cwd: join(elsewhere, 'project'),
    env: { ...process.env, ...env },
  });
  started.push(child);
  child.stdin.end(stdin);
  const ended = Promise.all([text(child.stderr), once(child, 'close')]).then(
    ([stderr, [exitCode, signal]]) => ({ stderr, exitCode, signal }),
  );
  return { child, ended };
}

async function runToEnd(options: Start) {
  const { child, ended } = start(options);
  const [stdout, end] = await Promise.all([text(child.stdout), ended]);
  return { stdout, ...end };
}

/** Starts main's `wait` and returns once it runs; `rest` reads what it prints from then on. */
async function startWaiting() {
  const { child, ended } = start({ node: oldNode, args: ['wait'] });
  const lines = child.stdout[Symbol.asyncIterator]();
  expect(String((await lines.next()).value)).toBe('waiting\n');
  const rest = async () => {
    const { value } = await lines.next();
    return String(value);
  };
  return { child, ended, rest };
}

describe('the command on a supported Node', () => {
  it('runs in the same process', async () => {
    const node = [process.execPath];
    const run = await runToEnd({ node, args: ['tell', '--a', 'b c'], stdin: 'x' });
    expect(JSON.parse(run.stdout)).toMatchObject({ rest: ['--a', 'b c'], stdin: 'x' });
    expect(run).toMatchObject({ exitCode: 7, stderr: '' });
  });

  describe('without NODE_COMPILE_CACHE', () => {
    const tell = async () => {
      const env = { NODE_COMPILE_CACHE: undefined, TMPDIR: elsewhere };
      const run = await runToEnd({ node: [process.execPath], args: ['tell'], env });
      expect(run).toMatchObject({ exitCode: 7, stderr: '' });
    };
    const cache = () => join(elsewhere, `millrace-code-${process.getuid?.()}`);

    it('keeps compiled code in a folder that other users cannot write to', async () => {
      await tell();
      expect((await stat(cache())).mode & 0o777).toBe(0o700);
      expect(await readdir(cache())).toHaveLength(1);
      expect(existsSync(join(elsewhere, 'node-compile-cache'))).toBe(false);
    });

    it('keeps no code if another user can write to the folder, or if the folder is a link', async () => {
      await mkdir(cache());
      await chmod(cache(), 0o777);
      await tell();
      expect(await readdir(cache())).toEqual([]);
      await rm(cache(), { recursive: true });
      await mkdir(join(elsewhere, 'other'));
      await symlink(join(elsewhere, 'other'), cache());
      await tell();
      expect(await readdir(join(elsewhere, 'other'))).toEqual([]);
    });
  });

  it('explains how to build a checkout that was not built', async () => {
    await rm(join(folder, 'package/dist'), { recursive: true });
    const run = await runToEnd({ node: [process.execPath], args: ['tell'] });
    expect(run.exitCode).toBe(2);
    expect(run.stderr).toContain('npm run build');
  });
});

describe('the command on an older Node', () => {
  it('runs on the node package installed above the current folder', async () => {
    await installNode(elsewhere);
    const run = await runToEnd({ node: oldNode, args: ['tell', '--a', 'b c'], stdin: 'x' });
    expect(JSON.parse(run.stdout)).toEqual({ major: 24, rest: ['--a', 'b c'], stdin: 'x' });
    expect(run).toMatchObject({ exitCode: 7, stderr: '' });
  });

  it('runs on the node package installed beside the command', async () => {
    await installNode(folder);
    const run = await runToEnd({ node: oldNode, args: ['tell'] });
    expect(JSON.parse(run.stdout)).toMatchObject({ major: 24 });
  });

  it('ignores an installed node package that is too old', async () => {
    await installOldNode(join(elsewhere, 'project'));
    await installNode(elsewhere);
    const run = await runToEnd({ node: oldNode, args: ['tell'] });
    expect(JSON.parse(run.stdout)).toMatchObject({ major: 24 });
  });

  it('exits with 2 and names the required version, the found one and the remedy', async () => {
    await installOldNode(elsewhere);
    const run = await runToEnd({ node: oldNode, args: ['tell'] });
    expect(run).toMatchObject({ exitCode: 2, stdout: '' });
    expect(run.stderr).toMatch(/needs Node 24 or newer; this is Node \d+\.\d+\.\d+/);
    expect(run.stderr).toContain('npm install node@24');
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)(
    'forwards %s and waits for the end of the command',
    async (signal) => {
      await installNode(elsewhere);
      const { child, ended, rest } = await startWaiting();
      child.kill(signal);
      expect(await rest()).toBe(`ended by ${signal}\n`);
      expect(await ended).toMatchObject({ exitCode: 9, signal: null });
    },
  );

  it('dies of the same signal as the command', async () => {
    await installNode(elsewhere);
    const run = await runToEnd({ node: oldNode, args: ['die'] });
    expect(run).toMatchObject({ exitCode: null, signal: 'SIGKILL' });
  });

  it('leaves no process behind after SIGKILL', async () => {
    await installNode(elsewhere);
    const { child, ended, rest } = await startWaiting();
    child.kill('SIGKILL');
    expect(await rest()).toBe('ended by SIGTERM\n');
    // The pipes close only when the last process that holds them has gone.
    expect(await ended).toMatchObject({ exitCode: null, signal: 'SIGKILL' });
  });
});
