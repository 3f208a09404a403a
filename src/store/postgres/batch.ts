// Runs operations as one transaction. It sends a statement without waiting for its answer if no operation reads its rows,
// so a commit takes about one round trip, however many rows it writes.

import type { MemoryState } from '../sql/sql-store.ts';
import type { Query, Row, SqlValue, Step } from '../store.ts';
import { endsConnection, isRefusal } from './postgres-errors.ts';
import type { Session } from './session.ts';

export interface PendingWrite {
  /** How many ordinary operations take as long. */
  readonly weight: number;
  /** Runs the steps with `run`, and keeps the result for `settle`. Throws what they throw. */
  run(run: <T>(steps: Step<T>) => Promise<T>): Promise<void>;
  /** Resolves or rejects the caller's promise. */
  settle: () => void;
  reject(error: unknown): void;
}

/**
 * - `committed`: the transaction is on disk, or there was nothing to write.
 * - `refused`: nothing was written; one of the operations is at fault.
 * - `failed`: nothing was written; the database is at fault.
 * - `fenced`: nothing was written; the database does not have what this process has committed.
 * - `unknown`: the answer to the commit was lost.
 */
export type Outcome =
  | { kind: 'committed' }
  | { kind: 'refused' | 'failed' | 'fenced' | 'unknown'; error: unknown };

export interface BatchOptions {
  session: Session;
  memory: MemoryState;
  /** Number of the commit. */
  number: number;
  /** Called before the commit is sent. */
  onCommit: () => void;
}

/** Ends a batch whose transaction has failed. */
class Abandoned extends Error {}

const NO_ROWS: readonly Row[] = [];
/** A batch with so many payload bytes takes no further operation. */
const MAX_BYTES = 16 * 1_048_576;

/** Fails, by a division by zero, unless the database has all commits of this process and no other. */
const FENCE =
  'update last_commit set number = number + 1 / (case when number = ? then 1 else 0 end)';

export class Batch {
  readonly #session: Session;
  readonly #memory: MemoryState;
  readonly #options: BatchOptions;
  #hasBegun = false;
  readonly #held = new HeldInserts();
  /** Statements sent that write. */
  #written = 0;
  #bytes = 0;
  /** The first error of a statement that was sent without waiting, or of a transaction that cannot go on. */
  #failure: { error: unknown } | undefined;
  #isFenced = false;

  constructor(options: BatchOptions) {
    this.#options = options;
    this.#session = options.session;
    this.#memory = options.memory;
  }

  /** Number of statements that the commit wrote. */
  get written(): number {
    return this.#written;
  }

