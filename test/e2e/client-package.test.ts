// The client as others get it: `millrace/client` in bundles for Node and for browsers, and the package `millrace-client`,
// packed and unpacked in a project. Each calls a platform, on the oldest installed Node and in a browser.

import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { Browser } from 'playwright-core';
import { build, createLogger } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deriveEndpointSecret, WebhookSigner } from '../../src/queue/webhooks/webhook-sender.ts';
import { createPlatformServer, type PlatformServer } from '../../src/server.ts';
import { launchBrowser, openPage } from '../support/browser.ts';
import { npm, outerPath } from '../support/npm.ts';

const root = resolve(import.meta.dirname, '../..');
const execute = promisify(execFile);

const SECRET = 'a secret of webhooks';

/** Calls what the client has: requests, streams, events, lists, and signatures. */
const PROGRAM = `import { ApiError, createClient, createPlatform, verifyWebhook } from 'CLIENT';
  export async function use({ url, key, webhook }) {
    const platform = createPlatform({ url, key });
    const client = createClient({ url, key, endpoint: 'echo' });
    const { id, status } = await client.run({ a: 1 });
    const events = platform.events(['job:echo/' + id]);
    const seen = [status, (await events.next()).value.data.status, (await client.cancel(id)).status];
    for await (const chunk of client.stream(id)) seen.push(chunk);
    seen.push((await client.wait(id)).status);
    await events.return();
    const many = await client.runMany([{ input: { b: 1 }, idempotencyKey: 'k' }, { input: {} }]);
    seen.push(...many.map(({ status }) => status), (await client.purgeQueue()).status);
    for await (const { name } of platform.endpoints.list()) seen.push(name);
    seen.push((await verifyWebhook(webhook)).status);
    const error = await client.status('none').catch((error) => error);
    return [...seen, error instanceof ApiError && error.status].join(' ');
  }`;
const SEEN =
  'IN_QUEUE IN_QUEUE CANCELLED CANCELLED fulfilled fulfilled completed echo COMPLETED 404';

let folder: string;
let platform: PlatformServer;
/** Serves the page, and the files of the project. */
let site: Server;
let origin: string;
let browser: Browser | undefined;
let options: object;

beforeAll(async () => {
  folder = fs.mkdtempSync(join(tmpdir(), 'millrace-client-'));
  const built = join(folder, 'built');
  await execute(process.execPath, ['scripts/client-package.js', built], { cwd: root });
  await npm(['pack', '--pack-destination', folder], built);
  const tarball = fs.readdirSync(folder).find((name) => name.endsWith('.tgz')) ?? '';
  const unpacked = join(folder, 'node_modules/millrace-client');
  fs.mkdirSync(unpacked, { recursive: true });
  await execute('tar', ['-xzf', tarball, '-C', unpacked, '--strip-components=1'], { cwd: folder });
  fs.symlinkSync(root, join(folder, 'node_modules/millrace'));
  fs.writeFileSync(join(folder, 'package.json'), '{ "private": true, "type": "module" }');
  fs.writeFileSync(join(folder, 'program.js'), PROGRAM.replace('CLIENT', 'millrace/client'));
  site = createServer(({ url = '/' }, response) => {
    const isPage = url === '/';
    response.setHeader('content-type', isPage ? 'text/html' : 'text/javascript');
    response.end(
      isPage
        ? '<!doctype html><link rel="icon" href="data:,">'
        : fs.readFileSync(join(folder, url)),
    );
  });
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  const address = site.address();
  origin = `http://127.0.0.1:${typeof address === 'object' && address?.port}`;
  platform = await createPlatformServer({ endpoints: ['echo'], corsOrigins: [origin] });
  options = { url: platform.url, key: platform.adminKey, webhook: signWebhook() };
});

afterAll(async () => {
  await browser?.close();
  site.close();
  await platform.close();
  fs.rmSync(folder, { recursive: true, force: true });
});

function signWebhook() {
  const body = '{"id":"job-1","status":"COMPLETED"}';
  const signer = new WebhookSigner([SECRET], { id: 'd-1', endpointId: 'echo', now: Date.now() });
  signer.update(Buffer.from(body));
  const headers = signer.finish();
  return { body, headers, secret: deriveEndpointSecret(SECRET, 'echo') };
}

/** The machine's own Node, if it is older than ours. */
function findOldNode(): string | undefined {
  try {
    const print = ['-p', 'process.execPath + " " + process.versions.node'];
    const printed = execFileSync('node', print, { env: { PATH: outerPath }, encoding: 'utf8' });
    const [path = '', version = ''] = printed.split(' ');
    return Number.parseInt(version, 10) < 24 ? path : undefined;
  } catch {
    return undefined;
  }
}

async function runOnNode(module: string, node = process.execPath): Promise<string> {
  const script = `import { use } from '${module}'; console.log(await use(${JSON.stringify(options)}));`;
  const args = ['--input-type=module', '--eval', script];
  const { stdout, stderr } = await execute(node, args, { cwd: folder });
  return (stdout + stderr).trim();
}

