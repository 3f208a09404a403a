// Database files of every earlier version, with data in each table, opened by this version.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { locatePayloads, PayloadFolder } from '../../../../src/store/disk/payload-files.ts';
import { allJobColumns, listJobValues } from '../../../../src/store/sql/job-row.ts';
import { migrate } from '../../../../src/store/sqlite/migrations.ts';
import { MIGRATIONS } from '../../../../src/store/sqlite/schema-versions.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { OWNER } from '../../../../src/store/store.ts';
import {
  ENDPOINT,
  makeDelivery,
  makeJob,
  makeLease,
} from '../../../conformance/store/stored-jobs.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-old-'));
afterAll(() => rmSync(folder, { recursive: true }));

const migrator = fileURLToPath(new URL('../../../support/runs/stuck-migrator.ts', import.meta.url));
const WEBHOOKS_SINCE = 3;
const RESOURCES_SINCE = 6;
const RECORD_PARTS_SINCE = 7;
const PODS_OF_KEYS_SINCE = 10;
const PODS_OF_WORKERS_SINCE = 11;
const CAUSE_NAMES_SINCE = 16;
const VERSIONS_SINCE = 20;
const PAYLOAD_FILES_SINCE = 21;
const POD = 'pod_0192d3a0-0000-7000-8000-000000000012';
const versions = MIGRATIONS.map((_, index) => index + 1);

const key = { endpointId: ENDPOINT, id: 'done' };
const done = makeJob({
  id: 'done',
  position: 1,
  status: 'COMPLETED',
  outputKind: 'value',
  attempt: 1,
  chunkCount: 2,
  chunkBytes: 5,
  logBytes: 6,
  history: [{ attempt: 1, code: 'handler_error', message: 'm', workerId: 'w', endedAt: 5 }],
});
const running = makeJob({ id: 'running', position: 2, status: 'IN_PROGRESS', lease: makeLease() });
const delivery = makeDelivery({ id: 'd-1', jobId: 'done' });
const inFile = { ...key, id: 'running', kind: 'input', origin: 2 ** 31 } as const;
const settings = { executionTimeoutMs: 600_000, maxAttempts: 3, maxQueued: 100_000 };

/** Keys of before they had the pod's id beside them. */
const keysByName = [
  { id: 'p1', hash: 'h1', name: 'pod pod_1-a', scopes: '["worker:e"]', created_at: 6 },
  { id: 'p2', hash: 'h2', name: 'pod pod_1-a', scopes: '["jobs:read"]', created_at: 7 },
  { id: 'p3', hash: 'h3', name: 'pod pod_1 b', scopes: '["worker:e"]', created_at: 8 },
  { id: 'p4', hash: 'h4', name: 'my pod_1', scopes: '["worker:e"]', created_at: 9 },
];

/** Workers of before they had the pod's ID beside them, with keys of two pods, and the pod of each then. */
const podKeys = [POD, POD.replace('12', '13')].map((pod) => ({
  ...{ id: `k ${pod}`, hash: `h ${pod}`, name: `pod ${pod}`, scopes: '["worker:e"]' },
  ...{ created_at: 10, pod_id: pod },
}));
const workersByName: [id: string, podId: string | null][] = [
  [POD, POD],
  [`${POD.replace('12', '13')}-10`, POD.replace('12', '13')],
  [`${POD}-`, null],
  [`${POD}-1x`, null],
  [`${POD}1`, null],
  [POD.replace('12', '14'), null],
  ['worker-1', null],
];

type OldRow = Readonly<Record<string, SQLInputValue>>;

/** Writes what the columns of that version can hold. */
function insert(database: DatabaseSync, table: string, row: OldRow): void {
  const known = database.prepare('select name from pragma_table_info(?)').all(table);
  const names = known.map(({ name }) => String(name)).filter((name) => name in row);
  const marks = names.map(() => '?').join(', ');
  const values = names.map((name) => row[name] ?? null);
  const sql = `insert into ${table} (${names.join(', ')}) values (${marks})`;
  database.prepare(sql).run(...values);
}

