// The schema as a list of migrations, and how a store applies them.
import {
  type SchemaMigration,
  SchemaTooNewError,
  SchemaUnknownError,
} from '../schema-migration.ts';
import type { Session } from './session.ts';

// All integers are bigint: the statements compare them with parameters of any size. Texts sort by bytes, as in SQLite.
const text = 'text collate "C"';

/**
 * A live job's row changes several times. Free space in its page lets most changes leave the indexes alone. Payloads
 * are stored as they are: to compress them would cost more time than it saves.
 */
const firstSchema = `
create table endpoint (
  id ${text} not null primary key,
  settings ${text} not null,
  created_at bigint not null,
  in_queue bigint not null default 0,
  in_progress bigint not null default 0,
  completed bigint not null default 0,
  failed bigint not null default 0,
  cancelled bigint not null default 0,
  timed_out bigint not null default 0,
  retried bigint not null default 0,
  user_id ${text} not null default 'owner',
  deployment ${text},
  deleted bigint not null default 0,
  shard bigint not null default 0
) with (fillfactor = 20);

create table job (
  endpoint_id ${text} not null,
  id ${text} not null,
  status ${text} not null,
  lane bigint not null,
  priority bigint not null,
  place bigint not null,
  position bigint not null,
  group_key ${text} not null,
  queued_at bigint not null,
  due_at bigint not null,
  worker ${text},
  leased bigint not null,
  idempotency_key ${text},
  body ${text} not null,
  details ${text},
  input bytea,
  output bytea,
  primary key (endpoint_id, id)
) with (fillfactor = 50);

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

-- A job's row as a value, so that a parameter can have many rows.
create type job_image as (
  endpoint_id text,
  id text,
  status text,
  lane bigint,
  priority bigint,
  place bigint,
  position bigint,
  group_key text,
  queued_at bigint,
  due_at bigint,
  worker text,
  leased bigint,
  idempotency_key text,
  body text,
  details text,
  input bytea,
  output bytea
);

-- On SQLite, large payloads are in files. Here file_bytes is always null, and copies find the same tables.
create table job_input (
  endpoint_id ${text} not null,
  job_id ${text} not null,
  at bigint not null,
  bytes bytea not null,
  file_bytes bigint,
  primary key (endpoint_id, job_id, at)
);
alter table job_input alter column bytes set storage external;

create table job_output (
  endpoint_id ${text} not null,
  job_id ${text} not null,
  at bigint not null,
  bytes bytea not null,
  file_bytes bigint,
  primary key (endpoint_id, job_id, at)
);
alter table job_output alter column bytes set storage external;

create table job_chunk (
  endpoint_id ${text} not null,
  job_id ${text} not null,
  attempt bigint not null,
  first bigint not null,
  count bigint not null,
  sizes ${text} not null,
  bytes bytea not null,
  primary key (endpoint_id, job_id, attempt, first)
);
alter table job_chunk alter column bytes set storage external;

create table job_log (
  endpoint_id ${text} not null,
  job_id ${text} not null,
  at bigint not null,
  bytes bytea not null,
  primary key (endpoint_id, job_id, at)
);

-- Payload rows that no job has: those of uploads under way, and those that are yet to be deleted. origin tells the
-- payloads of one job apart; -1 means all rows of the job.
create table unused_payload (
  endpoint_id ${text} not null,
  job_id ${text} not null,
  kind ${text} not null,
  origin bigint not null,
  primary key (endpoint_id, job_id, kind, origin)
);

create table worker (
  endpoint_id ${text} not null,
  id ${text} not null,
  incarnation bigint not null,
  slots bigint not null,
  version ${text} not null,
  devices ${text} not null,
  hello_at bigint not null,
  pod_id ${text},
  retry ${text},
  primary key (endpoint_id, id)
);

create table api_key (
  id ${text} not null primary key,
  hash ${text} not null unique,
  name ${text} not null,
  user_id ${text} not null,
  scopes ${text} not null,
  created_at bigint not null,
  expires_at bigint,
  pod_id ${text}
);
create index api_key_of_user on api_key (user_id, created_at, id);

create table delivery (
  endpoint_id ${text} not null,
  id ${text} not null,
  job_id ${text} not null,
  user_id ${text} not null default 'owner',
  url ${text} not null,
  receiver ${text} not null,
  created_at bigint not null,
  platform_ran_ms bigint not null default 0,
  bytes bigint not null,
  tries bigint not null,
  next_at bigint not null,
  primary key (endpoint_id, id)
);
create index delivery_due on delivery (user_id, receiver, next_at);

-- A part has its bytes, or names the row of job_output that has them.
create table delivery_record (
  endpoint_id ${text} not null,
  delivery_id ${text} not null,
  at bigint not null,
  bytes bytea,
  source_job ${text},
  source_at bigint,
  primary key (endpoint_id, delivery_id, at)
);
create index delivery_record_source on delivery_record (endpoint_id, source_job)
  where source_job is not null;

create table resource (
  kind ${text} not null,
  id ${text} not null,
  user_id ${text} not null,
  parent ${text} not null,
  position bigint not null,
  body ${text} not null,
  primary key (kind, id)
);
create index resource_listed on resource (kind, position);
create index resource_of_user on resource (kind, user_id, position);
create index resource_of_parent on resource (kind, parent, position);

-- Number of the last commit, so that a commit whose answer was lost is known afterwards.
create table last_commit (
  number bigint not null
) with (fillfactor = 10);
insert into last_commit (number) values (0);

-- Archives of uploaded handlers, in parts.
create table version_part (
  endpoint_id ${text} not null,
  version bigint not null,
  at bigint not null,
  bytes bytea not null,
  primary key (endpoint_id, version, at)
);

-- Uploaded files, and the results of batches, in parts.
create table file_part (
  endpoint_id ${text} not null,
  file_id ${text} not null,
  at bigint not null,
  bytes bytea not null,
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

-- Nodes that serve the database together, and which of them owns which shard. Only the tables of shard 0 have rows.
-- Times are Unix ms by the clock of the database.
create table node (
  id ${text} not null primary key,
  url ${text} not null unique,
  version bigint not null,
  renewed_at bigint not null,
  until bigint not null,
  leaving bigint not null default 0,
  control_number bigint not null default 0
) with (fillfactor = 50);

-- failed_on: the last node that could not open the shard.
create table shard (
  id bigint not null primary key,
  owner ${text},
  offered_to ${text},
  epoch bigint not null default 0,
  failed_on ${text}
) with (fillfactor = 50);

create table schema_version (
  version bigint not null,
  oldest bigint not null
);
`;

