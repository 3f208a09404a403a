import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SchemaTooNewError, SchemaUnknownError } from '../../../../src/store/schema-migration.ts';
import { MIGRATIONS, migrate } from '../../../../src/store/sqlite/schema.ts';
import { until } from '../../../support/until.ts';

const migrator = fileURLToPath(new URL('../../../support/runs/stuck-migrator.ts', import.meta.url));
const addNote = 'alter table job add column note text';

let database: DatabaseSync;

beforeEach(() => {
  database = new DatabaseSync(':memory:');
});
afterEach(() => database.close());

function readVersion(): unknown {
  return database.prepare('pragma user_version').get()?.['user_version'];
}

function listColumns(table: string): unknown[] {
  const rows = database.prepare('select name from pragma_table_info(?)').all(table);
  return rows.map((row) => row['name']);
}

describe('a schema', () => {
  it('is created in an empty database', () => {
    migrate(database);
    expect(readVersion()).toBe(MIGRATIONS.length);
    expect(listColumns('job')).toContain('body');
  });

  it('keeps large values out of the trees that are searched by key', () => {
    migrate(database);
    const withoutRowid = database
      .prepare(
        `select tables.name from pragma_table_list as tables join pragma_table_info(tables.name) as columns
         where tables.wr = 1 and lower(columns.type) = 'blob'`,
      )
      .all();
    expect(withoutRowid).toEqual([]);
  });

  it('is unchanged when it is up to date', () => {
    migrate(database);
    database.exec("insert into endpoint (id, settings, created_at) values ('e', '{}', 1)");
    migrate(database);
    expect(database.prepare('select id from endpoint').all()).toHaveLength(1);
  });

  it('is migrated from an older version with its data', () => {
    migrate(database, MIGRATIONS);
    database.exec("insert into endpoint (id, settings, created_at) values ('e', '{}', 1)");
    migrate(database, [...MIGRATIONS, addNote]);
    expect(readVersion()).toBe(MIGRATIONS.length + 1);
    expect(listColumns('job')).toContain('note');
    expect(database.prepare('select id from endpoint').all()).toHaveLength(1);
  });

  it('is unchanged after a migration was killed, and the next one succeeds', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-killed-'));
    const path = join(folder, 'a.db');
    const child = spawn(process.execPath, [migrator, path], { stdio: 'inherit' });
    const exited = once(child, 'exit');
    const wal = () => statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
    // By then it has written more than it holds in memory.
    await until(() => wal() >= 4_000_000 || child.exitCode !== null);
    child.kill('SIGKILL');
    expect(await exited).toEqual([null, 'SIGKILL']);
    database.close();
    database = new DatabaseSync(path);
    expect(readVersion()).toBe(MIGRATIONS.length);
    expect(listColumns('half')).toEqual([]);
    migrate(database, [...MIGRATIONS, addNote]);
    expect(listColumns('job')).toContain('note');
    rmSync(folder, { recursive: true });
  }, 30_000);

  it('is unchanged when a later migration fails', () => {
    migrate(database, MIGRATIONS);
    const broken = [...MIGRATIONS, addNote, 'create table job (id text)'];
    expect(() => migrate(database, broken)).toThrow(
      expect.objectContaining({ code: 'ERR_SQLITE_ERROR' }),
    );
    expect(readVersion()).toBe(MIGRATIONS.length);
    expect(listColumns('job')).not.toContain('note');
    expect(database.isTransaction).toBe(false);
  });

  it('is refused with both versions named if it is newer, and unchanged', () => {
    migrate(database, [...MIGRATIONS, addNote]);
    const refuse = () => migrate(database, MIGRATIONS);
    expect(refuse).toThrow(SchemaTooNewError);
    expect(refuse).toThrow(
      new RegExp(`\\b${MIGRATIONS.length + 1}\\b.*\\b${MIGRATIONS.length}\\b`),
    );
    expect(readVersion()).toBe(MIGRATIONS.length + 1);
  });

  it('is refused if it is of another program, and unchanged', () => {
    database.exec('create table other (id text)');
    expect(() => migrate(database)).toThrow(SchemaUnknownError);
    expect(listColumns('job')).toEqual([]);
  });
});