function rowOf(job: typeof done): OldRow {
  const values = listJobValues(job);
  return Object.fromEntries(
    allJobColumns.split(', ').map((name, at) => [name, values[at] ?? null]),
  );
}

function makeOldDatabase(version: number): string {
  const path = join(folder, `${version}-${crypto.randomUUID()}.db`);
  const database = new DatabaseSync(path);
  database.exec('pragma journal_mode = wal');
  migrate(database, MIGRATIONS.slice(0, version));
  const counts = { in_progress: 1, completed: 1 };
  insert(database, 'endpoint', {
    id: ENDPOINT,
    settings: JSON.stringify(settings),
    created_at: 7,
    ...counts,
  });
  for (const job of [done, running]) insert(database, 'job', rowOf(job));
  const ofJob = { endpoint_id: ENDPOINT, job_id: 'done', at: 0 };
  for (const table of ['job_input', 'job_output', 'job_log']) {
    insert(database, table, { ...ofJob, bytes: Buffer.from(`of ${table}`) });
  }
  const chunks = { attempt: 1, first: 0, count: 2, sizes: '[2,2]', bytes: Buffer.from('{},{}') };
  insert(database, 'job_chunk', { ...ofJob, ...chunks });
  for (const [id] of workersByName) {
    insert(database, 'worker', {
      endpoint_id: ENDPOINT,
      id,
      incarnation: 3,
      slots: 2,
      version: '0.1.0',
      devices: '[]',
      hello_at: 4,
    });
  }
  insert(database, 'api_key', {
    id: 'k',
    hash: 'h',
    name: 'n',
    user_id: 'u',
    scopes: '["admin"]',
    created_at: 5,
  });
  for (const named of [...keysByName, ...podKeys])
    insert(database, 'api_key', { ...named, user_id: 'u' });
  if (version >= RESOURCES_SINCE) {
    const cause = version >= CAUSE_NAMES_SINCE ? 'no_capacity' : 'no_room';
    const body = JSON.stringify({ cause, reason: 'no_room' });
    const resource = { kind: 'decision', id: 'd', user_id: OWNER, parent: ENDPOINT, position: 1 };
    insert(database, 'resource', { ...resource, body });
  }
  if (version >= WEBHOOKS_SINCE) {
    const { endpointId: endpoint_id, id, jobId: job_id, url, receiver, bytes, attempts } = delivery;
    const times = { created_at: delivery.createdAt, next_at: delivery.nextAt };
    insert(database, 'delivery', {
      ...{ endpoint_id, id, job_id, url, receiver, bytes, tries: attempts },
      ...times,
    });
    const record = { delivery_id: id, bytes: Buffer.from('the record') };
    const part = version >= RECORD_PARTS_SINCE ? { at: 0 } : {};
    insert(database, 'delivery_record', { endpoint_id, ...record, ...part });
  }
  if (version >= VERSIONS_SINCE) {
    const part = { endpoint_id: ENDPOINT, version: 3, at: 0, bytes: Buffer.from('the archive') };
    insert(database, 'version_part', part);
  }
  if (version >= PAYLOAD_FILES_SINCE) {
    const row = { endpoint_id: ENDPOINT, job_id: 'running', at: inFile.origin };
    insert(database, 'job_input', { ...row, bytes: Buffer.alloc(0), file_bytes: 9 });
    const files = new PayloadFolder({ folder: locatePayloads(path) });
    mkdirSync(locatePayloads(path));
    writeFileSync(files.locate(inFile), 'in a file');
  }
  database.close();
  return path;
}

