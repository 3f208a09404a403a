// Which databases `copyStore` refuses before it copies, and what it calls them.
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { openTemplates } from '../../../src/control/endpoints/templates.ts';
import {
  resealVariables,
  SecretSealer,
  sealVariables,
} from '../../../src/control/registries/sealed-secret.ts';
import { copyStore, nameDatabase } from '../../../src/platform/copy-store.ts';
import { LargePayloads } from '../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../src/queue/settings.ts';
import { locatePayloads, PayloadFolder } from '../../../src/store/disk/payload-files.ts';
import { MIGRATIONS } from '../../../src/store/sqlite/schema.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import type { StagedPayload, Store } from '../../../src/store/store.ts';
import { templateCreation } from '../../../src/wire/resources/template.ts';
import {
  addEndpoint,
  addJobs,
  deleteUnused,
  ENDPOINT,
  makeJob,
} from '../../support/store/stored-jobs.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-copy-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const place = (name: string) => `sqlite:${join(folder, name)}`;

async function fill(name: string, jobs = 3): Promise<void> {
  const store = openSqliteStore({ path: join(folder, name) });
  await addEndpoint(store);
  await addJobs(
    store,
    Array.from({ length: jobs }, (_, n) => makeJob({ id: `job-${n}`, position: n })),
  );
  await store.close();
}

function openPayloads(store: Store): LargePayloads {
  return new LargePayloads({ store, settings: completeSettings() });
}

function copy(
  from: string,
  to: string,
  { batchRows = 1, stopAfter = Number.POSITIVE_INFINITY } = {},
) {
  const stop = new AbortController();
  let batches = 0;
  const onProgress = () => {
    if (++batches >= stopAfter) stop.abort();
  };
  return copyStore({ from, to, batchRows, onProgress, signal: stop.signal });
}

const refusedWith = (message: RegExp) => ({
  ...{ status: 'rejected', reason: { message: expect.stringMatching(message) } },
});

