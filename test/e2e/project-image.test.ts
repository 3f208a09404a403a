// The images of projects that `millrace init` makes, from every template and with every way to get the package: built and run
// by the commands of their READMEs on a real Docker Engine.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createClient } from '../../src/client.ts';
import { findParts, importBaseImage } from '../support/containers/base-image.ts';
import {
  Container,
  docker,
  findEngineTrouble,
  removeWithDescendants,
} from '../support/containers/docker.ts';
import { buildProjectBase } from '../support/containers/project-base.ts';
import { fetchChecked } from '../support/network/checked-fetch.ts';
import { npm, outerPath, packInto } from '../support/npm.ts';
import { PackageRegistry } from '../support/package-registry.ts';
import { PlatformProcess } from '../support/processes.ts';

const MINUTE_MS = 60_000;
const LIMIT_MS = 10 * MINUTE_MS;
const root = resolve(import.meta.dirname, '../..');
const launcher = join(root, 'bin/millrace.js');
const execute = promisify(execFile);
const run = `millrace-test-${process.pid}`;
const base = `${run}/projects-base`;
const nodeImage = `${run}/projects-node`;

const parts = findParts();
const trouble = (await findEngineTrouble()) ?? (typeof parts === 'string' ? parts : undefined);
const isLeftOut = trouble !== undefined && !process.env['CI'];
if (isLeftOut) console.warn(`test/e2e/project-image.test.ts is left out: ${trouble}`);

const counted = [
  { line: 1, words: 2 },
  { line: 2, words: 1 },
];
const cases = [
  { template: 'typescript', origin: 'checkout', output: counted },
  { template: 'python', origin: 'registry', output: counted },
  { template: 'openai-proxy', origin: 'tarball', output: { text: 'One word' } },
  { template: 'image', origin: 'tarball', output: { format: 'png', width: 1, height: 1 } },
] as const;

let folder: string;
let tarball: string;
let platform: PlatformProcess;
let model: { url: string; server: Server };
let registry: PackageRegistry;

/** An OpenAI-compatible server with one answer. */
async function startModel() {
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const content of ['One', ' word']) {
      response.write(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
    }
    const last = { choices: [{ delta: {}, finish_reason: 'stop' }] };
    response.end(`data: ${JSON.stringify(last)}\n\ndata: [DONE]\n\n`);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  return { server, url: `http://127.0.0.1:${port}/v1` };
}

async function startRegistry(): Promise<PackageRegistry> {
  const env = { ...process.env, PATH: outerPath };
  const { stdout } = await execute('npm', ['config', 'get', 'registry'], { cwd: folder, env });
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return PackageRegistry.start({ manifest, tarball, upstream: stdout.trim() });
}

/** Makes a project as a user does who has the package from this origin. */
async function makeProject(place: string, { origin, template }: (typeof cases)[number]) {
  const init = ['init', 'app', '--template', template];
  if (origin !== 'registry') {
    const from = origin === 'tarball' ? ['--from', tarball] : [];
    await execute(process.execPath, [launcher, ...init, ...from], { cwd: place });
    return;
  }
  const settings = `registry=${registry.url}\n`;
  writeFileSync(join(place, '.npmrc'), settings);
  writeFileSync(join(place, 'package.json'), '{ "private": true }');
  await npm(['install', '--ignore-scripts', 'millrace'], place);
  const installed = join(place, 'node_modules/millrace/bin/millrace.js');
  await execute(process.execPath, [installed, ...init], { cwd: place });
  // npm finds the package there, in the image too.
  writeFileSync(join(place, 'app/.npmrc'), settings);
}

/** The words of the README's line that begins so. */
function readCommand(readme: string, begin: string): string[] {
  const line = readme.split('\n').find((each) => each.startsWith(begin));
  if (line === undefined) throw new Error(`the README has no line ${begin} …`);
  return line.split(' ');
}

describe.skipIf(isLeftOut)('the image of a project', () => {
  beforeAll(async () => {
    if (trouble !== undefined || typeof parts === 'string') throw new Error(trouble);
    folder = mkdtempSync(join(tmpdir(), 'millrace-project-image-'));
    const packed = join(folder, 'packed');
    mkdirSync(packed);
    tarball = await packInto(packed);
    await importBaseImage(base, parts);
    await buildProjectBase(nodeImage, { base, ldd: parts.ldd });
    const endpoints = cases.map(({ template }) => template);
    platform = await PlatformProcess.start({ endpoints });
    [model, registry] = [await startModel(), await startRegistry()];
  }, LIMIT_MS);

  afterAll(async () => {
    if (trouble !== undefined) return;
    model?.server.close();
    await registry?.close();
    await platform?.close();
    await removeWithDescendants(base);
    rmSync(folder, { recursive: true, force: true });
  }, LIMIT_MS);

  // Builds mostly wait for the network.
  describe.concurrent('builds and runs as its README says', { timeout: LIMIT_MS }, () => {
    it.each(cases)(
      'works with the template $template and millrace from a $origin',
      async (given) => {
        const place = join(folder, given.template);
        mkdirSync(place);
        await makeProject(place, given);
        const project = join(place, 'app');
        await npm(['install', '--package-lock-only', '--ignore-scripts'], project);
        const readme = readFileSync(join(project, 'README.md'), 'utf8');
        const tag = `${run}/${given.template}`;

        const [, ...build] = readCommand(readme, 'docker build ');
        expect(build).toEqual(['build', '-t', 'app', '.']);
        const onOurBase = [
          '--force-rm',
          '--network',
          'host',
          '--build-arg',
          `NODE_IMAGE=${nodeImage}`,
        ];
        await docker('build', ...onOurBase, '-t', tag, project);

        const [, , ...words] = readCommand(readme, 'docker run ');
        const values: Record<string, string> = {
          MILLRACE_URL: platform.url,
          MILLRACE_ENDPOINT: given.template,
          MILLRACE_KEY: platform.workerKey,
        };
        const filled = words.map((word) => {
          if (word === 'app') return tag;
          const [name = '', rest] = word.split('=');
          return rest === '…' ? `${name}=${values[name]}` : word;
        });
        const own = [
          'OPENAI_API_KEY=any',
          `OPENAI_BASE_URL=${model.url}`,
          'MILLRACE_HEALTH_PORT=0',
        ];
        const container = await Container.start(
          ...own.flatMap((each) => ['--env', each]),
          ...filled,
        );
        try {
          const input = JSON.parse(/run handler\.ts --input '(.*)'/.exec(readme)?.[1] ?? '');
          const access = { url: platform.url, key: platform.adminKey, fetch: fetchChecked };
          const jobs = createClient({ ...access, endpoint: given.template });
          const { id } = await jobs.run(input);
          const ended = await jobs.wait(id);
          expect(ended, await container.logs()).toMatchObject({ status: 'COMPLETED' });
          expect(ended.output).toMatchObject(given.output);
          expect(await container.exec('id', '-u')).toBe('1000');
          await docker('stop', '--time', '60', container.id);
          expect(await container.inspect('{{.State.ExitCode}}')).toBe('0');
        } finally {
          await container.remove();
        }
      },
    );
  });
});
