// The schema as a list of migrations, and how a store applies them.
import type { DatabaseSync } from 'node:sqlite';
import {
  type SchemaMigration,
  SchemaTooNewError,
  SchemaUnknownError,
} from '../schema-migration.ts';

/**
 * Payloads are in tables of their own because every step of a job's life rewrites the job's row; only small ones are in
 * it. WITHOUT ROWID saves a second tree per table, since all rows are found by their key. Not so for job, whose other
 * indexes are shorter with a row ID, nor for tables with large values: a lookup without rowid compares whole rows.
 * Many nodes on Postgres share the endpoints by shard. SQLite has one node, and keeps the number for copies.
 */
const firstSchema = `
create table endpoint (
  id text not null primary key,
  settings text not null,
  created_at bigint not null,
  in_queue bigint not null default 0,
  in_progress bigint not null default 0,
  completed bigint not null default 0,
  failed bigint not null default 0,
  cancelled bigint not null default 0,
  timed_out bigint not null default 0,
  retried bigint not null default 0,
  user_id text not null default 'owner',
  deployment text,
  deleted integer not null default 0,
  shard bigint not null default 0
) without rowid;

create table job (
  endpoint_id text not null,
  id text not null,
  status text not null,
  lane bigint not null,
  priority integer not null,
  place bigint not null,
  position bigint not null,
  group_key text not null,
  queued_at bigint not null,
  due_at bigint not null,
  worker text,
  leased integer not null,
  idempotency_key text,
  body text not null,
  details text,
  input blob,
  output blob,
  primary key (endpoint_id, id)
);

-- Each group of each priority in its order. Jobs without a group have an empty one.
create index job_queued on job (endpoint_id, lane, priority desc, group_key, place)
  where status = 'IN_QUEUE';
-- The oldest ready job of the groups.
create index job_grouped on job (endpoint_id, position)
  where status = 'IN_QUEUE' and lane = 0 and group_key > '';
-- Jobs that have outgrown a GPU type.
create index job_outgrown on job (endpoint_id, lane, priority desc, place)
  where status = 'IN_QUEUE' and lane > 1;
-- Jobs with a lease are in memory: their rows leave this index alone.
create index job_due on job (due_at) where leased = 0;
-- With the position, lest the planner take job_listed to be spared the sorting.
create index job_leased on job (endpoint_id, worker, position) where leased = 1;
create index job_listed on job (endpoint_id, position);
-- All but COMPLETED, so that no state that people look for is searched for among what went well.
create index job_by_status on job (endpoint_id, status, position)
  where status = 'IN_QUEUE' or status = 'FAILED' or status = 'TIMED_OUT' or status = 'CANCELLED';
create unique index job_idempotent on job (endpoint_id, idempotency_key)
  where idempotency_key is not null;

-- file_bytes: size of the part of a file that the row names; bytes is empty then. Null: the row has the bytes.
create table job_input (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  file_bytes bigint,
  primary key (endpoint_id, job_id, at)
);

create table job_output (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  file_bytes bigint,
  primary key (endpoint_id, job_id, at)
);

create table job_chunk (
  endpoint_id text not null,
  job_id text not null,
  attempt integer not null,
  first bigint not null,
  count bigint not null,
  sizes text not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, attempt, first)
);

create table job_log (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, at)
);

-- Payload rows that no job has: those of uploads under way, and those that are yet to be deleted. origin tells the
-- payloads of one job apart; -1 means all rows of the job.
create table unused_payload (
  endpoint_id text not null,
  job_id text not null,
  kind text not null,
  origin bigint not null,
  primary key (endpoint_id, job_id, kind, origin)
) without rowid;

create table worker (
  endpoint_id text not null,
  id text not null,
  incarnation bigint not null,
  slots integer not null,
  version text not null,
  devices text not null,
  hello_at bigint not null,
  pod_id text,
  retry text,
  primary key (endpoint_id, id)
) without rowid;

create table api_key (
  id text not null primary key,
  hash text not null unique,
  name text not null,
  user_id text not null,
  scopes text not null,
  created_at bigint not null,
  expires_at bigint,
  pod_id text
) without rowid;
-- Whoever creates a key must not read those of all other users.
create index api_key_of_user on api_key (user_id, created_at, id);

-- A delivery ages only while the platform runs.
create table delivery (
  endpoint_id text not null,
  id text not null,
  job_id text not null,
  user_id text not null default 'owner',
  url text not null,
  receiver text not null,
  created_at bigint not null,
  platform_ran_ms bigint not null default 0,
  bytes bigint not null,
  tries integer not null,
  next_at bigint not null,
  primary key (endpoint_id, id)
);
create index delivery_due on delivery (user_id, receiver, next_at);

-- Apart from delivery, whose rows every failed attempt rewrites. A part has its bytes, or names the row of job_output
-- that has them.
create table delivery_record (
  endpoint_id text not null,
  delivery_id text not null,
  at bigint not null,
  bytes blob,
  source_job text,
  source_at bigint,
  primary key (endpoint_id, delivery_id, at)
);
create index delivery_record_source on delivery_record (endpoint_id, source_job)
  where source_job is not null;

create table resource (
  kind text not null,
  id text not null,
  user_id text not null,
  parent text not null,
  position bigint not null,
  body text not null,
  primary key (kind, id)
);
create index resource_listed on resource (kind, position);
create index resource_of_user on resource (kind, user_id, position);
create index resource_of_parent on resource (kind, parent, position);

-- Archives of uploaded handlers, in parts.
create table version_part (
  endpoint_id text not null,
  version bigint not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, version, at)
);

-- Uploaded files, and the results of batches, in parts.
create table file_part (
  endpoint_id text not null,
  file_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, file_id, at)
);

-- What a copy to another database notes in its source and in its target.
create table copy_state (
  role text not null primary key,
  mark text not null,
  schema_version text,
  source text,
  target text,
  table_name text,
  last_key text
);
`;

/** Each migrates from the version before to its own, counted from 1. Never change a released one. */
export const MIGRATIONS: string[] = [firstSchema];

/**
 * Migrates the database to the latest version: all migrations or, if one fails, none.
 * @returns undefined if the database was new or needed no migration
 * @throws SchemaTooNewError, SchemaUnknownError
 */
export function migrate(
  database: DatabaseSync,
  migrations: readonly string[] = MIGRATIONS,
): SchemaMigration | undefined {
  const beganAt = performance.now();
  // Lock first: if two processes open a new file at once, the second finds it migrated.
  database.exec('begin immediate');
  try {
    const found = readVersion(database);
    if (found > migrations.length) throw new SchemaTooNewError(found, migrations.length);
    if (found === 0 && hasTables(database)) throw new SchemaUnknownError();
    for (const migration of migrations.slice(found)) database.exec(migration);
    // Without a change nothing is written, so the platform can start on a full disk.
    if (found < migrations.length) database.exec(`pragma user_version = ${migrations.length}`);
    database.exec('commit');
    if (found === 0 || found === migrations.length) return undefined;
    return { from: found, to: migrations.length, durationMs: performance.now() - beganAt };
  } catch (error) {
    if (database.isTransaction) database.exec('rollback');
    throw error;
  }
}

function readVersion(database: DatabaseSync): number {
  return Number(database.prepare('pragma user_version').get()?.['user_version']);
}

function hasTables(database: DatabaseSync): boolean {
  return database.prepare('select 1 from sqlite_schema limit 1').get() !== undefined;
}
