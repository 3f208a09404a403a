// Runs the programs and commands of docs/guides/from-bullmq.md, in a project on a platform of its own.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Client, createClient, createPlatform } from '../../src/client.ts';
import { killPods } from '../support/containers/left-pods.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { Process } from '../support/processes.ts';

const READY = /ready at (http:\/\/127\.0\.0\.1:\d+)/;
const FILE = /^\/\/ (\S+)\n/;

const blocks = await readCodeBlocks('docs/guides/from-bullmq.md');
const lines = blocks
  .filter(({ language }) => language === '')
  .flatMap(({ text }) => text.trim().split('\n'));

let folder: string;
let platform: Process;
let access: { url: string; key: string };

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-bullmq-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(resolve('.'), join(folder, 'node_modules/millrace'));
  symlinkSync(resolve('node_modules/zod'), join(folder, 'node_modules/zod'));
  // Workers have zod of their own, so a deployment installs nothing.
  writeFileSync(join(folder, 'package.json'), '{ "type": "module", "private": true }');
  for (const { text } of blocks.filter(({ language }) => language !== '')) {
    writeFileSync(join(folder, FILE.exec(text)?.[1] ?? ''), text);
  }
  platform = new Process(['serve', '--port', '0', '--key-file', 'keys'], { cwd: folder });
  const url = await platform.find(READY);
  const { stdout } = await run('sed -n s/MILLRACE_ADMIN_KEY=//p keys');
  access = { url, key: stdout.trim() };
});

afterAll(async () => {
  await platform.end();
  killPods(folder);
  rmSync(folder, { recursive: true, force: true });
});

/** Runs a line in the project; with an address, against that platform. */
async function run(line: string, to?: { url: string; key?: string }) {
  const node = line.replace('npx node', process.execPath);
  const given = to ? `export MILLRACE_URL=${to.url} MILLRACE_KEY=${to.key ?? ''}; ` : '';
  const end = await runCommandLine(given + node, folder);
  expect(end.exitCode, `${line}\n${end.stdout}${end.stderr}`).toBe(0);
  return end;
}

/** The only printed line with this text. */
function findLine(part: string): string {
  const found = lines.filter((line) => line.includes(part));
  expect(found, `lines with ${part}`).toHaveLength(1);
  return found[0] ?? '';
}

const open = (endpoint: string): Client => createClient({ ...access, endpoint });

const countJobs = async (client: Client) => (await client.jobs()).jobs.length;

// Each test continues where the one before has ended.
it('runs the port on this machine', async () => {
  await run(`${process.execPath} --check before.js`);
  const [, , ...words] = findLine('millrace dev').split(' ');
  const dev = new Process([...words, '--port', '0'], { cwd: folder });
  try {
    const { stdout } = await run(findLine('node add.ts'), { url: await dev.find(READY) });
    expect(stdout).toBe("COMPLETED { name: 'mill-200.png' }\n");
  } finally {
    await dev.end();
  }
});

it('runs the port on a platform, and makes one job of equal submissions with one key', async () => {
  await run(findLine('deploy thumbnails.ts'), access);
  for (const _ of [1, 2]) {
    const { stdout } = await run(findLine('node add.ts'), access);
    expect(stdout).toBe("COMPLETED { name: 'mill-200.png' }\n");
  }
  const client = open('thumbnails');
  expect(await countJobs(client)).toBe(1);
  expect(await client.runsync({ name: 'mill', width: 5000 })).toMatchObject({
    ...{ status: 'FAILED', attempt: 1 },
    error: { message: 'width must be at most 4096' },
  });
});

it('makes a job of a schedule', async () => {
  await run(findLine('schedules create'), access);
  const { stdout } = await run(findLine('schedules trigger'), access);
  expect(await open('thumbnails').wait(stdout.trim())).toMatchObject({
    ...{ status: 'COMPLETED', output: { name: 'mill-64.png' } },
  });
  expect((await run('npx millrace schedules next hourly', access)).stdout).toMatch(
    /:00:00\.000Z\n/,
  );
});

it('gives a parent the outputs of its children', async () => {
  await run(findLine('deploy album.ts'), access);
  const client = open('thumbnails');
  const before = await countJobs(client);
  const record = await open('album').runsync({ names: ['a', 'b'] });
  expect(record).toMatchObject({ status: 'COMPLETED', output: ['a-200.png', 'b-200.png'] });
  expect(await countJobs(client)).toBe(before + 2);
});

it('pauses, resumes, empties and deletes the queue by commands', async () => {
  const { endpoints } = createPlatform(access);
  const client = open('thumbnails');
  await run(findLine('millrace pause'), access);
  expect(await client.pauses()).toMatchObject([{ group: null }]);
  const { id } = await client.run({ name: 'late', width: 1 }, { policy: { delay: 600_000 } });
  await run(findLine('millrace resume'), access);
  expect(await client.pauses()).toEqual([]);
  await run(findLine('jobs purge'), access);
  expect(await client.status(id)).toMatchObject({ status: 'CANCELLED' });
  await run(findLine('endpoints delete'), access);
  await expect(endpoints.get('thumbnails')).rejects.toMatchObject({ status: 404 });
});