  /** Runs the operations, or the first ones if they write much. If they are not committed, the caller has the memory forget them. */
  async run(operations: PendingWrite[]): Promise<Outcome & { operations: number }> {
    let ran = 0;
    try {
      for (const operation of operations) {
        if (this.#bytes >= MAX_BYTES) break;
        ran++;
        await operation.run((steps) => this.#runSteps(steps));
        // The operation may have got the error, but nothing of the batch can be committed.
        if (this.#failure) throw new Abandoned();
      }
      await this.#runSteps(this.#memory.write());
      this.#sendHeld();
      if (!this.#hasBegun) return { kind: 'committed', operations: ran };
      return { ...(await this.#commit()), operations: ran };
    } catch (error) {
      const outcome = this.#explain(error);
      await this.#rollBack();
      return { ...outcome, operations: ran };
    }
  }

  async #runSteps<T>(steps: Step<T>): Promise<T> {
    let step = steps.next();
    while (!step.done) {
      if (this.#failure) throw new Abandoned();
      const { isRead, hasRows } = this.#session.find(step.value.sql);
      let rows = NO_ROWS;
      try {
        if (isRead) rows = await this.#query(step.value);
        else if (hasRows) rows = await this.#write(step.value);
        else this.#writeLater(step.value);
      } catch (error) {
        if (this.#failure) throw error;
        step = steps.throw(error);
        continue;
      }
      step = steps.next(rows);
    }
    return step.value;
  }

  async #query(query: Query): Promise<readonly Row[]> {
    this.#sendHeld();
    if (this.#hasBegun) return this.#send(query);
    try {
      return await this.#session.query(query);
    } catch (error) {
      if (!isRefusal(error)) this.#failure ??= { error };
      throw error;
    }
  }

  #write(query: Query): Promise<readonly Row[]> {
    this.#note(query);
    this.#sendHeld();
    return this.#sendWrite(query);
  }

  /** Nothing waits for its answer. */
  #writeLater(query: Query): void {
    if (!this.#held.hold(query)) void this.#write(query).catch(() => {});
    else this.#note(query);
  }

  #sendHeld(): void {
    for (const query of this.#held.take()) void this.#sendWrite(query).catch(() => {});
  }

  #sendWrite(query: Query): Promise<readonly Row[]> {
    this.#begin();
    this.#written++;
    return this.#send(query);
  }

  #note({ params }: Query): void {
    for (const param of params) {
      if (typeof param === 'object' && param !== null) this.#bytes += param.byteLength;
    }
  }

  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    void this.#noteFailure(this.#session.execute('begin')).catch(() => {});
    const fenced = this.#session
      .run(this.#session.find(FENCE), [this.#options.number - 1])
      .catch((error: unknown) => {
        // Before anybody learns that the transaction has failed.
        this.#isFenced = isRefusal(error);
        throw error;
      });
    void this.#noteFailure(fenced).catch(() => {});
  }

  /** The transaction fails with the statement. */
  async #send(query: Query): Promise<readonly Row[]> {
    const result = await this.#noteFailure(
      this.#session.run(this.#session.find(query.sql), query.params),
    );
    return result.rows;
  }

  async #noteFailure<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      this.#failure ??= { error };
      throw error;
    }
  }

  async #commit(): Promise<Outcome> {
    if (this.#failure) throw new Abandoned();
    this.#options.onCommit();
    try {
      const { command } = await this.#session.execute('commit');
      if (command === 'COMMIT') return { kind: 'committed' };
    } catch (error) {
      if (endsConnection(error)) return { kind: 'unknown', error };
      this.#failure ??= { error };
    }
    // The commit of a failed transaction succeeds, as a rollback.
    this.#failure ??= { error: new Error('the database has rolled the commit back') };
    return this.#explain(undefined);
  }

  #explain(thrown: unknown): Outcome {
    // Steps that throw an error of their own refuse the changes of their operation.
    if (!this.#failure) return { kind: 'refused', error: thrown };
    const { error } = this.#failure;
    if (this.#isFenced) return { kind: 'fenced', error };
    return { kind: isRefusal(error) ? 'refused' : 'failed', error };
  }

  async #rollBack(): Promise<void> {
    // If the connection has ended, so has the transaction.
    if (this.#hasBegun) await this.#session.execute('rollback').catch(() => {});
  }
}

const HELD =
  /^insert into (?:job_chunk|job_input|job_log|job_output) \([\w, ]+\)\s+values (\([?, ]+\))$/;
/** Rows of a statement: a power of two, so that few different statements are prepared. */
const MAX_ROWS = 32;
/** A larger row is a statement of its own. */
const MAX_ROW_BYTES = 65_536;
/** Of all held rows. */
const MAX_HELD_BYTES = 1_048_576;

/**
 * Holds back inserts of single rows, so that many rows become one statement. The tables refer to each other by no
 * constraint, so the inserts may come in any order; a statement of another kind has to come after them.
 */
export class HeldInserts {
  readonly #rows = new Map<string, Query['params'][]>();
  #bytes = 0;

  /** Holds the statement back. Returns false if it must be sent. */
  hold(query: Query): boolean {
    const bytes = query.params.reduce<number>((sum, value) => sum + measure(value), 0);
    if (bytes > MAX_ROW_BYTES || this.#bytes + bytes > MAX_HELD_BYTES) return false;
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
