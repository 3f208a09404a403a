// What a start changes of the schema of an existing database, and the errors of a schema that it cannot change.
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

/** A newer version of the program has written the database. */
export class SchemaTooNewError extends Error {
  override readonly name = 'SchemaTooNewError';

  constructor(found: number, known: number) {
    super(
      `The database has schema version ${found}; this version of millrace knows versions up to ` +
        `${known}. Use the version of millrace that wrote it, or a newer one.`,
    );
  }
}

/** The database has tables, but of no schema version that this program can migrate. */
export class SchemaUnknownError extends Error {
  override readonly name = 'SchemaUnknownError';

  constructor() {
    super('the database has tables of another program, and none of millrace; use an empty one');
  }
}
