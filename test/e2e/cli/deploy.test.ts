// `millrace deploy`, `rollback` and `diff` against a real platform with the process engine: what they print, and
// their exit codes.
import { mkdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type CommandRun, Workplace } from './command-run.ts';

let place: Workplace;
let platform: CommandRun;
let env: Record<string, string>;

const WORKER_TERMS = ['--lease-ms', '1500', '--renew-every-ms', '300', '--take-wait-ms', '300'];

beforeAll(async () => {
  place = new Workplace();
  const serve = ['serve', '--port', '0', '--data', 'data', '--key-file', 'keys'];
  platform = place.start([...serve, ...WORKER_TERMS, '--worker-env', 'GREETING=hi']);
  const url = await platform.until('stdout', /is ready at (\S+)\n/);
  const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(place.read('keys'))?.[1] ?? '';
  env = { MILLRACE_URL: url, MILLRACE_KEY: key };
  mkdirSync(place.path('words/secrets'), { recursive: true });
  place.write('words/package.json', '{"name":"words","type":"module"}');
  place.write('words/count.ts', 'export const count = (text: string) => text.split(" ").length;\n');
  place.write('words/.env', 'TOKEN=1\n');
  place.write('words/.npmrc', '//registry.example/:_authToken=secret-token\n');
});

afterAll(() => place.close());

/** A handler that returns its number and the words of its input. */
function writeHandler(version: number, top = ''): void {
  const lines = [
    '// {"text":"one two"}',
    "import { count } from './count.ts';",
    `${top}export default ({ input }: { input: { text: string } }) =>`,
    `  ({ version: ${version}, level: process.env['LEVEL'], words: count(input.text) });`,
  ];
  place.write('words/handler.ts', `${lines.join('\n')}\n`);
}

function run(...args: string[]) {
  return place.run(args, { env });
}

const deploy = (...args: string[]) => run('deploy', 'words/handler.ts', ...args);

async function call(): Promise<unknown> {
  const input = ['--input', '{"text":"one two"}'];
  const { code, stderr, stdout } = await run(
    ...['jobs', 'submit', '--endpoint', 'words', ...input, '--wait', '--json'],
  );
  expect(code, stderr).toBe(0);
  // The first line is the submission.
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '')['output'];
}

async function listStates(): Promise<string[][]> {
  const { stdout } = await run('deploy', '--list', '--name', 'words');
  const [table = ''] = stdout.split('\n\n');
  const [, ...rows] = table.trimEnd().split('\n');
  return rows.map((row) => row.split(/ {2,}/).slice(0, 2));
}

