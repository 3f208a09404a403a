// What a copy of a database notes in its source and in its target, in the table copy_state. A platform does not start
// on an unfinished copy; and when one starts on the source of an unfinished copy, that copy cannot go on.
import { text, textOrNull } from '../sql/rows.ts';
import type { Step } from '../store.ts';

/** How far a copy is. */
export interface CopyProgress {
  /** The mark of the source. It is gone once a platform has used the source. */
  sourceMark: string;
  /** Version of the schema, of both databases. */
  schema: string;
  /** As `--from` and `--to` name the databases, without passwords. */
  source: string;
  target: string;
  /** Table of the last row that was copied; undefined before the first one. */
  table: string | undefined;
  /** Key of that row, as JSON. */
  lastKey: string | undefined;
}

export class UnfinishedCopyError extends Error {
  override readonly name = 'UnfinishedCopyError';

  constructor({ source, target }: CopyProgress) {
    super(
      `The database is an unfinished copy. To finish it, run \`${describeCommand({ source, target })}\`. ` +
        'To give it up, remove the database.',
    );
  }
}

/** The command that starts or continues a copy. */
export function describeCommand({ source, target }: { source: string; target: string }): string {
  return `millrace store copy --from ${quote(source)} --to ${quote(target)}`;
}

function quote(word: string): string {
  return /^[\w@%+=:,./[\]-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Runs when a platform opens the database. @throws UnfinishedCopyError */
export function* leaveCopy(): Step<void> {
  const progress = yield* readProgress();
  if (progress) throw new UnfinishedCopyError(progress);
  // Nothing is written without need: the disk may be full.
  if ((yield* readSourceMark()) !== undefined) yield* removeSourceMark();
}

export function* readSourceMark(): Step<string | undefined> {
  const [row] = yield { sql: `select mark from copy_state where role = 'source'`, params: [] };
  return row && text(row, 'mark');
}

export function* writeSourceMark(mark: string): Step<void> {
  yield { sql: `insert into copy_state (role, mark) values ('source', ?)`, params: [mark] };
}

export function* removeSourceMark(): Step<void> {
  yield { sql: `delete from copy_state where role = 'source'`, params: [] };
}

export function* readProgress(): Step<CopyProgress | undefined> {
  const [row] = yield {
    sql: `select mark, schema_version, source, target, table_name, last_key from copy_state
      where role = 'target'`,
    params: [],
  };
  return (
    row && {
      sourceMark: text(row, 'mark'),
      schema: text(row, 'schema_version'),
      source: text(row, 'source'),
      target: text(row, 'target'),
      table: textOrNull(row, 'table_name') ?? undefined,
      lastKey: textOrNull(row, 'last_key') ?? undefined,
    }
  );
}

export function* writeProgress(progress: CopyProgress): Step<void> {
  const { lastKey = null, schema, source, sourceMark, table = null, target } = progress;
  yield* removeProgress();
  yield {
    sql: `insert into copy_state (role, mark, schema_version, source, target, table_name, last_key)
      values ('target', ?, ?, ?, ?, ?, ?)`,
    params: [sourceMark, schema, source, target, table, lastKey],
  };
}

export function* moveProgress(table: string, lastKey: string): Step<void> {
  yield {
    sql: `update copy_state set table_name = ?, last_key = ? where role = 'target'`,
    params: [table, lastKey],
  };
}

export function* removeProgress(): Step<void> {
  yield { sql: `delete from copy_state where role = 'target'`, params: [] };
}
