// The package `millrace-client` as others get it: packed, installed in an empty folder, compiled and called.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createPlatformServer } from '../../src/server.ts';
import { npm } from '../support/npm.ts';

const root = resolve(import.meta.dirname, '../..');
const execute = promisify(execFile);

let folder: string;
let consumer: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-client-'));
  consumer = join(folder, 'consumer');
  mkdirSync(consumer);
  const built = join(folder, 'built');
  await execute(process.execPath, ['scripts/client-package.js', built], { cwd: root });
  await npm(['pack', '--pack-destination', folder], built);
  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz')) ?? '';
  writeFileSync(join(consumer, 'package.json'), '{ "private": true, "type": "module" }');
  await npm(['install', '--ignore-scripts', join(folder, tarball)], consumer);
}, 300_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('brings itself and zod', () => {
  const installed = readdirSync(join(consumer, 'node_modules')).filter((name) => !/^\./.test(name));
  expect(installed.sort()).toEqual(['millrace-client', 'zod']);
});

it('has types that follow the handler', async () => {
  const source = `import { createClient, createPlatform } from 'millrace-client';
    const handler = async (job: { input: { prompt: string } }) => ({ words: job.input.prompt.length });
    const client = createClient<typeof handler>({ url: 'http://127.0.0.1:1', endpoint: 'x' });
    const words: Promise<number | undefined> = client.runsync({ prompt: 'x' }).then(({ output }) => output?.words);
    // @ts-expect-error: the prompt is a string.
    void client.run({ prompt: 1 });
    const named: Promise<string> = createPlatform({ url: 'http://127.0.0.1:1' }).templates.get('t').then(({ name }) => name);
    console.log(words, named);`;
  writeFileSync(join(consumer, 'use.ts'), source);
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2024'];
  const types = ['--typeRoots', join(root, 'node_modules/@types'), '--types', 'node'];
  const args = [tsc, ...flags, ...types, '--ignoreConfig', 'use.ts'];
  const run = execute(process.execPath, args, { cwd: consumer });
  expect((await run.catch((error) => error)).stdout).toBe('');
});

it('calls a platform', async () => {
  const platform = await createPlatformServer({ endpoints: ['echo'] });
  try {
    const script = `import { createClient } from 'millrace-client';
      const client = createClient({ url: process.argv[2], key: process.argv[3], endpoint: 'echo' });
      const { id } = await client.run({ a: 1 });
      console.log((await client.status(id)).status);`;
    writeFileSync(join(consumer, 'call.mjs'), script);
    const args = ['call.mjs', platform.url, platform.adminKey ?? ''];
    const { stdout } = await execute(process.execPath, args, { cwd: consumer });
    expect(stdout).toBe('IN_QUEUE\n');
  } finally {
    await platform.close();
  }
});