async function runInBrowser(file: string): Promise<string> {
  browser ??= await launchBrowser();
  const { close, complaints, page } = await openPage(browser);
  try {
    await page.goto(origin);
    const call = `import('/built/${file}').then(({ use }) => use(${JSON.stringify(options)}))`;
    const seen = String(await page.evaluate(call));
    // The browser reports the 404 that the program asks for.
    expect(complaints.filter((text) => !text.includes('404'))).toEqual([]);
    return seen;
  } finally {
    await close();
  }
}

type Target = 'node' | 'browser';

/** @returns what the bundler complains of */
const BUNDLERS: Record<string, (target: Target, file: string) => Promise<string>> = {
  async esbuild(target, file) {
    const program = join(root, 'node_modules/esbuild/bin/esbuild');
    const args = ['program.js', '--bundle', '--format=esm', '--log-level=warning'];
    const out = [`--platform=${target}`, `--outfile=built/${file}`];
    const { stderr } = await execute(program, [...args, ...out], { cwd: folder });
    return stderr;
  },
  async vite(target, file) {
    let complaints = '';
    const customLogger = createLogger('warn');
    customLogger.info = () => {};
    customLogger.warn = (text) => {
      complaints += text;
    };
    await build({
      ...{ root: folder, configFile: false, customLogger, logLevel: 'warn' },
      ssr: { noExternal: true },
      build: {
        ...{ outDir: 'built', emptyOutDir: false, minify: false, ssr: target === 'node' },
        lib: { entry: 'program.js', formats: ['es'] },
        rolldownOptions: { output: { entryFileNames: file } },
      },
    });
    return complaints;
  },
};

describe.each(['esbuild', 'vite'])('in a bundle of %s, millrace/client', (name) => {
  it.each<[Target, (file: string) => Promise<string>]>([
    ['node', (file) => runOnNode(`./built/${file}`)],
    ['browser', runInBrowser],
  ])('runs for %s', async (target, run) => {
    const file = `${name}-${target}.js`;
    expect(await BUNDLERS[name]?.(target, file)).toBe('');
    expect(fs.readFileSync(join(folder, 'built', file), 'utf8')).not.toMatch(/['"]node:|__require/);
    expect(await run(file)).toBe(SEEN);
  });
});

describe('the package millrace-client', () => {
  it('needs only zod, for its types', () => {
    const installed = join(folder, 'node_modules/millrace-client');
    const manifest = JSON.parse(fs.readFileSync(join(installed, 'package.json'), 'utf8'));
    expect(Object.keys(manifest.dependencies)).toEqual(['zod']);
    expect(Object.keys(manifest.peerDependencies)).toEqual(['@opentelemetry/api']);
    expect(fs.readFileSync(join(installed, 'client.js'), 'utf8')).not.toMatch(
      /^import |require\(/m,
    );
  });

  it('declares nothing with types of Node', () => {
    const types = join(folder, 'node_modules/millrace-client/types');
    const files = fs.globSync('**/*.d.ts', { cwd: types });
    const texts = files.map((file) => fs.readFileSync(join(types, file), 'utf8'));
    expect(texts.length).toBeGreaterThan(30);
    const code = texts.join('').replaceAll(/\/\*[\s\S]*?\*\//g, '');
    expect(code).not.toMatch(/\bBuffer\b|NodeJS|['"]node:/);
  });

  it('calls a platform from an older Node', async ({ skip }) => {
    const node = findOldNode();
    if (node === undefined) return skip('the machine has no Node older than 24');
    fs.writeFileSync(join(folder, 'own.js'), PROGRAM.replace('CLIENT', 'millrace-client'));
    expect(await runOnNode('./own.js', node)).toBe(SEEN);
  });

  it('has types that follow the handler', async () => {
    fs.symlinkSync(join(root, 'node_modules/zod'), join(folder, 'node_modules/zod'));
    const source = `import { createClient, createPlatform } from 'millrace-client';
      const handler = async (job: { input: { prompt: string } }) => ({ words: job.input.prompt.length });
      const client = createClient<typeof handler>({ url: 'http://127.0.0.1:1', endpoint: 'x' });
      const words: Promise<number | undefined> = client.runsync({ prompt: 'x' }).then(({ output }) => output?.words);
      // @ts-expect-error: the prompt is a string.
      void client.run({ prompt: 1 });
      const named: Promise<string> = createPlatform({ url: 'http://127.0.0.1:1' }).templates.get('t').then(({ name }) => name);
      console.log(words, named);`;
    fs.writeFileSync(join(folder, 'use.ts'), source);
    const tsc = join(root, 'node_modules/typescript/bin/tsc');
    const flags = [
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--module',
      'nodenext',
      '--target',
      'es2022',
    ];
    const types = ['--lib', 'es2022,dom,dom.iterable,dom.asynciterable', '--types', ''];
    const args = [tsc, ...flags, ...types, '--ignoreConfig', 'use.ts'];
    const run = execute(process.execPath, args, { cwd: folder });
    expect((await run.catch((error) => error)).stdout).toBe('');
  });
});
