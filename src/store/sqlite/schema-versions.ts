// The schema as a list of migrations. migrations.ts applies them.
import { firstSchema } from './first-schema.ts';

const tracedJobs = `
alter table job add column traceparent text;
alter table job add column tracestate text;
`;

// Every failed attempt rewrites the delivery's row, so the record is in a table of its own.
// Deliveries are always looked up by receiver.
const webhooks = `
alter table job add column webhook text;

create table delivery (
  endpoint_id text not null,
  id text not null,
  job_id text not null,
  url text not null,
  receiver text not null,
  created_at bigint not null,
  bytes bigint not null,
  tries integer not null,
  next_at bigint not null,
  primary key (endpoint_id, id)
);
create index delivery_due on delivery (receiver, next_at);

create table delivery_record (
  endpoint_id text not null,
  delivery_id text not null,
  bytes blob not null,
  primary key (endpoint_id, delivery_id)
) without rowid;
`;

const runpodJobs = `
alter table job add column s3_config text;
alter table job add column api text;
`;

const payloadParts = ['job_input', 'job_output']
  .map(
    (table) => `
create table parts (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, at)
) without rowid;
insert into parts select endpoint_id, job_id, 0, bytes from ${table};
drop table ${table};
alter table parts rename to ${table};
`,
  )
  .join('');

const platform = `
alter table endpoint add column user_id text not null default 'owner';
alter table endpoint add column deployment text;
alter table endpoint add column deleted integer not null default 0;

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
`;

// Receivers are looked up by user, and records are stored in parts of bounded size.
const fairWebhooks = `
alter table delivery add column user_id text not null default 'owner';
update delivery set user_id = coalesce(
  (select user_id from endpoint where endpoint.id = delivery.endpoint_id), 'owner');
drop index delivery_due;
create index delivery_due on delivery (user_id, receiver, next_at);

-- A part has its bytes, or names the row of job_output that has them.
create table parts (
  endpoint_id text not null,
  delivery_id text not null,
  at bigint not null,
  bytes blob,
  source_job text,
  source_at bigint,
  primary key (endpoint_id, delivery_id, at)
) without rowid;
insert into parts select endpoint_id, delivery_id, 0, bytes, null, null from delivery_record;
drop table delivery_record;
alter table parts rename to delivery_record;
create index delivery_record_source on delivery_record (endpoint_id, source_job)
  where source_job is not null;
`;

/**
 * A lookup in a table without rowid compares whole rows: finding a row of 1 MB read 20 MB of its
 * neighbours. With a rowid the key has an index of its own, and the bytes of other rows stay
 * untouched.
 */
const blobsOutOfKeys = `
create table new_input (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, at)
);
insert into new_input select endpoint_id, job_id, at, bytes from job_input;
drop table job_input;
alter table new_input rename to job_input;

create table new_output (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, at)
);
insert into new_output select endpoint_id, job_id, at, bytes from job_output;
drop table job_output;
alter table new_output rename to job_output;

create table new_chunk (
  endpoint_id text not null,
  job_id text not null,
  attempt integer not null,
  first bigint not null,
  count bigint not null,
  sizes text not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, attempt, first)
);
insert into new_chunk
  select endpoint_id, job_id, attempt, first, count, sizes, bytes from job_chunk;
drop table job_chunk;
alter table new_chunk rename to job_chunk;

create table new_log (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, at)
);
insert into new_log select endpoint_id, job_id, at, bytes from job_log;
drop table job_log;
alter table new_log rename to job_log;

create table new_record (
  endpoint_id text not null,
  delivery_id text not null,
  at bigint not null,
  bytes blob,
  source_job text,
  source_at bigint,
  primary key (endpoint_id, delivery_id, at)
);
insert into new_record
  select endpoint_id, delivery_id, at, bytes, source_job, source_at from delivery_record;
drop table delivery_record;
alter table new_record rename to delivery_record;
create index delivery_record_source on delivery_record (endpoint_id, source_job)
  where source_job is not null;
`;

// A delivery ages only while the platform runs. Existing deliveries begin to age now.
const agesOfDeliveries = `
alter table delivery add column platform_ran_ms bigint not null default 0;
`;

