// The schema as a list of migrations. migrations.ts applies them.
import { firstSchema } from './first-schema.ts';

/** What a copy to another database notes in its source and in its target. */
const copyState = `
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

/**
 * Nodes that serve the database together, and which of them owns which shard. Only the tables of shard 0 have rows.
 * Times are Unix ms by the clock of the database.
 */
const nodes = `
alter table endpoint add column shard bigint not null default 0;

create table node (
  id text collate "C" not null primary key,
  url text collate "C" not null unique,
  version bigint not null,
  renewed_at bigint not null,
  until bigint not null,
  leaving bigint not null default 0,
  control_number bigint not null default 0
) with (fillfactor = 50);

create table shard (
  id bigint not null primary key,
  owner text collate "C",
  offered_to text collate "C",
  epoch bigint not null default 0
) with (fillfactor = 50);
`;

/** A job's row as a value, so that a parameter can have many rows. */
const jobImage = `
create type job_image as (
  endpoint_id text,
  id text,
  status text,
  mode text,
  priority bigint,
  position bigint,
  submitted_at bigint,
  queued_at bigint,
  available_at bigint,
  delayed bigint,
  expires_at bigint,
  ttl_ms bigint,
  execution_timeout_ms bigint,
  max_attempts bigint,
  started_at bigint,
  deadline_at bigint,
  ended_at bigint,
  execution_ms double precision,
  due_at bigint,
  attempt bigint,
  failures bigint,
  releases bigint,
  solo bigint,
  lease_token text,
  lease_worker text,
  lease_incarnation bigint,
  lease_take text,
  lease_until bigint,
  lease_started bigint,
  lease_lost text,
  last_seq bigint,
  chunk_count bigint,
  chunk_bytes bigint,
  cursor_attempt bigint,
  cursor_next bigint,
  output_kind text,
  log_bytes bigint,
  log_dropped bigint,
  error text,
  history text,
  progress text,
  worker_id text,
  idempotency_key text,
  request_hash text,
  traceparent text,
  tracestate text,
  webhook text,
  s3_config text,
  api text,
  input bytea,
  output bytea
);
`;

/** Null in a row that an earlier version wrote. */
const oldestVersion = `
alter table schema_version add column oldest bigint;
`;

/** The last node that could not open the shard. */
const failedShards = `
alter table shard add column failed_on text collate "C";
`;

/** Archives of uploaded handlers, in parts. */
const versions = `
create table version_part (
  endpoint_id text collate "C" not null,
  version bigint not null,
  at bigint not null,
  bytes bytea not null,
  primary key (endpoint_id, version, at)
);
`;

export interface Migration {
  sql: string;
  /**
   * The oldest version whose programs may use the database after this step. Its own number: no earlier one. The number
   * before: nodes of that version go on beside nodes of this one.
   */
  oldest: number;
}

/**
 * Groups take turns. The older jobs keep their order, before all later ones of their priority. A group's jobs are
 * found by group_key: the last turn of a group, and the first ones of a group that was at its limit.
 */
const groups = `
alter table job add column group_key text collate "C";
alter table job add column turn bigint not null default 0;
drop index job_queued;
create index job_queued on job (endpoint_id, delayed, priority desc, turn, position)
  where status = 'IN_QUEUE';
create index job_grouped on job (endpoint_id, group_key, delayed, priority desc, turn, position)
  where status = 'IN_QUEUE' and group_key is not null;
alter table endpoint add column turns text collate "C";

drop type job_image;
create type job_image as (
  endpoint_id text,
  id text,
  status text,
  mode text,
  priority bigint,
  position bigint,
  submitted_at bigint,
  queued_at bigint,
  available_at bigint,
  delayed bigint,
  expires_at bigint,
  ttl_ms bigint,
  execution_timeout_ms bigint,
  max_attempts bigint,
  started_at bigint,
  deadline_at bigint,
  ended_at bigint,
  execution_ms double precision,
  due_at bigint,
  attempt bigint,
  failures bigint,
  releases bigint,
  solo bigint,
  lease_token text,
  lease_worker text,
  lease_incarnation bigint,
  lease_take text,
  lease_until bigint,
  lease_started bigint,
  lease_lost text,
  last_seq bigint,
  chunk_count bigint,
  chunk_bytes bigint,
  cursor_attempt bigint,
  cursor_next bigint,
  output_kind text,
  log_bytes bigint,
  log_dropped bigint,
  error text,
  history text,
  progress text,
  worker_id text,
  idempotency_key text,
  request_hash text,
  traceparent text,
  tracestate text,
  webhook text,
  s3_config text,
  api text,
  group_key text,
  turn bigint,
  input bytea,
  output bytea
);
`;

/** On SQLite, large payloads are in files. Here the columns are always null, and copies find the same tables. */
const payloadFiles = `
alter table job_input add column file_bytes bigint;
alter table job_output add column file_bytes bigint;
`;

/**
 * Each migrates from the previous version to its own, counted from 1. Never change a released one.
 */
export const MIGRATIONS: readonly Migration[] = [
  { sql: firstSchema, oldest: 1 },
  { sql: copyState, oldest: 2 },
  { sql: nodes, oldest: 3 },
  { sql: jobImage, oldest: 4 },
  { sql: oldestVersion, oldest: 5 },
  { sql: failedShards, oldest: 5 },
  // Programs before it would lease jobs in another order.
  { sql: groups, oldest: 7 },
  // Programs before it do not read endpoints that have a version.
  { sql: versions, oldest: 8 },
  { sql: payloadFiles, oldest: 8 },
];