// Each test continues where the one before has ended.
describe('millrace deploy', () => {
  it('--dry-run lists the files and makes nothing', async () => {
    writeHandler(1);
    const { code, stderr, stdout } = await deploy('--dry-run', '--json');
    expect(code, stderr).toBe(0);
    const { files, name } = JSON.parse(stdout);
    expect(name).toBe('words');
    expect(files.map(({ path }: { path: string }) => path)).toEqual([
      ...['count.ts', 'handler.ts', 'package.json'],
    ]);
    expect(stderr).toContain('  left out (perhaps secret): .env, .npmrc\n');
    expect(stderr).toContain('  Workers run npm without .npmrc. ');
    expect(stderr).not.toContain('secret-token');
    const unknown = await run('deploy', '--list', '--name', 'words');
    expect(unknown).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no endpoint words'),
    });
  });

  it('creates an endpoint, runs the version, and prints how to call it', async () => {
    const { code, stderr, stdout } = await deploy('--env', 'LEVEL=high', '--message', 'first');
    expect(code, stderr).toBe(0);
    expect(stderr).toContain('3 files, ');
    expect(stderr).toMatch(/^created endpoint words \(ep_\S+\)\n/m);
    expect(stderr).toMatch(/^uploaded version 1, /m);
    const url = `${env['MILLRACE_URL']}/v2/words`;
    expect(stdout).toContain(`Version 1 of words is running at ${url}\n`);
    const command = stdout.split('\n').find((line) => line.startsWith('  curl')) ?? '';
    expect(command).toContain(`${url}/runsync -H "authorization: Bearer $MILLRACE_KEY"`);
    expect(command).toContain(`-d '{"input":{"text":"one two"}}'`);
    expect(stdout).not.toContain(env['MILLRACE_KEY']);
    expect(await call()).toEqual({ version: 1, level: 'high', words: 2 });
  });

  it('does nothing if the same files run', async () => {
    const { code, stderr, stdout } = await deploy('--json');
    expect(code).toBe(0);
    expect(stderr).not.toContain('uploaded');
    expect(JSON.parse(stdout)).toMatchObject({ version: 1, result: 'unchanged', name: 'words' });
  });

  it('changes settings of the endpoint, and replaces the version', async () => {
    writeHandler(2);
    const missing = await deploy('--network-volume', 'weights:/models');
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no network volume weights'),
    });
    expect((await deploy('--network-volume', 'weights:models')).code).toBe(2);
    const volume = await run('network-volumes', 'create', '--name', 'weights', '--size', '1');
    expect(volume.code, volume.stderr).toBe(0);
    const mounted = ['--network-volume', 'weights:/models', '--registry', 'none'];
    const { code, stderr } = await deploy('--env', 'LEVEL=low', '--workers-max', '2', ...mounted);
    expect(code, stderr).toBe(0);
    const changed = 'workersMax, networkVolumeId, networkVolumePath, env';
    expect(stderr).toContain(`changed ${changed} of words\n`);
    const uses = await run('network-volumes', 'uses', 'weights', '--json');
    const use = { kind: 'endpoint', name: 'words', status: null, path: '/models' };
    expect(JSON.parse(uses.stdout).uses).toContainEqual(expect.objectContaining(use));
    expect(JSON.parse(uses.stdout).uses).toContainEqual(expect.objectContaining({ kind: 'pod' }));
    const shown = await run('network-volumes', 'show', 'weights', '--json');
    expect(JSON.parse(shown.stdout)).toMatchObject(JSON.parse(uses.stdout));
    expect(await call()).toEqual({ version: 2, level: 'low', words: 2 });
  });

  it('does not change a template that other endpoints use', async () => {
    const { stdout: shown } = await run('endpoints', 'show', 'words', '--json');
    const { templateId } = JSON.parse(shown);
    const other = { name: 'neighbour', templateId, source: 'VERSION' };
    const file = place.write('neighbour.json', JSON.stringify(other));
    const created = await run('endpoints', 'create', '--file', file);
    expect(created.code, created.stderr).toBe(0);
    const before = await run('templates', 'show', templateId, '--json');
    const { code, stderr } = await deploy('--env', 'LEVEL=none', '--workers-max', '5');
    expect(code).toBe(1);
    expect(stderr).toContain('also serves neighbour, and env would change for all. Give words a');
    expect((await run('templates', 'show', templateId, '--json')).stdout).toBe(before.stdout);
    const after = await run('endpoints', 'show', 'words', '--json');
    expect(JSON.parse(after.stdout)).toMatchObject({ workersMax: 2, version: 2 });
    const same = await deploy('--env', 'LEVEL=low', '--network-volume', 'weights', '--json');
    expect(same.stderr).not.toContain('changed');
    expect(JSON.parse(same.stdout)).toMatchObject({ version: 2, result: 'unchanged' });
    expect((await run('endpoints', 'delete', 'neighbour')).code).toBe(0);
  });

  it('refuses a handler that does not load here, before anything is sent', async () => {
    writeHandler(3, "import './none.ts';\n");
    const { code, stderr } = await deploy();
    expect(code).toBe(5);
    expect(stderr).toMatch(
      /The handler does not load: \S+handler\.ts:3: cannot find '\S+none\.ts'/,
    );
    expect(await listStates()).toEqual([
      ['2', 'running'],
      ['1', '-'],
    ]);
  });

  it('keeps the earlier version if the new one does not load on a worker', async () => {
    writeHandler(3, 'export const setup = () => { throw new Error("no model") };\n');
    const { code, stderr, stdout } = await deploy('--json');
    expect(code).toBe(5);
    expect(stderr).toContain('Version 3 failed to start, and version 2 keeps running. ');
    expect(stderr).toContain('no model');
    expect(JSON.parse(stdout)).toMatchObject({ version: 3, result: 'failed', running: 2 });
    expect(await listStates()).toEqual([
      ['3', 'failed'],
      ['2', 'running'],
      ['1', '-'],
    ]);
    const { stdout: listed } = await run('deploy', '--list', '--name', 'words');
    expect(listed).toMatch(/^version 3 failed at \d{4}-\S+Z: .*no model/m);
    expect(await call()).toMatchObject({ version: 2 });
  });
});

