// The images of worker and platform on a real Docker Engine: built on a base image that is made of this machine's
// own files. Workers run beside a platform of this machine, and one beside a platform in a container.
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Client, createClient } from '../../src/client.ts';
import { findParts, importBaseImage } from '../support/containers/base-image.ts';
import {
  Container,
  docker,
  findEngineTrouble,
  removeWithDescendants,
} from '../support/containers/docker.ts';
import { findFreePort, serveOnDocker } from '../support/containers/docker-platform.ts';
import type { Action } from '../support/handlers/contained.ts';
import { fetchChecked } from '../support/network/checked-fetch.ts';
import { fixture, PlatformProcess } from '../support/processes.ts';
import { deploy, handlerOf, upload } from '../support/version-project.ts';

const MINUTE_MS = 60_000;
const root = resolve(import.meta.dirname, '../..');
const run = `millrace-test-${process.pid}`;
const tags = {
  base: `${run}/base`,
  bare: `${run}/bare`,
  worker: `${run}/worker`,
  onBare: `${run}/on-bare`,
  extended: `${run}/extended`,
  platform: `${run}/platform`,
};

const parts = findParts();
const trouble = (await findEngineTrouble()) ?? (typeof parts === 'string' ? parts : undefined);
// A laptop may have no engine; where everything is proved, its lack is a failure.
const isLeftOut = trouble !== undefined && !process.env['CI'];
if (isLeftOut) console.warn(`test/e2e/image.test.ts is left out: ${trouble}`);

const view = z.object({ init: z.string(), pid: z.number(), userId: z.number(), made: z.string() });

/** npm installs the dependency in the container, from the archive itself. */
const WITH_PACKAGE = {
  'handler.ts': handlerOf('first', "import { greet } from 'greeting';\ngreet();"),
  'package.json': '{ "type": "module", "dependencies": { "greeting": "file:./greeting" } }',
  'greeting/package.json':
    '{ "name": "greeting", "version": "1.0.0", "type": "module", "main": "index.js" }',
  'greeting/index.js': 'export const greet = () => {};',
};

let folder: string;
let platform: PlatformProcess;
let client: Client;
const containers: Container[] = [];

/** Of Dockerfile.worker, or of another one in a folder. */
function build(tag: string, ...args: string[]): Promise<string> {
  return docker('build', '--force-rm', '--network', 'host', '--tag', tag, ...args);
}

function buildPlatform(tag: string): Promise<string> {
  const file = join(root, 'deploy/Dockerfile.platform');
  return build(tag, '--file', file, '--build-arg', `NODE_IMAGE=${tags.base}`, root);
}

function buildWorker(tag: string, ...args: string[]): Promise<string> {
  const file = join(root, 'Dockerfile.worker');
  return build(tag, '--file', file, '--build-arg', `NODE_IMAGE=${tags.base}`, ...args, root);
}

/** One more image, from the lines of its Dockerfile and a folder of its own. */
async function buildFrom(tag: string, lines: string[], files: Record<string, string> = {}) {
  const context = mkdtempSync(join(folder, 'context-'));
  writeFileSync(join(context, 'Dockerfile'), `${lines.join('\n')}\n`);
  for (const [name, path] of Object.entries(files)) copyFileSync(path, join(context, name));
  await build(tag, context);
}

/** A worker of the handler `contained`, whose health is looked at more often than by default. */
async function startWorker(...options: string[]): Promise<Container> {
  const variables = {
    MILLRACE_URL: platform.url,
    MILLRACE_ENDPOINT: 'contained',
    MILLRACE_KEY: platform.workerKey,
    // Containers on the host's network share its ports.
    MILLRACE_HEALTH_PORT: await findFreePort(),
  };
  const environment = Object.entries(variables).flatMap(([name, value]) => [
    '--env',
    `${name}=${value}`,
  ]);
  const often = ['--health-interval', '300ms'];
  const args = [...environment, ...often, ...options, tags.extended, 'mine/contained.ts'];
  const container = await Container.start(...args);
  containers.push(container);
  return container;
}

function submit(action: Action): Promise<{ id: string }> {
  return client.run({ ...action });
}

async function untilRunning(id: string): Promise<void> {
  const look = async () => (await client.status(id)).status;
  await expect.poll(look, { timeout: MINUTE_MS }).toBe('IN_PROGRESS');
}

async function look(): Promise<z.infer<typeof view>> {
  const { output } = await client.runsync({ do: 'look' });
  return view.parse(output);
}