// The pod that a worker's key was created for. Until now it was parsed from the key's name.
const podsOfKeys = `
alter table api_key add column pod_id text;
update api_key set pod_id = substr(name, 5)
  where substr(name, 1, 8) = 'pod pod_' and instr(substr(name, 5), ' ') = 0
    and substr(scopes, 1, 9) = '["worker:' and instr(scopes, ',') = 0;
`;

// The pod that a worker runs in. Until now that was read from the worker's id. Only a pod with a key of its
// own has workers in the queue.
const podsOfWorkers = `
alter table worker add column pod_id text;
update worker set pod_id = substr(id, 1, 40)
  where substr(id, 1, 40) in (select pod_id from api_key where pod_id is not null)
    and (length(id) = 40
      or (substr(id, 41, 1) = '-' and length(id) > 41 and substr(id, 42) not glob '*[^0-9]*'));
`;

// Whoever creates a key must not read those of all other users.
const keysByUser = `
create index api_key_of_user on api_key (user_id, created_at, id);
`;

// Small payloads of new jobs; those of older jobs stay in their rows.
const inlinePayloads = `
alter table job add column input blob;
alter table job add column output blob;
`;

// Jobs with a lease are in memory, so these indexes do not change with every lease, renewal and report.
const leasesOutOfIndexes = `
drop index job_due;
create index job_due on job (due_at) where lease_token is null;
drop index job_by_status;
create index job_by_status on job (endpoint_id, status, position)
  where status = 'IN_QUEUE' or status = 'FAILED' or status = 'TIMED_OUT' or status = 'CANCELLED';
`;

/**
 * Payload rows that no job has: those of uploads under way, and those that are yet to be deleted.
 * `origin` tells the payloads of one job apart; -1 means all rows of the job.
 */
const unusedPayloads = `
create table unused_payload (
  endpoint_id text not null,
  job_id text not null,
  kind text not null,
  origin bigint not null,
  primary key (endpoint_id, job_id, kind, origin)
) without rowid;
`;

/** A cause of scaling decisions has another name. */
const causeNames = `
update resource set body = replace(body, '"cause":"no_room"', '"cause":"no_capacity"') where kind = 'decision';
`;

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

/** Many nodes on Postgres share the endpoints by shard. SQLite has one node, and keeps the number for copies. */
const shardsOfEndpoints = `
alter table endpoint add column shard bigint not null default 0;
`;

/**
 * Groups take turns. The older jobs keep their order, before all later ones of their priority. A group's jobs are
 * found by group_key: the last turn of a group, and the first ones of a group that was at its limit.
 */
const groups = `
alter table job add column group_key text;
alter table job add column turn bigint not null default 0;
drop index job_queued;
create index job_queued on job (endpoint_id, delayed, priority desc, turn, position)
  where status = 'IN_QUEUE';
create index job_grouped on job (endpoint_id, group_key, delayed, priority desc, turn, position)
  where status = 'IN_QUEUE' and group_key is not null;
alter table endpoint add column turns text;
`;

/** Archives of uploaded handlers, in parts. */
const versions = `
create table version_part (
  endpoint_id text not null,
  version bigint not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, version, at)
);
`;

/** Size of the part of a file that a row names: `bytes` is empty then. Null: the row has the bytes. */
const payloadFiles = ['job_input', 'job_output']
  .map((table) => `alter table ${table} add column file_bytes bigint;`)
  .join('\n');

/**
 * Each migrates from the previous version to its own, counted from 1. Never change a released one.
 */
export const MIGRATIONS: readonly string[] = [
  firstSchema,
  tracedJobs,
  webhooks,
  runpodJobs,
  payloadParts,
  platform,
  fairWebhooks,
  blobsOutOfKeys,
  agesOfDeliveries,
  podsOfKeys,
  podsOfWorkers,
  keysByUser,
  inlinePayloads,
  leasesOutOfIndexes,
  unusedPayloads,
  causeNames,
  copyState,
  shardsOfEndpoints,
  groups,
  versions,
  payloadFiles,
];
