// The package as others get it: packed, installed in an empty folder, run on the Nodes that may be
// there; and a scaffolded project on it. npm takes what it can from its cache, the rest from the
// registry.
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { npm, outerPath, packInto } from '../support/npm.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { followTutorial, readTutorial } from '../support/tutorial.ts';
import { CommandRun } from './cli/command-run.ts';

const root = resolve(import.meta.dirname, '../..');
const execute = promisify(execFile);
const installLimitMs = 300_000;

let folder: string;
/** An empty folder with the tarball installed in it. */
let consumer: string;

/**
 * A Node below 24: the machine's own if it is one, else the one that runs this with another number.
 * What the launcher does depends on that number alone.
 */
function findOldNode(): string[] {
  const print = ['-p', 'JSON.stringify([process.execPath, process.versions.node])'];
  try {
    const out = execFileSync('node', print, { env: { PATH: outerPath }, encoding: 'utf8' });
    const [path, version] = JSON.parse(out);
    if (Number.parseInt(version, 10) < 24) return [path];
  } catch {
    // No Node but the one that runs the tests.
  }
  const pretend = "Object.defineProperty(process.versions, 'node', { value: '20.0.0' })";
  return [process.execPath, '--import', `data:text/javascript,${pretend}`];
}

const newNode = [process.execPath];
const oldNode = findOldNode();