describe.skipIf(isLeftOut)('the worker image', () => {
  beforeAll(async () => {
    if (trouble !== undefined || typeof parts === 'string') throw new Error(trouble);
    folder = mkdtempSync(join(tmpdir(), 'millrace-image-'));
    const project = join(folder, 'package.json');
    writeFileSync(project, '{ "name": "mine", "private": true, "type": "module" }');
    await importBaseImage(tags.base, parts);
    await buildWorker(tags.worker);
    const files = { 'package.json': project, 'contained.ts': fixture('contained.ts') };
    await buildFrom(tags.extended, [`FROM ${tags.worker}`, 'COPY . mine/'], files);
    platform = await PlatformProcess.start({ endpoints: ['contained'] });
    const { url, adminKey: key } = platform;
    client = createClient({ fetch: fetchChecked, url, key, endpoint: 'contained' });
  }, 10 * MINUTE_MS);

  afterEach(async () => {
    await Promise.all(containers.splice(0).map((container) => container.remove()));
  });

  afterAll(async () => {
    if (trouble !== undefined) return;
    await platform.close();
    await removeWithDescendants(tags.base);
    rmSync(folder, { recursive: true, force: true });
  }, MINUTE_MS);

  it('runs a job under an init, as a non-root user with a home', async () => {
    await startWorker();
    expect(await look()).toEqual({
      init: 'tini',
      pid: expect.any(Number),
      userId: 1000,
      made: expect.stringMatching(/^\/home\/worker\/made-/),
    });
  });

  it('reaps a leftover process of a job', async () => {
    await startWorker();
    expect(await client.runsync({ do: 'orphan' })).toMatchObject({ output: 'reaped' });
  });

  it('is healthy by its HEALTHCHECK until the worker stops responding', async () => {
    const container = await startWorker('--health-retries', '1', '--health-timeout', '2s');
    await container.untilHealth(/^healthy$/);
    // All but the init.
    await container.exec('sh', '-c', 'kill -STOP $(pidof node)');
    await container.untilHealth(/^unhealthy$/);
  });

  it('finishes a running job when it is stopped, and exits with 0', async () => {
    const container = await startWorker();
    const { id } = await submit({ do: 'wait', file: '/tmp/go' });
    await untilRunning(id);
    const stopped = docker('stop', '--time', '60', container.id);
    await container.untilLog(/draining/);
    await container.exec('touch', '/tmp/go');
    await stopped;
    expect(await container.inspect('{{.State.ExitCode}}')).toBe('0');
    expect(await client.status(id)).toMatchObject({ status: 'COMPLETED', output: 'waited' });
  });

  it('continues after a SIGKILL of its worker process, with the running job', async () => {
    const container = await startWorker();
    const { pid } = await look();
    const { id } = await submit({ do: 'wait', file: '/tmp/go' });
    await untilRunning(id);
    await container.exec('kill', '-KILL', String(pid));
    await container.exec('touch', '/tmp/go');
    await expect
      .poll(() => client.status(id), { timeout: MINUTE_MS })
      .toMatchObject({ status: 'COMPLETED', output: 'waited' });
    expect((await look()).pid).not.toBe(pid);
    expect(await container.inspect('{{.RestartCount}} {{.State.Running}}')).toBe('0 true');
  });

  it('keeps its identity in its state folder across a restart', async () => {
    const container = await startWorker();
    await container.untilLog(/worker ready/);
    await docker('kill', container.id);
    await docker('start', container.id);
    await container.untilLog(/worker ready(.|\n)*worker ready/);
    const folders = [...(await container.logs()).matchAll(/"folder":"(\/state\/[^"]+)"/g)];
    expect(folders.length).toBeGreaterThan(1);
    expect(new Set(folders.map(([, name]) => name)).size).toBe(1);
  });

  it('locks a worker’s state folder for one container, until SIGKILL', async () => {
    const volume = `${run}-state`;
    const same = ['--volume', `${volume}:/state`, '--env', 'MILLRACE_WORKER_ID=same'];
    try {
      const first = await startWorker(...same);
      await first.untilLog(/worker ready/);
      const second = await startWorker(...same, '--env', 'MILLRACE_START_ATTEMPTS=1');
      await second.untilEnded();
      expect(await second.logs()).toMatch(
        /\/state\/same cannot be used: another process .* uses it/,
      );
      await docker('kill', first.id);
      const third = await startWorker(...same);
      await third.untilLog(/worker ready/);
      expect(await third.logs()).toContain('"folder":"/state/same"');
    } finally {
      await Promise.all(containers.splice(0).map((container) => container.remove()));
      await docker('volume', 'rm', '--force', volume);
    }
  });

  it('runs the workers of an endpoint on a platform with the Docker engine', async () => {
    const serving = await serveOnDocker(folder, {
      template: { image: tags.worker, args: 'handlers/echo.ts' },
    });
    try {
      const record = await serving.client.runsync({ from: 'docker' });
      expect(record, serving.serve.output).toMatchObject({
        status: 'COMPLETED',
        output: { from: 'docker' },
      });
      await expect.poll(serving.listContainers, { timeout: MINUTE_MS }).toBe('');
    } finally {
      await serving.close();
    }
  });

  it('is replaced, and no job is lost, when the platform starts on another port', async () => {
    const template = { image: tags.extended, args: 'mine/contained.ts' };
    const times = ['--lease-ms', '3000', '--renew-every-ms', '1000'];
    const serving = await serveOnDocker(folder, { template, options: times });
    const { client, listContainers, move } = serving;
    try {
      const { id } = await client.run({ do: 'wait', file: '/tmp/go' });
      const status = async () => (await client.status(id)).status;
      await expect.poll(status, { timeout: MINUTE_MS }).toBe('IN_PROGRESS');
      const before = await listContainers();
      const moved = await move();
      const after = await moved.run({ do: 'look' });
      await expect
        .poll(() => moved.status(after.id), { timeout: MINUTE_MS })
        .toMatchObject({ status: 'COMPLETED' });
      // What the old worker has finished by itself counts, or another one runs the job again.
      await docker('exec', before, 'touch', '/tmp/go').catch(() => undefined);
      const goOn = async () => {
        for (const container of (await listContainers()).split('\n').filter(Boolean)) {
          await docker('exec', container, 'touch', '/tmp/go').catch(() => undefined);
        }
        return (await moved.status(id)).status;
      };
      await expect.poll(goOn, { timeout: 2 * MINUTE_MS }).toBe('COMPLETED');
    } finally {
      await serving.close();
    }
  });

  it(
    'runs versions of a handler: deploys, replaces and rolls back, and loses no job',
    async () => {
      const serving = await serveOnDocker(folder, {
        template: { image: tags.worker },
        endpoint: { source: 'VERSION', workersMax: 2 },
      });
      const { client, compute, endpointId } = serving;
      const rollTo = (version: number) => deploy(compute, endpointId, version, 120);
      const run = async () => (await client.wait((await client.run({})).id)).output;
      try {
        const first = await upload(compute, endpointId, WITH_PACKAGE);
        const rollout = await rollTo(first);
        expect(rollout, serving.serve.output).toMatchObject({ state: 'DONE', from: null });
        expect(await run()).toEqual({ version: 'first' });
        const ids = await Promise.all(
          Array.from({ length: 20 }, async () => (await client.run({ ms: 200 })).id),
        );
        const second = await upload(compute, endpointId, { 'handler.ts': handlerOf('second') });
        expect(await rollTo(second)).toMatchObject({ state: 'DONE', from: first });
        for (const id of ids) {
          expect(await client.wait(id)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
        }
        expect(await run()).toEqual({ version: 'second' });
        const broken = handlerOf('broken', "throw new Error('no model here');");
        const third = await upload(compute, endpointId, { 'handler.ts': broken });
        expect(await rollTo(third)).toMatchObject({
          ...{ state: 'FAILED', reason: expect.stringContaining('no model here') },
        });
        expect(await run()).toEqual({ version: 'second' });
        expect(await rollTo(first)).toMatchObject({ state: 'DONE', from: second });
        expect(await run()).toEqual({ version: 'first' });
      } finally {
        await serving.close();
      }
    },
    5 * MINUTE_MS,
  );

  it('keeps outcomes in a volume of the endpoint for the next worker', async () => {
    const serving = await serveOnDocker(folder, {
      template: { image: tags.extended, args: 'mine/contained.ts' },
    });
    const { listContainers, listVolumes, serve } = serving;
    try {
      const { id } = await serving.client.run({ do: 'wait', file: '/tmp/go' });
      const status = async () => (await serving.client.status(id)).status;
      await expect.poll(status, { timeout: MINUTE_MS }).toBe('IN_PROGRESS');
      const container = await listContainers();
      expect((await listVolumes()).split('\n')).toHaveLength(1);
      // The platform hears nothing any more: what the handler returns stays in the volume.
      serve.child.kill('SIGSTOP');
      await docker('exec', container, 'touch', '/tmp/go');
      const look = () =>
        docker('exec', container, 'sh', '-c', 'grep -c outcome /state/*/*.journal');
      await expect.poll(look, { timeout: MINUTE_MS }).toBe('1');
      await docker('kill', container);
      serve.child.kill('SIGCONT');
      // A second run would wait for the file, which the next container does not have.
      await expect.poll(status, { timeout: MINUTE_MS }).toBe('COMPLETED');
      expect(await serving.client.status(id)).toMatchObject({ output: 'waited', attempt: 1 });
      expect((await listVolumes()).split('\n')).toHaveLength(1);
      await serving.compute.endpoints.delete(serving.endpointId);
      await expect.poll(listVolumes, { timeout: MINUTE_MS }).toBe('');
    } finally {
      serve.child.kill('SIGCONT');
      await serving.close();
    }
  });

  describe('with the platform image', () => {
    const volume = `${run}-data`;

    afterEach(async () => {
      await Promise.all(containers.splice(0).map((container) => container.remove()));
      await docker('volume', 'rm', '--force', volume);
    });

    it(
      'keeps jobs, results and keys in its volume, whatever ends the container',
      async () => {
        await buildPlatform(tags.platform);
        const port = String(await findFreePort());
        const url = `http://127.0.0.1:${port}`;
        const ports = ['--env', `MILLRACE_PORT=${port}`, '--env', `MILLRACE_HEALTH_PORT=${port}`];
        const serve = async () => {
          const often = ['--health-interval', '300ms', '--volume', `${volume}:/data`];
          const container = await Container.start(
            ...[...ports, ...often, tags.platform],
            ...['--endpoint', 'contained'],
          );
          containers.push(container);
          await container.untilHealth(/^healthy$/);
          return container;
        };
        const readKey = (name: string, text: string) =>
          new RegExp(`${name}=(\\S+)`).exec(text)?.[1];
        const first = await serve();
        expect(await first.exec('sh', '-c', 'id -u; stat -c "%a %u" /data')).toBe('1000\n700 1000');
        const keys = await first.exec('cat', '/data/keys');
        const key = readKey('MILLRACE_ADMIN_KEY', keys);
        const jobs = createClient({ fetch: fetchChecked, url, key, endpoint: 'contained' });
        const { id } = await jobs.run({ do: 'look' });
        // One of the processes may end before the command kills it, and the command may end with
        // the container.
        await first.exec('sh', '-c', 'kill -KILL $(pidof node)').catch(() => undefined);
        await first.untilEnded();
        await first.remove();
        const second = await serve();
        const workerKey = readKey('MILLRACE_WORKER_KEY', keys) ?? '';
        await startWorker('--env', `MILLRACE_URL=${url}`, '--env', `MILLRACE_KEY=${workerKey}`);
        await expect
          .poll(() => jobs.status(id), { timeout: MINUTE_MS })
          .toMatchObject({ status: 'COMPLETED' });
        await docker('stop', '--time', '30', second.id);
        expect(await second.inspect('{{.State.ExitCode}}')).toBe('0');
      },
      3 * MINUTE_MS,
    );
  });

  it('contains the dependencies of the ready-made handlers', async () => {
    const gif = 'R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7';
    const input = JSON.stringify({ image: gif, format: 'png' });
    const command = ['bin/millrace.js', 'run', 'handlers/image.ts', '--input', input];
    const printed = await docker('run', '--rm', '--entrypoint', 'node', tags.worker, ...command);
    expect(JSON.parse(printed)).toMatchObject({ format: 'png', width: 1, height: 1 });
    const load = `for (const name of ['echo', 'text-stream', 'openai-proxy']) await import('/app/handlers/' + name + '.ts')`;
    await docker('run', '--rm', '--entrypoint', 'node', tags.worker, '-e', load);
  });

  it('adds Node to a base image without Node', async () => {
    await buildFrom(tags.bare, [`FROM ${tags.base}`, 'RUN rm /usr/local/bin/node']);
    await buildWorker(tags.onBare, '--build-arg', `BASE=${tags.bare}`);
    const said = await docker('run', '--rm', tags.onBare, '--help');
    expect(said).toContain('Usage: millrace worker');
  });

  it('contains the build output without build tools', async () => {
    const script = 'ls node_modules; ls; command -v tsc; true';
    const seen = await docker('run', '--rm', '--entrypoint', 'sh', tags.worker, '-c', script);
    const names = seen.split('\n');
    for (const name of ['typescript', 'vitest', 'src', 'test']) expect(names).not.toContain(name);
    expect(names).toContain('piscina');
  });
});
