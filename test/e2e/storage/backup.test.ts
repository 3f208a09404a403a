// `millrace backup` of a platform that works, and `millrace restore` into another folder.
import {
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPlatform } from '../../../src/client/platform-client.ts';
import { createClient } from '../../../src/client.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';
import {
  createVersionedEndpoint,
  deploy,
  handlerOf,
  upload,
} from '../../support/version-project.ts';
import { Workplace } from '../cli/command-run.ts';

const LARGE = 'x'.repeat(700_000);

let place: Workplace;
let source: PlatformProcess;
/** The versioned endpoint. */
let endpoint: string;
let ownKey: string;
/** Submitted and answered before the backup began; each input is its place in the list. */
const queued: string[] = [];
let large: string;
let done: string;

function clientOf({ adminKey, url }: PlatformProcess, id: string) {
  return createClient({ url, key: adminKey, endpoint: id });
}

beforeAll(async () => {
  place = new Workplace();
  source = await PlatformProcess.start({ endpoints: ['echo'], args: ['--engine', 'process'] });
  const platform = createPlatform({ url: source.url, key: source.adminKey });
  const { id, templateId } = await createVersionedEndpoint(platform);
  endpoint = id;
  // Workers of both platforms use it, as on a machine whose platform is restored.
  const env = { MILLRACE_VERSION_CACHE: place.path('versions') };
  await platform.templates.update(templateId ?? '', { env });
  await upload(platform, endpoint, { 'handler.ts': handlerOf('first') });
  await upload(platform, endpoint, { 'handler.ts': handlerOf('second') });
  expect(await deploy(platform, endpoint, 1)).toMatchObject({ state: 'DONE' });
  const versioned = clientOf(source, endpoint);
  done = (await versioned.run({})).id;
  await versioned.wait(done);
  ownKey = (await platform.keys.create({ name: 'kept', scopes: ['jobs:read'] })).key;
  // No worker serves this endpoint.
  const jobs = clientOf(source, 'echo');
  large = (await jobs.run({ LARGE })).id;
  let isOver = false;
  const submitting = (async () => {
    while (!isOver) queued.push((await jobs.run({ n: queued.length })).id);
  })();
  await until(() => queued.length >= 20);
  const acknowledged = queued.length;
  const made = await place.run(['backup', 'copy', '--data', join(source.folder, 'data')]);
  isOver = true;
  await submitting;
  queued.length = acknowledged;
  expect(made).toMatchObject({ code: 0 });
  expect(made.stderr).toContain('not in the backup: ');
  // The workers of this machine now have this version 3 in their cache.
  const lost = await upload(platform, endpoint, { 'handler.ts': handlerOf('lost') });
  expect(await deploy(platform, endpoint, lost)).toMatchObject({ version: 3, state: 'DONE' });
});

afterAll(async () => {
  await source.close();
  await place.close();
});

describe('a backup of a platform that takes jobs', () => {
  it('has a manifest, and only its owner may read it', () => {
    const manifest = JSON.parse(place.read('copy/backup.json'));
    const names = manifest.files.map(({ name }: { name: string }) => name);
    expect(names).toEqual(expect.arrayContaining(['millrace.db', 'webhook-secrets']));
    expect(readdirSync(place.path('copy')).sort()).toEqual([...names, 'backup.json'].sort());
    expect(statSync(place.path('copy')).mode & 0o777).toBe(0o700);
    for (const name of names) expect(statSync(place.path(`copy/${name}`)).mode & 0o777).toBe(0o600);
  });

  it('brings back jobs, payloads, keys, endpoints, versions and secrets', async () => {
    const restored = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'] });
    try {
      await restored.process.end();
      const data = join(restored.folder, 'data');
      const refused = await place.run(['restore', 'copy', '--data', data]);
      expect(refused).toMatchObject({ code: 1, stdout: '' });
      expect(refused.stderr).toContain('exists already; move it away');
      rmSync(data, { recursive: true });
      const { code, stdout } = await place.run(['restore', 'copy', '--data', data]);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^restored \d+ files of the backup of 20/);
      await restored.restart();
      const jobs = clientOf(restored, 'echo');
      for (const id of queued) expect(await jobs.status(id)).toMatchObject({ status: 'IN_QUEUE' });
      const versioned = clientOf(restored, endpoint);
      expect(await versioned.status(done)).toMatchObject({ output: { version: 'first' } });
      const { id } = await versioned.run({});
      expect((await versioned.wait(id)).output).toEqual({ version: 'first' });
      const platform = createPlatform({ url: restored.url, key: restored.adminKey });
      expect(await deploy(platform, endpoint, 2)).toMatchObject({ state: 'DONE' });
      const again = await upload(platform, endpoint, { 'handler.ts': handlerOf('new third') });
      expect(await deploy(platform, endpoint, again)).toMatchObject({ version: 3, state: 'DONE' });
      const third = await versioned.run({});
      expect((await versioned.wait(third.id)).output).toEqual({ version: 'new third' });
      const kept = readdirSync(place.path('versions'));
      expect(kept.filter((name) => name.startsWith(`${endpoint}-3-`))).toHaveLength(2);
      const asKey = createClient({ url: restored.url, key: ownKey, endpoint: 'echo' });
      expect(await asKey.status(large)).toMatchObject({ status: 'IN_QUEUE' });
      restored.startWorker('echo', '../../../handlers/echo.ts');
      expect((await jobs.wait(large)).output).toEqual({ LARGE });
      const read = (folder: string) => readFileSync(join(folder, 'data/webhook-secrets'), 'utf8');
      expect(read(restored.folder)).toBe(read(source.folder));
    } finally {
      await restored.close();
    }
  });
});