describe('copyStore refuses', () => {
  it.each([
    ['sqlite:/none', 'sqlite:/new', /^from: \/none\/millrace.db does not exist/],
    ['sqlite:/a/../b', 'sqlite:/b', /^to: is the same database/],
    ['/data', 'sqlite:/new', /^from: must be sqlite:DIR, sqlite:FILE or postgres:/],
    ['postgres://h:x/d', 'sqlite:/new', /^from: must look like/],
    ['postgres://h/d?sslmode=no', 'sqlite:/new', /^from: has an unknown sslmode/],
    [
      'postgres://u:secret@127.0.0.1:9/d',
      'sqlite:/new',
      /^from: postgres:\/\/u@.*no server listens/,
    ],
  ])('%s to %s', async (from, to, message) => {
    const error = await copy(from, to).catch(String);
    expect(error).toMatch(new RegExp(`^PlatformOptionError: ${message.source.slice(1)}`));
    expect(error).not.toContain('secret');
  });

  it('a source that is empty, damaged, or of a newer version', async () => {
    writeFileSync(join(folder, 'empty.db'), '');
    await expect(copy(place('empty.db'), place('new.db'))).rejects.toThrow(/^from: .*is empty/);
    writeFileSync(join(folder, 'odd.db'), 'x'.repeat(9_000));
    await expect(copy(place('odd.db'), place('new.db'))).rejects.toThrow(/^from: .*is damaged/);
    const newer = new DatabaseSync(join(folder, 'newer.db'));
    newer.exec(`pragma user_version = ${MIGRATIONS.length + 1}`);
    newer.close();
    await expect(copy(place('newer.db'), place('new.db'))).rejects.toThrow(/^from: .*has schema/);
    expect(existsSync(join(folder, 'new.db'))).toBe(false);
  });

  it('a target that has a row, and leaves the row alone', async () => {
    await fill('a.db');
    await fill('b.db', 1);
    await expect(copy(place('a.db'), place('b.db'))).rejects.toThrow(
      'to: is not empty: endpoint, job have rows. Name a new file',
    );
    await expect(copy(place('b.db'), place('c.db'))).resolves.toContainEqual({
      ...{ table: 'job', source: 1, target: 1 },
    });
  });

  it('to continue after a platform has used the source', async () => {
    await fill('a.db');
    await copy(place('a.db'), place('c.db'), { stopAfter: 1 });
    await openSqliteStore({ path: join(folder, 'a.db') }).close();
    await expect(copy(place('a.db'), place('c.db'))).rejects.toThrow(/^to: .*has used .* since/);
  });

  it('a file that another copy uses, and leaves no lock behind', async () => {
    await fill('a.db', 20);
    await fill('b.db');
    const first = copy(place('a.db'), place('c.db'), { stopAfter: 3 });
    // At once: the first copy ends after a few batches, and its locks with it.
    const others = await Promise.allSettled([
      copy(place('a.db'), place('d.db')),
      copy(place('b.db'), place('c.db')),
    ]);
    expect(others).toMatchObject([
      refusedWith(/^from: \S+a.db is in use by another process; wait for the other copy/),
      refusedWith(/^to: \S+c.db is in use by/),
    ]);
    await first;
    expect(readdirSync(folder).filter((name) => name.endsWith('.lock'))).toEqual([]);
  });

  it('a target that lacks a column', async () => {
    await fill('a.db');
    await openSqliteStore({ path: join(folder, 'b.db') }).close();
    const target = new DatabaseSync(join(folder, 'b.db'));
    target.exec('alter table endpoint drop column deployment; create table of_others (id)');
    target.close();
    await expect(copy(place('a.db'), place('b.db'))).rejects.toThrow(
      /^to: table endpoint has no column named deployment/,
    );
  });

  it('to continue a copy of another source, or with another version, or as a source', async () => {
    await fill('a.db', 9);
    await fill('b.db', 9);
    expect(await copy(place('a.db'), place('c.db'), { stopAfter: 3 })).toBeUndefined();
    await expect(copy(place('b.db'), place('c.db'))).rejects.toThrow(
      /^to: .*copy of sqlite:\S+a.db/,
    );
    await expect(copy(place('c.db'), place('d.db'))).rejects.toThrow(
      /^from: is an unfinished copy/,
    );
    const target = new DatabaseSync(join(folder, 'c.db'));
    target.exec(`update copy_state set schema_version = 'old'`);
    target.close();
    await expect(copy(place('a.db'), place('c.db'))).rejects.toThrow(/^to: .*another version/);
  });
});

