// Runs the commands of README.md, and of pages that start a platform, as printed, except for the port, and checks the
// answers that they promise. test/e2e/package.test.ts runs the README's quick start.
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { killPods } from '../support/containers/left-pods.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { Process } from '../support/processes.ts';

const PRINTED_URL = 'http://127.0.0.1:8000';
const READY = /ready at (http:\/\/127\.0\.0\.1:\d+)/;

const blocks = [
  ...(await readCodeBlocks('README.md')),
  ...(await readCodeBlocks('docs/operations/workers.md')),
  ...(await readCodeBlocks('docs/client.md')),
];
const lines = blocks.flatMap(({ text }) => text.split('\n'));

/** The only line of the code blocks that begins with `start`. */
function findLine(start: string): string {
  const found = lines.filter((line) => line.startsWith(start));
  expect(found, `lines that begin with ${start}`).toHaveLength(1);
  return found[0] ?? '';
}

/** The arguments of a line `npx millrace …`. */
function readArguments(line: string): string[] {
  const [, rest = ''] = /^npx millrace (.*)$/.exec(line) ?? [];
  return rest.split(' ');
}

async function curl(line: string, url: string): Promise<string> {
  const { exitCode, stderr, stdout } = await runCommandLine(line.replaceAll(PRINTED_URL, url));
  expect(exitCode, stderr).toBe(0);
  return stdout;
}

describe('with npm start running', () => {
  let platform: Process;
  let url: string;

  beforeAll(async () => {
    // What `npm start` runs, on a free port.
    platform = new Process(['dev', 'handlers', '--port', '0']);
    url = await platform.find(READY);
  });
  afterAll(() => platform.end());

  it('answers the first curl line as printed', async () => {
    const answer = await curl(
      findLine(`curl -s ${PRINTED_URL}/v2/echo/runsync -H 'content-type`),
      url,
    );
    expect(answer).toMatch(/^\{"id":"sync-[^"]+","status":"COMPLETED",/);
    expect(answer).toMatch(/"output":\{"hello":"world"\}\}$/);
  });

  it('takes the text of the second curl line, and gives its pieces to the third', async () => {
    const submit = findLine(`id=$(curl -s ${PRINTED_URL}/v2/text-stream/run `);
    const id = (await curl(`${submit}; echo $id`, url)).trim();
    const read = findLine(`curl -s ${PRINTED_URL}/v2/text-stream/stream/`);
    let text = '';
    while (text.length < 'One by one.'.length) {
      const chunks = JSON.parse(await curl(`id=${id}; ${read}`, url));
      for (const { metrics, output } of chunks) {
        expect(metrics).toMatchObject({ characters: output.length });
        text += output;
      }
    }
    expect(text).toBe('One by one.');
  });

  it('answers the curl lines that it prints', async () => {
    await platform.find(/Stream the output:/);
    const printed = platform.output.split('\n').map((line) => line.trim());
    const echo = printed.find((line) => line.startsWith('curl') && line.includes('/echo/')) ?? '';
    expect(JSON.parse(await curl(echo, url))).toMatchObject({ status: 'COMPLETED' });
    const events = printed.find((line) => line.includes('text/event-stream')) ?? '';
    expect(await curl(events, url)).toMatch(/^id: 1\.0\ndata: .*event: done\ndata: \{/s);
  });
});

describe('the first example', () => {
  let folder: string;
  let platform: Process;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-readme-'));
    const [example] = blocks;
    expect(example?.text).toMatch(/^\/\/ hello\.ts\n/);
    await writeFile(join(folder, 'hello.ts'), example?.text ?? '');
    const args = [...readArguments(findLine('npx millrace dev')), '--port', '0'];
    platform = new Process(args, { cwd: folder });
  });
  afterEach(async () => {
    await platform.end();
    await rm(folder, { recursive: true, force: true });
  });

  it('serves an endpoint that answers its curl line', async () => {
    const url = await platform.find(READY);
    const answer = await curl(findLine(`curl -s ${PRINTED_URL}/v2/hello/runsync`), url);
    expect(JSON.parse(answer)).toMatchObject({ status: 'COMPLETED', output: ['Hello', 'Ada'] });
  });
});