describe('millrace backup refuses', () => {
  it.each([
    ['a folder that exists', ['copy', '--data', 'data'], /copy: exists already; name a new folder/],
    [
      'a data folder without a database',
      ['new', '--data', 'none'],
      /millrace\.db does not exist.*pg_dump/,
    ],
    ['a folder in a missing one', ['none/new', '--data', 'data'], /none\/new: ENOENT/],
  ])('%s, and leaves nothing', async (_case, args, message) => {
    if (!existsSync(place.path('data')))
      cpSync(place.path('copy'), place.path('data'), { recursive: true });
    const { code, stderr, stdout } = await place.run(['backup', ...args]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain('    at ');
    expect(existsSync(place.path('new'))).toBe(false);
  });

  it('links and large files, and names them', async () => {
    cpSync(place.path('copy'), place.path('odd'), { recursive: true });
    symlinkSync('/etc/passwd', place.path('odd/link'));
    writeFileSync(place.path('odd/large'), Buffer.alloc(1_048_577));
    const { stderr } = await place.run([
      'backup',
      'odd-copy',
      '--data',
      'odd',
      '--without-database',
    ]);
    expect(stderr).toBe('not in the backup: backup.json, large, link\n');
    expect(existsSync(place.path('odd-copy/millrace.db'))).toBe(false);
    const { code } = await place.run(['restore', 'odd-copy', '--data', 'odd-restored']);
    expect(code).toBe(0);
    expect(existsSync(place.path('odd-restored/webhook-secrets'))).toBe(true);
  });
});

describe('millrace restore refuses', () => {
  function damage(name: string, change: (folder: string) => void): string {
    cpSync(place.path('copy'), place.path(name), { recursive: true });
    change(place.path(name));
    return name;
  }
  function changeManifest(folder: string, changes: object): void {
    const path = join(folder, 'backup.json');
    writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...changes }));
  }

  it.each<[string, (folder: string) => void, RegExp]>([
    [
      'a changed file',
      (f) => writeFileSync(join(f, 'webhook-secrets'), 'other'),
      /webhook-secrets has changed/,
    ],
    [
      'no manifest',
      (f) => writeFileSync(join(f, 'backup.json'), ''),
      /backup\.json cannot be read/,
    ],
    ['a newer schema', (f) => changeManifest(f, { schemaVersion: 9_999 }), /schema version 9999/],
    [
      'a path out of the folder',
      (f) => changeManifest(f, { files: [{ name: '../x', bytes: 0, sha256: '0'.repeat(64) }] }),
      /backup\.json cannot be read: .*name/,
    ],
  ])('%s', async (name, change, message) => {
    const { code, stderr } = await place.run(['restore', damage(name, change), '--data', 'target']);
    expect(code).toBe(1);
    expect(stderr).toMatch(message);
    expect(existsSync(place.path('target'))).toBe(false);
  });

  it('a data folder that a platform uses', async () => {
    const data = join(source.folder, 'data');
    const { code, stderr } = await place.run(['restore', 'copy', '--data', data]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/--data: .* is in use by another process/);
  });
});
