import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SchemaTooNewError } from '../../../../src/store/schema-too-new.ts';
import { migrate } from '../../../../src/store/sqlite/migrations.ts';
import { MIGRATIONS } from '../../../../src/store/sqlite/schema-versions.ts';

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
    expect(listColumns('job')).toContain('lease_token');
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

  it('of the first version accepts jobs without a trace', () => {
    migrate(database, MIGRATIONS.slice(0, 1));
    expect(listColumns('job')).not.toContain('traceparent');
    const columns = database
      .prepare(`select name from pragma_table_info('job') where "notnull" = 1`)
      .all()
      .map((row) => row['name']);
    const zeros = columns.map(() => '0').join(', ');
    database.exec(`insert into job (${columns.join(', ')}) values (${zeros})`);
    migrate(database);
    const jobs = database.prepare('select id, traceparent, tracestate from job').all();
    expect(jobs).toEqual([{ id: '0', traceparent: null, tracestate: null }]);
  });

  it('of the fourth version keeps its payloads', () => {
    migrate(database, MIGRATIONS.slice(0, 4));
    for (const table of ['job_input', 'job_output']) {
      const insert = `insert into ${table} (endpoint_id, job_id, bytes) values ('e', 'j', ?)`;
      database.prepare(insert).run(Buffer.from(`of ${table}`));
    }
    migrate(database);
    for (const table of ['job_input', 'job_output']) {
      const [row] = database
        .prepare(`select job_id, at, cast(bytes as text) as text from ${table}`)
        .all();
      expect({ ...row }).toEqual({ job_id: 'j', at: 0, text: `of ${table}` });
    }
  });

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

  it('of a newer version is refused with both versions named, and unchanged', () => {
    migrate(database, [...MIGRATIONS, addNote]);
    const refuse = () => migrate(database, MIGRATIONS);
    expect(refuse).toThrow(SchemaTooNewError);
    expect(refuse).toThrow(
      new RegExp(`\\b${MIGRATIONS.length + 1}\\b.*\\b${MIGRATIONS.length}\\b`),
    );
    expect(readVersion()).toBe(MIGRATIONS.length + 1);
  });
});