it('gives workers the PATH of serve, its --worker-env, and the --python of deploy', async () => {
  mkdirSync(place.path('env'), { recursive: true });
  const names = "['PATH', 'GREETING', 'LEVEL', 'MILLRACE_PYTHON']";
  const source = `export default () => ${names}.map((name) => process.env[name] ?? null);`;
  place.write('env/handler.mjs', source);
  const send = (...args: string[]) => run('deploy', 'env/handler.mjs', '--name', 'env', ...args);
  const first = await send('--env', 'LEVEL=high');
  expect(first.code, first.stderr).toBe(0);
  const second = await send('--python', '/venv/bin/python');
  expect(second.code, second.stderr).toBe(0);
  const submit = ['jobs', 'submit', '--endpoint', 'env', '--input', '{}', '--wait', '--json'];
  await expect
    .poll(
      async () => JSON.parse((await run(...submit)).stdout.trim().split('\n').at(-1) ?? '').output,
      {
        timeout: 30_000,
      },
    )
    .toEqual([process.env['PATH'], 'hi', 'high', '/venv/bin/python']);
});

describe('millrace diff', () => {
  it('shows what differs from the running version', async () => {
    writeHandler(3);
    place.write('words/new.txt', 'x');
    const { code, stderr, stdout } = await run('diff', 'words/handler.ts');
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/^M handler\.ts {2}\d+ bytes → \d+ bytes\nA new\.txt {2}1 byte\n/);
    expect(stdout).toMatch(/^-.*version: 2/m);
    expect(stdout).toMatch(/^\+.*version: 3/m);
    const stat = await run('diff', 'words/handler.ts', '--version', '1', '--stat', '--json');
    expect(JSON.parse(stat.stdout)).toMatchObject({
      version: 1,
      changes: [{ kind: 'changed' }, {}],
    });
  });
});

describe('millrace rollback', () => {
  it('deploys the version that ran before, or a given one', async () => {
    const { code, stderr, stdout } = await run('rollback', '--name', 'words');
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/^Version 1 of words is running at \S+\n$/);
    expect(await call()).toMatchObject({ version: 1 });
    const given = await run('rollback', '2', '--name', 'words', '--json');
    expect(JSON.parse(given.stdout)).toMatchObject({ version: 2, result: 'done' });
    const unknown = await run('rollback', '9', '--name', 'words');
    expect(unknown.code).toBe(1);
    const reason =
      'words has no version 9; `millrace deploy --list --name words` prints the versions';
    expect(unknown.stderr).toContain(reason);
  });
});

it('names an endpoint that has no workers of its own', async () => {
  const other = place.start(['serve', '--port', '0', '--data', 'other', '--endpoint', 'fixed']);
  const url = await other.until('stdout', /is ready at (\S+)\n/);
  const key = await other.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  const own = { MILLRACE_URL: url, MILLRACE_KEY: key };
  const args = ['deploy', 'words/handler.ts', '--name', 'fixed', '--no-check'];
  const { code, stderr } = await place.run(args, { env: own });
  expect(code).toBe(1);
  expect(stderr).toContain('fixed has no workers of its own');
});