interface End {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs the installed command on a Node, in a folder. */
function millrace(node: string[], args: string[], cwd = consumer): Promise<End> {
  const [command = '', ...options] = node;
  const script = join(consumer, 'node_modules/millrace/bin/millrace.js');
  return new Promise((done) => {
    execFile(command, [...options, script, ...args], { cwd }, (error, stdout, stderr) => {
      done({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-package-'));
  consumer = join(folder, 'consumer');
  mkdirSync(consumer);
  const packed = join(folder, 'packed');
  mkdirSync(packed);
  const tarball = await packInto(packed);
  writeFileSync(join(consumer, 'package.json'), '{ "private": true, "type": "module" }');
  await npm(['install', '--ignore-scripts', tarball], consumer);
  writeFileSync(
    join(consumer, 'handler.ts'),
    `import { defineHandler, type Job } from 'millrace';
     export default defineHandler({
       *run({ input }: Job) { yield input; yield process.versions.node.split('.')[0]; },
     });`,
  );
}, installLimitMs);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const runArgs = ['run', 'handler.ts', '--input', '{"a":"é"}'];
const runOutput = '{"a":"é"}\n"24"\n';

describe('the installed package', () => {
  it('runs on Node 24', async () => {
    const version = await millrace(newNode, ['--version']);
    expect(version).toMatchObject({ code: 0, stderr: '' });
    expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(await millrace(newNode, runArgs)).toEqual({ code: 0, stdout: runOutput, stderr: '' });
  });

  it('exits with 2 on an older Node, and names the required version', async () => {
    const end = await millrace(oldNode, ['--version']);
    expect(end).toMatchObject({ code: 2, stdout: '' });
    expect(end.stderr).toContain('needs Node 24 or newer');
  });

  it('runs on the node package installed beside it, on an older Node', async () => {
    const beside = join(consumer, 'node_modules/node');
    symlinkSync(join(root, 'node_modules/node'), beside);
    try {
      expect((await millrace(oldNode, ['--version'])).code).toBe(0);
      expect(await millrace(oldNode, runArgs)).toEqual({ code: 0, stdout: runOutput, stderr: '' });
    } finally {
      unlinkSync(beside);
    }
  });

  it('serves gRPC from its protocol file', async () => {
    const script = join(consumer, 'node_modules/millrace/bin/millrace.js');
    const args = ['serve', '--port', '0', '--grpc-port', '0', '--data', join(folder, 'data')];
    const run = new CommandRun([script, ...args], { command: process.execPath, cwd: consumer });
    expect(await run.until('stdout', /Workers over gRPC at (\S+)\n/)).toMatch(/^grpc:/);
    expect((await run.end('SIGTERM')).code).toBe(0);
  });

  it('exports types and values from its seven entry points only', async () => {
    const doors = `import { defineHandler } from 'millrace';
      import { createHarness } from 'millrace/testing';
      import { createClient, reassemble } from 'millrace/client';
      import { publicOnly } from 'millrace/outgoing';
      import { createModelProcess } from 'millrace/process';
      import { download } from 'millrace/storage';
      import { createPlatformServer } from 'millrace/server';
      const deep = await import('millrace/dist/cli/main.js').catch((error) => error.code);
      console.log([defineHandler, createHarness, createClient, reassemble, publicOnly, createModelProcess, download, createPlatformServer].every(Boolean), deep);`;
    writeFileSync(join(consumer, 'doors.mjs'), doors);
    const { stdout } = await execute(process.execPath, ['doors.mjs'], { cwd: consumer });
    expect(stdout).toBe('true ERR_PACKAGE_PATH_NOT_EXPORTED\n');
  });

  it('names the packages for uploads, which it does not install', async () => {
    const handler = `import { openStorage } from 'millrace/storage';
      const s3Config = { accessId: 'id', accessSecret: 'secret', bucketName: 'files', endpointUrl: 'https://s3.example' };
      export default (_, ctx) => openStorage({ s3Config }).upload({ key: 'a', bytes: Buffer.from('x') }, ctx);`;
    writeFileSync(join(consumer, 'upload.mjs'), handler);
    const end = await millrace(newNode, ['run', 'upload.mjs', '--input', '{}']);
    expect(end.code).toBe(1);
    expect(end.stderr).toContain('npm install @aws-sdk/client-s3 @aws-sdk/s3-request-presigner');
  });
});

describe('the project of the README and the tutorial', () => {
  it('installs, checks its types, passes its test, and does all that the pages print', {
    timeout: installLimitMs,
  }, async () => {
    const lines = (await readCodeBlocks('README.md')).flatMap(({ text }) => text.split('\n'));
    const { lines: tutorial } = await readTutorial();
    const init = tutorial.find((line) => line.includes('init ../my-worker')) ?? '';
    expect(lines).toContain(init);
    const project = join(folder, 'my-worker');
    const { exitCode } = await runCommandLine(init.replace('../my-worker', project));
    expect(exitCode).toBe(0);
    // The script of the package `node` fetches the binary: test/soak/package.test.ts lets it.
    await npm(['install', '--ignore-scripts'], project);
    const node = join(project, 'node_modules/node');
    rmSync(node, { recursive: true });
    symlinkSync(join(root, 'node_modules/node'), node);
    rmSync(join(project, 'node_modules/.bin/node'), { force: true });
    symlinkSync('../node/bin/node', join(project, 'node_modules/.bin/node'));
    await npm(['run', 'check'], project);
    await npm(['test'], project);
    // As `npm start` does, without npm between us and its end: the project's own commands first.
    const bin = join(project, 'node_modules/.bin');
    const run = new CommandRun(['dev', 'handler.ts', '--port', '0'], {
      command: join(bin, 'millrace'),
      cwd: project,
      env: { PATH: [bin, outerPath].join(delimiter) },
    });
    try {
      const url = await run.until('stdout', /is ready at (\S+)\n/);
      const curl = lines.find((line) => line.includes('/v2/handler/runsync')) ?? '';
      const answer = await runCommandLine(curl.replace('http://127.0.0.1:8000', url));
      expect(JSON.parse(answer.stdout)).toMatchObject({
        status: 'COMPLETED',
        output: [{ line: 1, words: 2 }],
      });
    } finally {
      await run.end('SIGTERM');
    }
    const { deployed, events, local, rollback } = await followTutorial(project);
    await npm(['run', 'check'], project);
    expect(local).toMatch(/^"ONE"\n"BY"\n"ONE"\n/m);
    expect(deployed).toMatch(/^Version 1 of shout is running[\s\S]*^"HELLO"\n"FROM"\n"HERE"\n/m);
    expect(events).toMatch(/^id: .*\ndata: .*"HELLO"[\s\S]*event: done/m);
    expect(rollback).toMatch(/Version 2 of shout is running[\s\S]*Version 1 of shout is running/);
  });
});
