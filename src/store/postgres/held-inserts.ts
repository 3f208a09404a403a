// Holds back inserts of single rows, so that many rows become one statement. The tables refer to each other by no
// constraint, so the inserts may come in any order; a statement of another kind has to come after them.
import type { Query, SqlValue } from '../store.ts';

const HELD =
  /^insert into (?:job_chunk|job_input|job_log|job_output) \([\w, ]+\)\s+values (\([?, ]+\))$/;
/** Rows of a statement: a power of two, so that few different statements are prepared. */
const MAX_ROWS = 32;
/** A larger row is a statement of its own. */
const MAX_ROW_BYTES = 65_536;
/** Of all held rows. */
const MAX_BYTES = 1_048_576;

export class HeldInserts {
  readonly #rows = new Map<string, Query['params'][]>();
  #bytes = 0;

  /** Holds the statement back. Returns false if it has to be sent. */
  hold(query: Query): boolean {
    const bytes = query.params.reduce<number>((sum, value) => sum + measure(value), 0);
    if (bytes > MAX_ROW_BYTES || this.#bytes + bytes > MAX_BYTES) return false;
    if (findValues(query.sql) === undefined) return false;
    const rows = this.#rows.get(query.sql);
    if (rows) rows.push(query.params);
    else this.#rows.set(query.sql, [query.params]);
    this.#bytes += bytes;
    return true;
  }

  /** The held rows, as few statements. */
  take(): Query[] {
    if (this.#rows.size === 0) return [];
    const queries = [...this.#rows].flatMap(([sql, rows]) => joinRows(sql, rows));
    this.#rows.clear();
    this.#bytes = 0;
    return queries;
  }
}

function joinRows(sql: string, rows: readonly Query['params'][]): Query[] {
  const queries: Query[] = [];
  for (let at = 0, size = MAX_ROWS; at < rows.length; at += size) {
    while (size > rows.length - at) size /= 2;
    const params = rows.slice(at, at + size).flat();
    queries.push({ sql: `${sql}${`, ${findValues(sql)}`.repeat(size - 1)}`, params });
  }
  return queries;
}

function measure(value: SqlValue): number {
  return typeof value === 'object' && value !== null ? value.length : 0;
}

/** By statement: the placeholders of its row, or undefined if it is not held. A store has a fixed set of statements. */
const known = new Map<string, string | undefined>();

function findValues(sql: string): string | undefined {
  if (!sql.startsWith('insert into job_')) return undefined;
  if (!known.has(sql)) known.set(sql, HELD.exec(sql)?.[1]);
  return known.get(sql);
}