describe('the first handler of docs/handlers.md', () => {
  it('runs with the command below it', async () => {
    const [handler, commands] = await readCodeBlocks('docs/handlers.md');
    const folder = await mkdtemp(join(tmpdir(), 'millrace-readme-'));
    await writeFile(join(folder, 'handler.ts'), handler?.text ?? '');
    const command = commands?.text.split('    ')[0]?.replace('handler.ts', `${folder}/handler.ts`);
    const { exitCode, stderr, stdout } = await runCommandLine(command ?? '');
    await rm(folder, { recursive: true });
    expect(stdout, stderr).toBe('"Hi"\n');
    expect(exitCode).toBe(0);
  });
});

describe('serve and worker as two processes', () => {
  let folder: string;
  const processes: Process[] = [];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-readme-'));
    await symlink(resolve('handlers'), join(folder, 'handlers'));
  });
  afterEach(async () => {
    for (const process of processes.splice(0).reverse()) await process.end();
    await rm(folder, { recursive: true, force: true });
  });

  it('find each other by the key file', async () => {
    const serve = [...readArguments(findLine('npx millrace serve --endpoint')), '--port', '0'];
    const platform = new Process(serve, { cwd: folder });
    processes.push(platform);
    const url = await platform.find(READY);
    const line = findLine('npx millrace worker handlers').replace(PRINTED_URL, url);
    // The shell puts the key in, as it would for whoever types the line.
    const echoed = line.replace('npx millrace worker', `printf '%s\\n'`);
    const { stdout } = await runCommandLine(echoed, folder);
    processes.push(new Process(['worker', ...stdout.trim().split('\n')], { cwd: folder }));
    const printed = findLine(`curl -s ${PRINTED_URL}/v2/echo/runsync -H "authorization`);
    const answer = await runCommandLine(printed.replaceAll(PRINTED_URL, url), folder);
    expect(JSON.parse(answer.stdout)).toMatchObject({
      status: 'COMPLETED',
      output: { hello: 'world' },
    });
  });
});

describe('the deployment of the quick start', () => {
  let folder: string;
  let platform: Process | undefined;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-readme-'));
    await writeFile(join(folder, 'package.json'), '{"type":"module"}');
    const text = `{ properties: { text: { type: 'string' } }, required: ['text'] }`;
    const run = `({ input }) => input.text.length > 0 && 'done'`;
    await writeFile(
      join(folder, 'handler.ts'),
      `export default { inputSchema: ${text}, run: ${run} };`,
    );
  });
  afterEach(async () => {
    await platform?.end();
    killPods(folder);
    await rm(folder, { recursive: true, force: true });
  });

  it('prints a curl line that the endpoint answers', async () => {
    const serve = [...readArguments(findLine('npx millrace serve --key-file')), '--port', '0'];
    platform = new Process(serve, { cwd: folder });
    const url = await platform.find(READY);
    const key = findLine('export MILLRACE_KEY=');
    const line = `${findLine('npx millrace deploy handler.ts')} --url ${url}`;
    const { exitCode, stderr, stdout } = await runCommandLine(`${key}; ${line}`, folder);
    expect(exitCode, stderr).toBe(0);
    const call = stdout.split('\n').find((each) => each.startsWith('  curl')) ?? '';
    const answer = await runCommandLine(`${key}; ${call}`, folder);
    expect(JSON.parse(answer.stdout)).toMatchObject({ status: 'COMPLETED', output: 'done' });
  });
});

describe('the program that deploys', () => {
  let folder: string;
  let platform: Process | undefined;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-readme-'));
    await symlink(resolve('handlers'), join(folder, 'handlers'));
    await mkdir(join(folder, 'node_modules'));
    await symlink(resolve('.'), join(folder, 'node_modules/millrace'));
  });
  afterEach(async () => {
    await platform?.end();
    killPods(folder);
    await rm(folder, { recursive: true, force: true });
  });

  it('creates an endpoint and prints its worker’s answer and pod', async () => {
    platform = new Process(['serve', '--key-file', 'keys', '--port', '0'], { cwd: folder });
    const url = await platform.find(READY);
    const program = blocks.find(({ text }) => text.startsWith('// deploy.ts\n'))?.text ?? '';
    expect(program).toContain(PRINTED_URL);
    await writeFile(join(folder, 'deploy.ts'), program.replace(PRINTED_URL, url));
    const printed = lines.find((each) => each.endsWith('node deploy.ts')) ?? '';
    const line = printed.replace('npx node', process.execPath);
    const { exitCode, stderr, stdout } = await runCommandLine(line, folder);
    expect(stdout, stderr).toBe("{ hello: 'world' }\nmillrace-worker RUNNING\n");
    expect(exitCode).toBe(0);
  });
});
