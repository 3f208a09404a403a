// The store on a Postgres database, which one platform at a time uses. Operations run one after another, in batches
// of one transaction each; the next batch gathers meanwhile. Reads and batches take turns.
import { setImmediate as nextIteration } from 'node:timers/promises';
import { leaveCopy } from '../copy/copy-state.ts';
import type { CachedJobsOptions } from '../live/cached-jobs.ts';
import { LiveJobs } from '../live/live-jobs.ts';
import { type MemoryState, type SqlDriver, SqlStore } from '../sql/sql-store.ts';
import { type Step, type Store, StoreUnavailableError, type WriteOptions } from '../store.ts';
import { Batch, type Outcome, type PendingWrite } from './batch.ts';
import type { PostgresTarget } from './connection-url.ts';
import { UnfitDatabaseError } from './database.ts';
import { DatabaseLink, LINK_DEFAULTS, type LinkSettings } from './database-link.ts';
import { describeUnavailable } from './postgres-errors.ts';
import { PostgresTables } from './postgres-tables.ts';
import { runSteps, type Session } from './session.ts';

export interface PostgresOptions extends Partial<LinkSettings> {
  target: PostgresTarget;
  /** Bounds of the jobs in memory. Default: those of CachedJobsOptions. */
  live?: CachedJobsOptions;
}

/** Weight of the operations of one transaction. */
const MAX_WEIGHT = 512;

/**
 * Opens the store and migrates its schema. Throws SchemaTooNewError if a newer version of the program wrote the
 * database, UnfinishedCopyError, UnfitDatabaseError if it cannot serve as a store, and the error of pg or the system.
 */
export async function openPostgresStore(options: PostgresOptions): Promise<Store> {
  return (await openPostgres(options)).store;
}

/** Like openPostgresStore; also returns the driver. */
export async function openPostgres(
  options: PostgresOptions,
): Promise<{ store: Store; driver: PostgresDriver }> {
  const tables = new PostgresTables();
  const live = new LiveJobs(tables, options.live);
  const driver = await PostgresDriver.open(options, live, (session) => tables.useTypes(session));
  try {
    if (!options.takeOver) await driver.read(refuseShards);
    await driver.write(leaveCopy);
  } catch (error) {
    await driver.close();
    throw error;
  }
  return { store: new SqlStore({ driver, live, tables }), driver };
}

/** The jobs of most endpoints are in the schemas of other shards. @throws UnfitDatabaseError */
function* refuseShards(): Step<void> {
  const [row] = yield { sql: 'select count(*) as shards from shard', params: [] };
  const shards = Number(row?.['shards']);
  if (shards <= 1) return;
  throw new UnfitDatabaseError(
    `the database has ${shards} shards, which nodes share; start this platform as a node, with a node URL`,
  );
}

export class PostgresDriver implements SqlDriver {
  readonly #link: DatabaseLink;
  readonly #memory: MemoryState;
  readonly #onFailure: (error: unknown) => void;
  readonly #lock = new SharedLock();
  #queue: PendingWrite[] = [];
  /** Operations of refused batches, which run again in smaller ones. */
  readonly #again: PendingWrite[][] = [];
  /** Rejects the reads that have not ended. */
  readonly #reading = new Set<(error: unknown) => void>();
  #running: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  #commits = 0;
  #statements = 0;

  private constructor(link: DatabaseLink, memory: MemoryState, { onFailure }: LinkSettings) {
    this.#link = link;
    this.#memory = memory;
    this.#onFailure = onFailure;
  }

  /**
   * `memory` changes with the database. `onSession` is called with each new session before operations use it.
   * @throws as openPostgresStore
   */
  static async open(
    options: PostgresOptions,
    memory: MemoryState,
    onSession = (_session: Session): Promise<void> => Promise.resolve(),
  ): Promise<PostgresDriver> {
    const settings = { ...LINK_DEFAULTS, ...options };
    let driver: PostgresDriver | undefined;
    const link = await DatabaseLink.open({
      ...settings,
      onSession,
      onOutage: () => {
        if (driver) driver.#rejectWaiting();
      },
    });
    driver = new PostgresDriver(link, memory, settings);
    return driver;
  }

