// `millrace store copy`: a platform moves from SQLite to Postgres and back, also when the copy is killed.
import { cpSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { locatePayloads, PayloadFolder } from '../../../src/store/disk/payload-files.ts';
import { splitAt } from '../../../src/store/sql/unused-payloads.ts';
import type { CopiedInput } from '../../support/handlers/copied.ts';
import { fetchChecked } from '../../support/network/checked-fetch.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { fixture } from '../../support/processes.ts';
import { until } from '../../support/until.ts';
import { type CommandRun, Workplace } from '../cli/command-run.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/store-copy.test.ts');

/** NUL, which Postgres refuses in texts, the character that escapes it there, and characters of 2 to 4 bytes. */
const ODD = 'nul \u0000 dle \u0010 \u00100 ä € 😀';
const MB = 1_048_576;
const JOBS = 300;

const reference = z.object({ id: z.string() });
const jobPage = z.object({
  jobs: z.array(z.looseObject({ id: z.string(), status: z.string() })),
  cursor: z.string().nullish(),
});

interface Served {
  run: CommandRun;
  url: string;
}

describe.skipIf(isLeftOut)('store copy', () => {
  let server: PostgresServer;
  let origin: Workplace;
  let place: Workplace;
  let store: string;

  async function serve(at: Workplace, data: string, ...args: string[]): Promise<Served> {
    const run = at.start([
      ...['serve', '--port', '0', '--data', data, '--endpoint', 'work', '--endpoint', 'idle'],
      ...['--key-file', 'keys', '--rate-limit', 'none', '--store-check-ms', '0', ...args],
    ]);
    return { run, url: await run.until('stdout', /is ready at (\S+)\n/) };
  }

  function call(at: Workplace, { url }: Served, path: string, body?: object): Promise<Response> {
    const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(at.read('keys'))?.[1] ?? '';
    return fetchChecked(url + path, {
      method: body ? 'POST' : 'GET',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  }

  /** Makes a data folder with jobs in all states and rows in all tables, of a platform that was killed. */
  async function fill(at: Workplace): Promise<void> {
    const served = await serve(at, 'data', '--allow-private-webhooks');
    const key = /MILLRACE_WORKER_KEY=(\S+)/.exec(at.read('keys'))?.[1] ?? '';
    const where = ['--url', served.url, '--endpoint', 'work', '--key', key];
    const worker = at.start(['worker', fixture('copied.ts'), ...where, '--unsupervised']);
    const submit = async (endpoint: string, input: CopiedInput, more: object = {}) => {
      const answer = await call(at, served, `/v2/${endpoint}/run`, { input, ...more });
      return reference.parse(await answer.json()).id;
    };
    const text = ODD.repeat(3);
    const ended = [
      ...Array.from({ length: 200 }, (_, n) =>
        submit('work', { do: 'answer', text, size: n % 40 === 0 ? MB : n * 20 }),
      ),
      ...Array.from({ length: 20 }, () => submit('work', { do: 'stream', text })),
      ...Array.from({ length: 20 }, () => submit('work', { do: 'fail', text })),
      submit('work', { do: 'hang', text }, { policy: { executionTimeout: 1_000 } }),
    ];
    const webhook = 'http://127.0.0.1:9/';
    ended.push(submit('work', { do: 'answer', text, size: 2 * MB }, { webhook }));
    const waiting = Array.from({ length: JOBS - ended.length - 3 }, (_, n) =>
      submit(
        'idle',
        { do: 'answer', text: text.repeat(1 + (n % 30)) },
        { idempotencyKey: `k${n}` },
      ),
    );
    await Promise.all([...ended, ...waiting]);
    const cancelled = await submit('idle', { do: 'answer', text });
    await call(at, served, `/v2/idle/cancel/${cancelled}`, {});
    await Promise.all([1, 2].map(() => submit('work', { do: 'hang', text })));
    await call(at, served, '/v1/templates', { name: 'odd', image: 'none', env: { A: 'ä € 😀' } });
    await call(at, served, '/v1/keys', { name: 'ä € 😀', scopes: ['jobs:read'] });
    await waitForStates(at, served);
    await Promise.all([served.run.end('SIGKILL'), worker.end('SIGKILL')]);
    addOddRows(at.path('data/millrace.db'));
  }

  async function waitForStates(at: Workplace, served: Served): Promise<void> {
    await until(
      async () => {
        const { jobs } = await readState(at, served);
        const counts = Object.groupBy(jobs, ({ status }) => String(status));
        const running = counts['IN_PROGRESS']?.length;
        return running === 2 && counts['TIMED_OUT'] && counts['COMPLETED']?.length === 221;
      },
      { everyMs: 50 },
    );
  }

  /** What no request can write: uploads under way, and NUL in texts, also in a key. */
  function addOddRows(path: string): void {
    const database = new DatabaseSync(path);
    const upload = ['idle', 'gone', 0] as const;
    database
      .prepare('insert into job_input (endpoint_id, job_id, at, bytes) values (?, ?, ?, ?)')
      .run(...upload, Buffer.alloc(9));
    database.prepare(`insert into unused_payload values ('idle', 'gone', 'input', -1)`).run();
    database.prepare(`insert into version_part values ('idle', 1, 0, ?)`).run(Buffer.alloc(9));
    database.prepare(`insert into file_part values ('idle', 'gone', 0, ?)`).run(Buffer.alloc(9));
    database.prepare(`update job set group_key = ? where status = 'FAILED'`).run(ODD);
    database.prepare('update worker set version = ?').run(ODD);
    const key = database.prepare(`insert into api_key (id, hash, name, user_id, scopes, created_at)
      values (?, ?, ?, 'owner', '[]', 1)`);
    for (const id of [ODD, 'a\u0000b', 'a\u00100', 'a']) key.run(id, `hash of ${id}`, ODD);
    database.close();
  }

  /** What a platform answers, without what changes with time. */
  async function readState(at: Workplace, served: Served) {
    const json = async (path: string) => (await call(at, served, path)).json();
    const jobs: Record<string, unknown>[] = [];
    for (const endpoint of ['work', 'idle']) {
      let cursor: string | null | undefined = '';
      while (typeof cursor === 'string') {
        const more = cursor === '' ? '' : `&cursor=${cursor}`;
        const page = jobPage.parse(await json(`/v2/${endpoint}/jobs?limit=100${more}`));
        jobs.push(...page.jobs.map((job) => ({ ...job, endpoint })));
        cursor = page.cursor;
      }
    }
    for (const job of jobs) {
      if (!/IN_/.test(String(job['status']))) continue;
      delete job['delayTime'];
      delete job['executionTime'];
    }
    return { jobs, endpoints: await json('/v1/endpoints'), templates: await json('/v1/templates') };
  }

  /** With payloads, chunks, logs and keys. */
  async function readEverything(at: Workplace, served: Served) {
    const state = await readState(at, served);
    const details: string[] = [];
    const ended = state.jobs.filter(({ status }) => !/IN_/.test(String(status)));
    const sample = ended.filter(({ status }, n) => status !== 'COMPLETED' || n % 9 === 0);
    for (const { endpoint, id } of sample) {
      for (const kind of ['status', 'stream', 'logs']) {
        const answer = await call(at, served, `/v2/${endpoint}/${kind}/${id}`);
        details.push(`${answer.status} ${await answer.text()}`);
      }
    }
    return { ...state, details, keys: await (await call(at, served, '/v1/keys')).json() };
  }

  const copy = (from: string, to: string, ...args: string[]) =>
    place.run(['store', 'copy', '--from', from, '--to', to, ...args]);

  beforeAll(async () => {
    origin = new Workplace();
    [server] = await Promise.all([PostgresServer.start(), fill(origin)]);
  });
  afterAll(async () => {
    await origin?.close();
    await server?.stop();
  });
  beforeEach(async () => {
    place = new Workplace();
    for (const name of ['data', 'keys']) {
      cpSync(origin.path(name), place.path(name), { recursive: true });
    }
    store = await server.createDatabase();
  });
  afterEach(() => place.close());

  it('copies all rows to Postgres and back, and a platform on each copy answers the same', async () => {
    const database = new URL(store).pathname.slice(1);
    await server.query('create table of_others (id bigint)', database);
    const there = await copy('sqlite:data', store);
    expect(there).toMatchObject({ code: 0, stderr: '' });
    expect(there.stdout).toMatch(/^job +300 +300$/m);
    const back = await copy(store, 'sqlite:back', '--json');
    expect(back).toMatchObject({ code: 0, stderr: '' });

    const rows = readRows(place.path('data/millrace.db'));
    expect(readRows(place.path('back/millrace.db'))).toEqual(rows);
    expect(Object.values(rows).filter((lines) => lines.length === 0)).toEqual([]);
    const tables = Object.entries(rows).map(([table, { length }]) => ({
      ...{ table, source: length, target: length },
    }));
    const found = await server.query(
      "select tablename from pg_tables where schemaname = 'public'",
      database,
    );
    // A table that only Postgres has would not be copied.
    const own = ['copy_state', 'last_commit', 'schema_version', 'node', 'shard', 'of_others'];
    expect(new Set(found.split('\n'))).toEqual(new Set([...Object.keys(rows), ...own]));
    const to = `sqlite:${place.path('back')}`;
    expect(JSON.parse(back.stdout)).toEqual({ from: store, to, tables });

    const platforms = await Promise.all([
      serve(place, 'data'),
      serve(place, 'of-postgres', '--store', store),
      serve(place, 'back'),
    ]);
    const [first, ...others] = await Promise.all(
      platforms.map((served) => readEverything(place, served)),
    );
    for (const other of others) expect(other).toEqual(first);

    const inUse = await copy(store, 'sqlite:new');
    expect(inUse.code).toBe(1);
    expect(inUse.stderr).toMatch(/--from: .*another platform uses postgres:/);
  });

  it('goes on after it was killed, and no platform starts before it is complete', async () => {
    const args = ['--batch-rows', '1'];
    const there = ['store', 'copy', '--from', 'sqlite:data', '--to', store, ...args];
    for (const rows of [20, 150]) {
      const run = place.start(there);
      await waitForJobs(store, rows);
      await run.end('SIGKILL');
      expect(run.stdout).toBe('');
    }
    const onPostgres = ['--data', 'of-postgres', '--store', store];
    const refused = await place.run(['serve', '--port', '0', ...onPostgres]);
    expect(refused.code).toBe(1);
    const command = `millrace store copy --from sqlite:${place.path('data')} --to '${store}'`;
    expect(refused.stderr).toContain(`unfinished copy. To finish it, run \`${command}\``);
    const copied = await waitForJobs(store, 0);
    const struck = place.start(there);
    // Then it writes: the killed one may have copied more than was waited for.
    await waitForJobs(store, copied + 1);
    await server.crash();
    await server.resume();
    const { code, stderr } = await struck.ended;
    // The copy waits 5 s for a lost connection, which may be too short here.
    if (code !== 0) expect(stderr).toContain(`To continue, run \`${command}\``);
    if (code !== 0) expect(await copy('sqlite:data', store)).toMatchObject({ code: 0 });

    const back = ['store', 'copy', '--from', store, '--to', 'sqlite:back', ...args];
    const killed = place.start(back);
    await until(() => place.size('back/millrace.db-wal') >= MB, { everyMs: 1 });
    await killed.end('SIGKILL');
    const other = await place.run(['serve', '--port', '0', '--data', 'back']);
    expect(other).toMatchObject({ code: 1, stderr: expect.stringContaining('unfinished copy') });
    expect(await place.run(back)).toMatchObject({ code: 0 });
    const [rows, again] = ['data', 'back'].map((name) =>
      readRows(place.path(`${name}/millrace.db`)),
    );
    expect(again).toEqual(rows);
  });

  /** Resolves when the database has so many jobs, or more, with their number. */
  async function waitForJobs(url: string, jobs: number): Promise<number> {
    const client = new Client({ connectionString: url });
    await client.connect();
    // At first the table is missing.
    const count = () =>
      client.query('select count(*) as n from job').then(
        ({ rows }) => Number(rows[0]?.n),
        () => 0,
      );
    let counted = await count();
    while (counted < jobs) {
      await sleep(1);
      counted = await count();
    }
    await client.end();
    return counted;
  }

  it('does not continue after a platform has used the source', async () => {
    const run = place.start([
      'store',
      'copy',
      '--from',
      'sqlite:data',
      '--to',
      store,
      '--batch-rows',
      '1',
    ]);
    await waitForJobs(store, 1);
    const interrupted = await run.end('SIGINT');
    expect(interrupted).toMatchObject({ code: 130, stdout: '' });
    expect(interrupted.stderr).toBe('interrupted; run the same command again to continue\n');
    const { run: user } = await serve(place, 'data');
    const inUse = await copy('sqlite:data', store);
    expect(inUse.stderr).toMatch(/--from: \S+data is in use by another process \(pid \d+\); stop/);
    await user.end('SIGTERM');
    const refused = await copy('sqlite:data', store);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(
      /--to: .*a platform has used sqlite:\S+ since. Empty the target/,
    );
    expect((await copy('sqlite:data', 'sqlite:new.db')).code).toBe(0);
    const another = await copy('sqlite:new.db', store);
    expect(another.stderr).toMatch(/--to: .*unfinished copy of sqlite:\S+data. Name that source/);
  });

  it('takes the password from a file, prints none, and makes no tables in a source', async () => {
    await server.addUser('mover', 'pass%word');
    await server.query('create schema moved authorization mover', new URL(store).pathname.slice(1));
    const url = `${store.replace('postgres@', 'mover@')}&search_path=moved`;
    const withPassword = url.replace('mover@', 'mover:pass%25word@');
    place.write('password', 'pass%word\n');
    const [empty, done] = [
      await copy(withPassword, 'sqlite:new'),
      await copy('sqlite:data/millrace.db', url, '--json', '--store-password-file', 'password'),
    ];
    expect(empty.code).toBe(1);
    expect(empty.stderr).toMatch(/--from: .*has no tables of Millrace in the schema moved/);
    expect(done).toMatchObject({ code: 0, stderr: '' });
    const filled = await copy('sqlite:data', withPassword);
    expect(filled.code).toBe(1);
    expect(filled.stderr).toMatch(/--to: .*is not empty: api_key, delivery,.* have rows/);
    const printed = [empty, done, filled].map(({ stderr, stdout }) => stderr + stdout);
    expect(printed.join()).not.toMatch(/pass%(25)?word/);
  });
});

/** All rows of all tables, as text, in the order of their keys. Rows that name parts of files have the bytes instead. */
function readRows(path: string): Record<string, string[]> {
  const database = new DatabaseSync(path, { readOnly: true });
  const files = new PayloadFolder({ folder: locatePayloads(path) });
  try {
    const tables = database
      .prepare(
        `select name from sqlite_schema where type = 'table' and name <> 'copy_state' order by name`,
      )
      .all()
      .map(({ name }) => String(name));
    const read = (table: string) =>
      database
        .prepare(`select * from ${table}`)
        .all()
        .map((row) =>
          JSON.stringify(loadPart(table, row, files), (_, value) =>
            value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value,
          ),
        )
        .toSorted();
    return Object.fromEntries(tables.map((table) => [table, read(table)]));
  } finally {
    database.close();
  }
}

function loadPart(table: string, row: Record<string, unknown>, files: PayloadFolder) {
  if (typeof row['file_bytes'] !== 'number') return row;
  const { offset, origin } = splitAt(Number(row['at']));
  const key = { endpointId: String(row['endpoint_id']), id: String(row['job_id']) };
  const kind = table === 'job_input' ? 'input' : 'output';
  const bytes = files.readPartSync({ ...key, kind, origin }, offset, row['file_bytes']);
  // JSON.stringify would ask a Buffer for its own form.
  return { ...row, bytes: bytes && new Uint8Array(bytes), file_bytes: null };
}
