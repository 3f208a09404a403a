// What a start has changed of the schema of an existing database.
import type { Log } from '../base/log.ts';

export interface SchemaMigration {
  /** Versions of the schema. */
  from: number;
  to: number;
  durationMs: number;
}

export type MigrationListener = (migration: SchemaMigration) => void;

export function logMigration(log: Log, { durationMs, from, to }: SchemaMigration): void {
  log.info({ from, to, durationMs: Math.round(durationMs) }, 'database migrated');
}