export interface Migration {
  sql: string;
  /**
   * The oldest version whose programs may use the database after this step. The step's own number refuses all earlier
   * versions. The number before lets nodes of the previous version go on beside nodes of this one.
   */
  oldest: number;
}

/** Each migrates from the version before to its own, counted from 1. Never change a released one. */
export const MIGRATIONS: readonly Migration[] = [{ sql: firstSchema, oldest: 1 }];

/** Longest time of a statement that migrates: tables may be large, ms. */
export const MIGRATION_MS = 600_000;

/** The schema as a database has it. */
export interface SchemaVersion {
  /** 0: the schema is empty. */
  version: number;
  /** The oldest version whose programs may use it. */
  oldest: number;
}

/**
 * Migrates the database to the latest version: all migrations or, if one fails, none. The session has the store's lock,
 * so no other program uses the tables meanwhile.
 * @returns undefined if the database was new or needed no migration
 * @throws SchemaTooNewError, SchemaUnknownError
 */
export async function migrate(
  session: Session,
  schema: string,
  migrations: readonly Migration[] = MIGRATIONS,
): Promise<SchemaMigration | undefined> {
  const found = await readSchemaVersion(session);
  requireUsable(found, migrations.length);
  if (isLatest(found, migrations)) return undefined;
  const beganAt = performance.now();
  const create = (await hasSchema(session)) ? [] : [`create schema ${schema}`];
  const steps = ['begin', ...create, describeSteps(found, migrations), 'commit'];
  try {
    await session.execute(steps.join(';\n'));
  } catch (error) {
    // The connection may have ended.
    await session.execute('rollback').catch(() => {});
    throw error;
  }
  if (found.version === 0) return undefined;
  return { from: found.version, to: migrations.length, durationMs: performance.now() - beganAt };
}

/** Whether no migration is left to apply. */
export function isLatest({ version }: SchemaVersion, migrations = MIGRATIONS): boolean {
  return version >= migrations.length;
}

/** `known`: version of the program. @throws SchemaTooNewError */
export function requireUsable({ oldest, version }: SchemaVersion, known = MIGRATIONS.length): void {
  if (oldest > known) throw new SchemaTooNewError(version, known);
}

/** For a program that must know all tables and columns: it copies them. @throws SchemaTooNewError */
export function requireKnown({ version }: SchemaVersion, known = MIGRATIONS.length): void {
  if (version > known) throw new SchemaTooNewError(version, known);
}

/** The statements from a version to the latest one, for a transaction. */
export function describeSteps(
  { version }: SchemaVersion,
  migrations: readonly Migration[] = MIGRATIONS,
): string {
  const steps = [
    ...migrations.slice(version).map(({ sql }) => sql),
    'delete from schema_version',
    `insert into schema_version (version, oldest) values (${migrations.length}, ${findOldest(migrations)})`,
  ];
  return steps.join(';\n');
}

/** The oldest version whose programs may use a database with all of the migrations. */
export function findOldest(migrations: readonly Migration[] = MIGRATIONS): number {
  return Math.max(...migrations.map(({ oldest }) => oldest));
}

async function hasSchema(session: Session): Promise<boolean> {
  const { rows } = await session.execute('select current_schema() as name');
  return rows[0]?.['name'] !== null;
}

/** @throws SchemaUnknownError */
export async function readSchemaVersion(session: Session): Promise<SchemaVersion> {
  const tables = await session.execute(
    `select to_regclass('schema_version') as version, to_regclass('job') as job`,
  );
  const [found = {}] = tables.rows;
  if (found['version'] === null) {
    if (found['job'] !== null) throw new SchemaUnknownError();
    return { version: 0, oldest: 0 };
  }
  const { rows } = await session.execute('select version, oldest from schema_version');
  const [row] = rows;
  if (!row) throw new SchemaUnknownError();
  return { version: Number(row['version']), oldest: Number(row['oldest']) };
}