describe('copyStore', () => {
  it('continues behind the last batch, and tells how far it is', async () => {
    await fill('a.db', 20);
    await copy(place('a.db'), place('c.db'), { stopAfter: 8 });
    const steps: number[] = [];
    const tables = await copyStore({
      ...{ from: place('a.db'), to: place('c.db'), batchRows: 2 },
      onProgress: ({ copied, total }) => steps.push(copied, total),
      signal: new AbortController().signal,
    });
    expect(tables).toContainEqual({ table: 'job', source: 20, target: 20 });
    expect(steps.slice(0, 4)).toEqual([10, 21, 12, 21]);
    expect(steps.slice(-2)).toEqual([21, 21]);
    const store = openSqliteStore({ path: join(folder, 'c.db') });
    await store.close();
  });

  it('writes the rows of a batch and where it continues in one transaction', async () => {
    await fill('a.db', 6);
    await copy(place('a.db'), place('c.db'), { stopAfter: 3 });
    const target = new DatabaseSync(join(folder, 'c.db'));
    target.exec(`create trigger fault before update on copy_state when new.last_key like '%job-4%'
      begin select raise(abort, 'refused by the test'); end`);
    await expect(copy(place('a.db'), place('c.db'))).rejects.toThrow(
      /^to: refused by the test.*To/,
    );
    expect(target.prepare('select count(*) as n from job').get()).toEqual({ n: 4 });
    target.exec('drop trigger fault');
    target.close();
    expect(await copy(place('a.db'), place('c.db'))).toBeDefined();
  });

  it('copies sealed variables, which open with the same key and only with it', async () => {
    const sealer = new SecretSealer([Buffer.alloc(32, 1)]);
    const other = new SecretSealer([Buffer.alloc(32, 2)]);
    const env = { TOKEN: 's3cret' };
    const [source, target] = [join(folder, 'a.db'), join(folder, 'c.db')];
    const open = (store: Store, sealedBy = sealer) => {
      const catalog = { judgeRegistry: () => [], resolveRegistry: (_: string, id: string) => id };
      const options = { store, clock: systemClock, engine: 'docker', catalog } as const;
      return openTemplates({ ...options, sealer: sealedBy });
    };
    const from = openSqliteStore({ path: source });
    const creation = templateCreation.parse({ name: 't', image: 'i', env });
    const { id } = await (await open(from)).create('ada', creation);
    const pod = { kind: 'pod', id: 'pod', userId: 'ada' } as const;
    const spec = { env: sealVariables(sealer, { env }, pod) };
    const row = { ...pod, parent: '', position: 7, body: JSON.stringify({ spec }) };
    await from.write((tx) => tx.putResource(row));
    await from.close();
    await copy(place('a.db'), place('c.db'));
    for (const path of [target, `${target}-wal`].filter((each) => existsSync(each))) {
      expect(readFileSync(path).includes('s3cret')).toBe(false);
    }
    const to = openSqliteStore({ path: target });
    expect((await open(to)).get('ada', id).env).toEqual(env);
    expect((await open(to, other)).get('ada', id).env).toEqual({ TOKEN: '***' });
    const reseal = (sealedBy: SecretSealer) => resealVariables(to, sealedBy, 'pod');
    expect(await reseal(other)).toEqual({ keys: new Set([sealer.keyId]), records: 1 });
    // A new key opens the copied pod with the old one.
    const both = new SecretSealer([Buffer.alloc(32, 2), Buffer.alloc(32, 1)]);
    expect(await reseal(both)).toMatchObject({ records: 0 });
    expect(await reseal(other)).toMatchObject({ records: 0 });
    await to.close();
  });

  it('ends a batch at 4 MB', async () => {
    await fill('a.db', 1);
    const source = new DatabaseSync(join(folder, 'a.db'));
    const insert = source.prepare(
      `insert into job_output (endpoint_id, job_id, at, bytes) values ('e', ?, 0, ?)`,
    );
    for (const [id, megabytes] of Object.entries({ a: 3, b: 3, c: 5, d: 1, e: 2, f: 2 }))
      insert.run(id, Buffer.alloc(megabytes * 1_048_576));
    source.close();
    const steps: number[] = [];
    await copyStore({
      ...{ from: place('a.db'), to: place('c.db') },
      onProgress: ({ copied, table }) => table === 'job_output' && steps.push(copied - 2),
      signal: new AbortController().signal,
    });
    expect(steps).toEqual([1, 2, 3, 5, 6]);
  });

  describe('of large payloads in files', () => {
    const BYTES = 3 * 1_048_576 + 5;
    const keyOf = (id: string) => ({ endpointId: ENDPOINT, id });
    const stepsOf = (table: string) => {
      const steps: number[] = [];
      let before = 0;
      const onProgress = (step: { copied: number; table: string }) => {
        if (step.table === table) steps.push(step.copied - before);
        before = step.copied;
      };
      return { steps, onProgress };
    };

    /** Jobs whose inputs are in files, each of its own letter. */
    async function fillWithFiles(...ids: string[]): Promise<StagedPayload[]> {
      const store = openSqliteStore({ path: join(folder, 'a.db') });
      const payloads = openPayloads(store);
      await addEndpoint(store);
      const uploads: StagedPayload[] = [];
      for (const id of ids) {
        const bytes = Buffer.alloc(BYTES, id);
        const upload = await payloads.upload({ kind: 'input', key: keyOf(id), bytes });
        await store.write((tx) => tx.insertJob(makeJob({ id }), upload));
        uploads.push(upload);
      }
      await store.close();
      return uploads;
    }

    const locate = (upload: StagedPayload) =>
      new PayloadFolder({ folder: locatePayloads(join(folder, 'a.db')) }).locate(upload);

    const copyWith = (onProgress: (step: { copied: number; table: string }) => void) =>
      copyStore({
        ...{ from: place('a.db'), to: place('c.db'), onProgress },
        signal: new AbortController().signal,
      });

    it('puts them into rows, in batches of 4 MB', async () => {
      await fillWithFiles('a', 'b');
      const { onProgress, steps } = stepsOf('job_input');
      await copyWith(onProgress);
      // Each input has three rows of 1 MB and one of 5 bytes. The keys of the rows count too.
      expect(steps).toEqual([4, 4]);
      expect(existsSync(locatePayloads(join(folder, 'c.db')))).toBe(false);
      const store = openSqliteStore({ path: join(folder, 'c.db') });
      for (const id of ['a', 'b']) {
        const input = await openPayloads(store).read('input', keyOf(id), BYTES);
        expect(Buffer.compare(input ?? Buffer.from(''), Buffer.alloc(BYTES, id))).toBe(0);
        expect(await store.read((tx) => tx.payloadFile('input', keyOf(id)))).toBeUndefined();
      }
      await store.close();
    });

    it('fails without the file, and continues when it is back', async () => {
      const [, upload] = await fillWithFiles('a', 'b');
      const file = locate(upload ?? { ...keyOf('b'), kind: 'input', origin: 0 });
      renameSync(file, join(folder, 'moved'));
      await expect(copy(place('a.db'), place('c.db'))).rejects.toThrow(
        /^from: the input of job b of endpoint .* is lost; remove the job first\. .* To continue, run `/,
      );
      renameSync(join(folder, 'moved'), file);
      expect(await copy(place('a.db'), place('c.db'))).toContainEqual({
        ...{ table: 'job_input', source: 8, target: 8 },
      });
    });

    it('needs no file of an upload that a killed platform has begun', async () => {
      await fillWithFiles('a');
      const store = openSqliteStore({ path: join(folder, 'a.db') });
      await store.write((tx) => tx.beginFile('output', keyOf('a'), BYTES));
      await store.close();
      await copy(place('a.db'), place('c.db'));
      const target = openSqliteStore({ path: join(folder, 'c.db') });
      await deleteUnused(target);
      expect(await target.read((tx) => tx.output(keyOf('a')))).toBeUndefined();
      await target.close();
    });
  });

  it('finishes only if both have the same number of rows', async () => {
    await fill('a.db', 4);
    await copy(place('a.db'), place('c.db'), { stopAfter: 3 });
    const target = new DatabaseSync(join(folder, 'c.db'));
    target.exec(`delete from job where id = 'job-0'`);
    target.close();
    await expect(copy(place('a.db'), place('c.db'))).rejects.toThrow(
      'to: differs from the source: job has 3 rows instead of 4',
    );
    expect(() => openSqliteStore({ path: join(folder, 'c.db') })).toThrow('unfinished copy');
  });
});

describe('nameDatabase', () => {
  it.each([
    ['sqlite:/a/./b', 'sqlite:/a/b'],
    ['sqlite:///a/b', 'sqlite:/a/b'],
    ['postgres://u:p%40w@h:5/d?sslmode=require', 'postgres://u@h:5/d?sslmode=require'],
    ['postgres://:pw@h/d', 'postgres://h/d'],
  ])('of %s is %s', (text, name) => {
    expect(nameDatabase(text)).toBe(name);
  });
});