  /** Transactions committed so far, and the statements in them. */
  get commits(): { transactions: number; statements: number } {
    return { transactions: this.#commits, statements: this.#statements };
  }

  /** Why the database cannot be used now; undefined if it can. */
  get fault(): unknown {
    return this.#link.fault;
  }

  write<T>(start: () => Step<T>, { weight = 1 }: WriteOptions = {}): Promise<T> {
    const refusal = this.#isClosed ? describeClosed() : this.#link.outage;
    if (refusal) return Promise.reject(refusal);
    return new Promise((resolve, reject) => {
      const operation: PendingWrite = {
        weight,
        run: async (run) => {
          const value = await run(start());
          operation.settle = () => resolve(value);
        },
        settle: () => {},
        reject,
      };
      this.#queue.push(operation);
      this.#running ??= this.#runAll();
    });
  }

  read<T>(start: () => Step<T>): Promise<T> {
    const refusal = this.#isClosed ? describeClosed() : this.#link.outage;
    if (refusal) return Promise.reject(refusal);
    return new Promise((resolve, reject) => {
      this.#reading.add(reject);
      const run = async () => runSteps(start(), await this.#link.ready());
      const done = this.#lock.together(run).then(resolve, reject);
      void done.then(() => this.#reading.delete(reject));
    });
  }

  /** The connection is lost, and a commit whose outcome is unknown may keep the lock for long. */
  #rejectWaiting(): void {
    const { outage } = this.#link;
    for (const { reject } of this.#queue.splice(0)) reject(outage);
    for (const reject of this.#reading) reject(outage);
  }

  /** Postgres' own autovacuum does this. */
  async reclaim(): Promise<boolean> {
    return false;
  }

  /** Reads a row. @throws StoreUnavailableError */
  async probe(): Promise<void> {
    await this.read(function* () {
      yield { sql: 'select number from last_commit', params: [] };
    });
  }

  /**
   * Ends the connection at once, for a store that another process owns now. Everything rejects from then on; a commit
   * under way may still happen.
   */
  abandon(error: unknown): void {
    this.#link.abandon(error);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#link.stopRetrying();
    await this.#running;
    await this.#lock.alone(() => this.#link.close());
  }

  /** Never rejects. */
  async #runAll(): Promise<void> {
    // What is requested in this iteration of the event loop shares a transaction.
    await nextIteration();
    while (this.#again.length > 0 || this.#queue.length > 0) {
      await this.#lock.alone(() => this.#runNext());
      // The callers act on their results before the next operations run.
      await nextIteration();
    }
    this.#running = undefined;
  }

  async #runNext(): Promise<void> {
    const again = this.#again.shift();
    const operations = again ?? this.#queue.splice(0, countTogether(this.#queue));
    try {
      const session = await this.#link.ready();
      const batch = new Batch({
        session,
        memory: this.#memory,
        number: this.#link.next,
        onCommit: () => this.#link.expectCommit(),
      });
      const outcome = await batch.run(operations);
      const late = operations.splice(outcome.operations);
      if (late.length > 0) this.#putBack(late, again !== undefined);
      const fate = await this.#decide(outcome, session, batch);
      this.#settle(fate, operations);
    } catch (error) {
      this.#memory.forget();
      for (const { reject } of operations) reject(describeUnavailable(error));
    }
  }

  #putBack(operations: PendingWrite[], isAgain: boolean): void {
    if (isAgain) this.#again.unshift(operations);
    else this.#queue = [...operations, ...this.#queue];
  }

  /** Replaces an unknown outcome by what the database says later. @throws StoreUnavailableError */
  async #decide(outcome: Outcome, session: Session, batch: Batch): Promise<Outcome> {
    if (outcome.kind === 'unknown') {
      const fate = await this.#link.findFate(session);
      if (fate === 'undone') return { kind: 'failed', error: outcome.error };
    } else if (outcome.kind === 'fenced') this.#link.lose(outcome.error);
    else
      this.#link.settleCommit(
        outcome.kind === 'committed' && batch.written > 0 ? 'committed' : 'undone',
      );
    if (outcome.kind !== 'committed' && outcome.kind !== 'unknown') return outcome;
    if (batch.written > 0) this.#commits++;
    this.#statements += batch.written;
    return { kind: 'committed' };
  }

  #settle(outcome: Outcome, operations: PendingWrite[]): void {
    if (outcome.kind === 'committed') this.#memory.settle();
    else this.#memory.forget();
    switch (outcome.kind) {
      case 'committed':
        for (const { settle } of operations) settle();
        return;
      case 'refused':
        if (operations.length === 1) for (const { reject } of operations) reject(outcome.error);
        else this.#again.unshift(...halve(operations));
        return;
      case 'failed':
        this.#onFailure(outcome.error);
        break;
    }
    const unavailable = describeUnavailable(outcome.error);
    for (const { reject } of operations) reject(unavailable);
  }
}

/** How many of the operations one transaction has. */
function countTogether(operations: readonly PendingWrite[]): number {
  let weight = 0;
  let count = 0;
  for (const operation of operations) {
    if (weight >= MAX_WEIGHT) break;
    weight += operation.weight;
    count++;
  }
  return count;
}

/** Finds the operation at fault in few transactions. */
function halve(operations: PendingWrite[]): PendingWrite[][] {
  const half = Math.ceil(operations.length / 2);
  return [operations.slice(0, half), operations.slice(half)].filter(({ length }) => length > 0);
}

function describeClosed(): StoreUnavailableError {
  return new StoreUnavailableError('The store is closed');
}

interface LockRequest {
  isAlone: boolean;
  go: () => void;
}

/**
 * Lets reads and commits take turns: reads run together, a commit runs alone. Each one waits only for those that came
 * before it, so neither kind starves.
 */
export class SharedLock {
  #reads = 0;
  #isAlone = false;
  readonly #waiting: LockRequest[] = [];

  /** Runs it together with other reads. */
  async together<T>(act: () => Promise<T>): Promise<T> {
    await this.#enter(false);
    try {
      return await act();
    } finally {
      this.#reads--;
      this.#admit();
    }
  }

  /** Runs it while nothing else runs. */
  async alone<T>(act: () => Promise<T>): Promise<T> {
    await this.#enter(true);
    try {
      return await act();
    } finally {
      this.#isAlone = false;
      this.#admit();
    }
  }

  #enter(isAlone: boolean): Promise<void> {
    return new Promise((go) => {
      this.#waiting.push({ isAlone, go });
      this.#admit();
    });
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next; next = this.#waiting[0]) {
      if (this.#isAlone || (next.isAlone && this.#reads > 0)) return;
      this.#waiting.shift();
      if (next.isAlone) this.#isAlone = true;
      else this.#reads++;
      next.go();
    }
  }
}
