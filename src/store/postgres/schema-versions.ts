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
  leaving boolean not null default false,
  control_number bigint not null default 0
) with (fillfactor = 50);

create table shard (
  id bigint not null primary key,
  owner text collate "C",
  offered_to text collate "C",
  epoch bigint not null default 0
) with (fillfactor = 50);
`;

/**
 * Each migrates from the previous version to its own, counted from 1. Never change a released one.
 */
export const MIGRATIONS: readonly string[] = [firstSchema, copyState, nodes];
