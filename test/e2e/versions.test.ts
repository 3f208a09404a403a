// Versions of a handler on the process engine: real platform, real workers, real npm.
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPlatform, type Platform } from '../../src/client/platform-client.ts';
import { createClient } from '../../src/client.ts';
import { PlatformProcess } from '../support/processes.ts';
import { until } from '../support/until.ts';
import {
  createVersionedEndpoint,
  deploy,
  followRollout,
  handlerOf,
  type ProjectTexts,
  upload,
} from '../support/version-project.ts';

let served: PlatformProcess;
let platform: Platform;
let endpoint: string;

beforeAll(async () => {
  served = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'] });
  platform = createPlatform({ url: served.url, key: served.adminKey });
  endpoint = (await createVersionedEndpoint(platform)).id;
});

afterAll(() => served.close());

function client() {
  return createClient({ url: served.url, key: served.adminKey, endpoint });
}

async function run(input: object = {}): Promise<unknown> {
  const { id } = await client().run(input);
  return (await client().wait(id)).output;
}

/** Installed from the archive itself, so that no registry is needed. */
const WITH_PACKAGE: ProjectTexts = {
  'handler.ts': handlerOf('first', "import { greet } from 'greeting';\ngreet();"),
  'package.json': JSON.stringify({
    type: 'module',
    dependencies: { greeting: 'file:./greeting', millrace: 'file:../millrace-0.1.0.tgz' },
  }),
  'greeting/package.json': JSON.stringify({
    ...{ name: 'greeting', version: '1.0.0', type: 'module', main: 'index.js' },
    scripts: { install: 'exit 1' },
  }),
  'greeting/index.js': 'export const greet = () => {};',
};

const BROKEN: Readonly<Record<string, { files: ProjectTexts; timeout?: number; reason: RegExp }>> =
  {
    'has a syntax error': {
      files: { 'handler.ts': 'export default function (job { return 1; }' },
      // Without the path of the worker's cache.
      reason: /: handler\.ts:1: Expected/,
    },
    'imports a package that is not installed': {
      files: { 'handler.ts': handlerOf('broken', "import 'not-a-package';") },
      reason: /not-a-package/,
    },
    'throws while it is loaded': {
      files: { 'handler.ts': handlerOf('broken', "throw new Error('no model here');") },
      reason: /no model here/,
    },
    'hangs in its setup': {
      files: {
        'handler.ts': handlerOf('broken', 'export const setup = () => new Promise(() => {});'),
      },
      timeout: 5,
      reason: /did not connect within 5 s/,
    },
    'has a dependency that cannot be installed': {
      files: {
        'handler.ts': handlerOf('broken'),
        'package.json': '{"dependencies":{"gone":"file:./gone.tgz"}}',
      },
      reason: /npm install of the version failed.*gone\.tgz/,
    },
  };

describe('a version', () => {
  it('runs with its packages once it is deployed, and not before', async () => {
    const { id } = await client().run({});
    const first = await upload(platform, endpoint, WITH_PACKAGE);
    expect((await client().status(id)).status).toBe('IN_QUEUE');
    const rollout = await deploy(platform, endpoint, first);
    expect(rollout).toMatchObject({ version: 1, from: null, state: 'DONE', reason: null });
    expect((await client().wait(id)).output).toEqual({ version: 'first' });
    expect(await platform.endpoints.get(endpoint)).toMatchObject({ source: 'VERSION', version: 1 });
  });

  it('replaces another one under load, and no job is lost', async () => {
    const ids = await Promise.all(
      Array.from({ length: 40 }, async () => (await client().run({ ms: 100 })).id),
    );
    const second = await upload(platform, endpoint, { 'handler.ts': handlerOf('second') });
    expect(await deploy(platform, endpoint, second)).toMatchObject({ state: 'DONE', from: 1 });
    expect(await run()).toEqual({ version: 'second' });
    for (const id of ids) expect(await client().wait(id)).toMatchObject({ attempt: 1 });
    expect((await client().health()).jobs).toMatchObject({ failed: 0, retried: 0 });
  });

  it.each(Object.entries(BROKEN))('never takes over if it %s', async (_what, broken) => {
    const { files, reason, timeout } = broken;
    const { version } = await platform.endpoints.get(endpoint);
    const number = await upload(platform, endpoint, files);
    const rollout = await deploy(platform, endpoint, number, timeout);
    expect(rollout).toMatchObject({ version: number, state: 'FAILED' });
    expect(rollout.reason).toMatch(reason);
    expect(await platform.endpoints.get(endpoint)).toMatchObject({ version });
    expect(await run()).toEqual({ version: 'second' });
  });

  it('is still shown as failed after the platform was killed', async () => {
    const { rollout } = await platform.endpoints.get(endpoint);
    expect(rollout).toMatchObject({
      state: 'FAILED',
      reason: expect.stringMatching(/npm install/),
    });
    await served.kill();
    await served.restart();
    expect((await platform.endpoints.get(endpoint)).rollout).toEqual(rollout);
    expect(await run()).toEqual({ version: 'second' });
  });

  it('is deployed again by its number', async () => {
    expect(await deploy(platform, endpoint, 1)).toMatchObject({ version: 1, state: 'DONE' });
    expect(await run()).toEqual({ version: 'first' });
  });

  it('goes on with its rollout after the platform was killed', async () => {
    const slow = 'await new Promise((resolve) => setTimeout(resolve, 3_000));';
    const number = await upload(platform, endpoint, { 'handler.ts': handlerOf('slow', slow) });
    await platform.endpoints.versions(endpoint).deploy(number, { timeout: 60 });
    await sleep(500);
    await served.kill();
    await served.restart();
    expect(await followRollout(platform, endpoint)).toMatchObject({
      ...{ version: number, state: 'DONE' },
    });
    expect(await run()).toEqual({ version: 'slow' });
  });

  it('leaves nothing behind if its upload was interrupted by a kill', async () => {
    const data = randomBytes(20 * 1_048_576).toString('base64');
    const files = { 'handler.ts': handlerOf('large'), 'data.txt': data };
    const sent = upload(platform, endpoint, files).catch(() => 'interrupted');
    await until(() => !listParts().every((name) => listVersions().includes(name)));
    await served.kill();
    expect(await sent).toBe('interrupted');
    expect(listParts()).not.toEqual(listVersions());
    await served.restart();
    await until(() => listParts().length === listVersions().length, { everyMs: 100 });
    expect(listParts()).toEqual(listVersions());
    const number = await upload(platform, endpoint, { 'handler.ts': handlerOf('after') });
    expect(await deploy(platform, endpoint, number)).toMatchObject({ state: 'DONE' });
    expect(await run()).toEqual({ version: 'after' });
  });
});

/** Versions of which the database has parts. */
function listParts(): string[] {
  return query(`select distinct endpoint_id || '/' || version as name from version_part`);
}

function listVersions(): string[] {
  return query(`select id as name from resource where kind = 'version'`);
}

function query(sql: string): string[] {
  using database = new DatabaseSync(join(served.folder, 'data', 'millrace.db'), { readOnly: true });
  const names = database
    .prepare(sql)
    .all()
    .map(({ name }) => String(name));
  return names.toSorted();
}
