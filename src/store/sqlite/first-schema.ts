// The schema of the first version, which every database begins with.

// Payloads are in tables of their own because every step of a job's life rewrites the job's row.
// WITHOUT ROWID saves a second tree per table, since all rows are found by their key; only job,
// which has other indexes, is faster with a row ID, which keeps their entries short.
export const firstSchema = `
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
  retried bigint not null default 0
) without rowid;

create table job (
  endpoint_id text not null,
  id text not null,
  status text not null,
  mode text not null,
  priority integer not null,
  position bigint not null,
  submitted_at bigint not null,
  queued_at bigint not null,
  available_at bigint not null,
  delayed integer not null,
  expires_at bigint not null,
  ttl_ms bigint not null,
  execution_timeout_ms bigint not null,
  max_attempts integer not null,
  started_at bigint,
  deadline_at bigint,
  ended_at bigint,
  execution_ms double precision,
  due_at bigint not null,
  attempt integer not null,
  failures integer not null,
  releases integer not null,
  solo integer not null,
  lease_token text,
  lease_worker text,
  lease_incarnation bigint,
  lease_take text,
  lease_until bigint,
  lease_started integer,
  lease_lost text,
  last_seq bigint not null,
  chunk_count bigint not null,
  chunk_bytes bigint not null,
  cursor_attempt integer not null,
  cursor_next bigint not null,
  output_kind text not null,
  log_bytes bigint not null,
  log_dropped bigint not null,
  error text,
  history text,
  progress text,
  worker_id text,
  idempotency_key text,
  request_hash text,
  primary key (endpoint_id, id)
);

-- Delayed jobs lie behind all others, so that any number of them is never in the way.
create index job_queued on job (endpoint_id, delayed, priority desc, position)
  where status = 'IN_QUEUE';
create index job_due on job (due_at);
-- With the position, lest the planner take job_listed to be spared the sorting.
create index job_leased on job (endpoint_id, lease_worker, position)
  where lease_worker is not null;
create index job_listed on job (endpoint_id, position);
-- All but COMPLETED, so that no state that people look for is searched for among what went well.
create index job_by_status on job (endpoint_id, status, position)
  where status = 'IN_QUEUE' or status = 'IN_PROGRESS' or status = 'FAILED'
    or status = 'TIMED_OUT' or status = 'CANCELLED';
create unique index job_idempotent on job (endpoint_id, idempotency_key)
  where idempotency_key is not null;

create table job_input (
  endpoint_id text not null,
  job_id text not null,
  bytes blob not null,
  primary key (endpoint_id, job_id)
) without rowid;

create table job_output (
  endpoint_id text not null,
  job_id text not null,
  bytes blob not null,
  primary key (endpoint_id, job_id)
) without rowid;

create table job_chunk (
  endpoint_id text not null,
  job_id text not null,
  attempt integer not null,
  first bigint not null,
  count bigint not null,
  sizes text not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, attempt, first)
) without rowid;

create table job_log (
  endpoint_id text not null,
  job_id text not null,
  at bigint not null,
  bytes blob not null,
  primary key (endpoint_id, job_id, at)
) without rowid;

create table worker (
  endpoint_id text not null,
  id text not null,
  incarnation bigint not null,
  slots integer not null,
  version text not null,
  devices text not null,
  hello_at bigint not null,
  primary key (endpoint_id, id)
) without rowid;

create table api_key (
  id text not null primary key,
  hash text not null unique,
  name text not null,
  user_id text not null,
  scopes text not null,
  created_at bigint not null,
  expires_at bigint
) without rowid;
`;