/** All that was put into it, as this version reads it. */
async function readAll(path: string) {
  const store = openSqliteStore({ path });
  try {
    return await store.read(function* (tx) {
      const range = { ...key, from: 0, maxBytes: 1_000 };
      const texts = [yield* tx.input(key), yield* tx.output(key), yield* tx.log(range)];
      const [chunks] = yield* tx.chunks({ ...range, attempt: 1 });
      const due = { userId: OWNER, receiver: delivery.receiver, now: delivery.nextAt, limit: 9 };
      return {
        endpoint: yield* tx.endpoint(ENDPOINT),
        jobs: [yield* tx.job(key), yield* tx.job({ ...key, id: 'running' })],
        leased: (yield* tx.jobsOfWorker(ENDPOINT, 'worker-1')).map(({ id }) => id),
        texts: texts.map((bytes) => Buffer.from(bytes ?? []).toString()),
        chunks: chunks && { sizes: chunks.sizes, text: Buffer.from(chunks.bytes).toString() },
        workers: (yield* tx.workers()).map(({ id, incarnation, podId, slots }) => {
          return { id, incarnation, podId, slots };
        }),
        keys: (yield* tx.keys())
          .filter(({ hash }) => !hash.includes(POD.slice(0, -2)))
          .map(({ hash, podId, scopes }) => [hash, scopes, podId]),
        deliveries: yield* tx.dueDeliveries(due),
        archive: Buffer.from(
          (yield* tx.versionPart({ endpointId: ENDPOINT, version: 3 }, 0)) ?? [],
        ).toString(),
        decision: (yield* tx.resource({ kind: 'decision', id: 'd' }))?.body,
        inFile: Buffer.from((yield* tx.input(inFile)) ?? []).toString(),
        record: Buffer.from((yield* tx.deliveryPart(delivery, 0)) ?? []).toString(),
      };
    });
  } finally {
    await store.close();
  }
}

function expected(version: number) {
  const hasWebhooks = version >= WEBHOOKS_SINCE;
  return {
    endpoint: expect.objectContaining({ settings, createdAt: 7, inProgress: 1, completed: 1 }),
    jobs: [done, running],
    leased: ['running'],
    texts: ['of job_input', 'of job_output', 'of job_log'],
    chunks: { sizes: [2, 2], text: '{},{}' },
    workers: workersByName
      .map(([id, pod]) => {
        const podId = version < PODS_OF_WORKERS_SINCE ? pod : null;
        return { id, incarnation: 3, podId, slots: 2 };
      })
      .sort((a, b) => (a.id < b.id ? -1 : 1)),
    keys: [
      ['h', ['admin'], null],
      ['h1', ['worker:e'], version < PODS_OF_KEYS_SINCE ? 'pod_1-a' : null],
      ['h2', ['jobs:read'], null],
      ['h3', ['worker:e'], null],
      ['h4', ['worker:e'], null],
    ],
    deliveries: hasWebhooks ? [delivery] : [],
    decision: version >= RESOURCES_SINCE ? '{"cause":"no_capacity","reason":"no_room"}' : undefined,
    archive: version >= VERSIONS_SINCE ? 'the archive' : '',
    inFile: version >= PAYLOAD_FILES_SINCE ? 'in a file' : '',
    record: hasWebhooks ? 'the record' : '',
  };
}

function readVersion(path: string): unknown {
  const database = new DatabaseSync(path);
  try {
    return database.prepare('pragma user_version').get()?.['user_version'];
  } finally {
    database.close();
  }
}

/** What it has written by then is more than it holds in memory. */
async function killInTheMiddle(path: string): Promise<void> {
  const child = spawn(process.execPath, [migrator, path], { stdio: 'inherit' });
  const exited = once(child, 'exit');
  const wal = () => statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  while (wal() < 4_000_000 && child.exitCode === null) await sleep(5);
  child.kill('SIGKILL');
  expect(await exited).toEqual([null, 'SIGKILL']);
}

describe.each(versions)('a database of version %i', (version) => {
  it('is migrated with all its data', async () => {
    const path = makeOldDatabase(version);
    expect(await readAll(path)).toEqual(expected(version));
    expect(readVersion(path)).toBe(MIGRATIONS.length);
  });

  it('is unchanged after a killed migration, and the next start migrates it', async () => {
    const path = makeOldDatabase(version);
    await killInTheMiddle(path);
    expect(readVersion(path)).toBe(version);
    expect(await readAll(path)).toEqual(expected(version));
  }, 30_000);
});
