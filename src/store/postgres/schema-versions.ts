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
 * Each migrates from the previous version to its own, counted from 1. Never change a released one.
 */
export const MIGRATIONS: readonly string[] = [firstSchema, copyState];
