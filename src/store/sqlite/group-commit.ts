// Runs all writes of one iteration of the event loop as one transaction. No caller gets a result before the commit is on
// disk, and no other transaction begins before.
import { setImmediate } from '../../base/clock.ts';
import { Durability } from '../disk/durability.ts';
import type { SpaceGate } from '../disk/space-gate.ts';
import { describeUnavailable, isOutOfSpace, isStorageFailure } from '../disk/store-failures.ts';
import type { MemoryState } from '../sql/sql-store.ts';
import {
  type Query,
  type Row,
  type Step,
  StoreUnavailableError,
  type WriteOptions,
} from '../store.ts';
import type { SqliteConnection } from './sqlite-connection.ts';

/**
 * Commits a transaction that reaches either limit, so that an iteration of the event loop stays short. The weight is that of
 * its operations.
 */
const MAX_WEIGHT = 512;
const MAX_BYTES = 16 * 1_048_576;

/** State of the open transaction. */
interface Batch {
  /** The transaction begins with the first query: a take that finds no job, for example, has none. */
  hasBegun: boolean;
  /** The failure of the disk or file that ended the transaction for all of its operations. */
  failure: Error | undefined;
  /** The database refused what an operation wanted written. */
  refusal: unknown;
  /** Payload bytes written. */
  bytes: number;
  /** Statements that wrote. */
  written: number;
}

interface GroupCommitOptions {
  connection: SqliteConnection;
  /** Called with each failure of the disk or the file, after which the next transaction may succeed. */
  onFailure: (error: unknown) => void;
  /** Called if the disk fails to store a commit: from then on everything rejects. */
  onLost: (error: unknown) => void;
  /** Called when the disk is full, before operations run again in the space of the reserve. */
  onFull: () => void;
  /** Undefined: everything is attempted, however full the disk is. */
  gate: SpaceGate | undefined;
  /** Undefined: operations change nothing but the database. */
  memory: MemoryState | undefined;
  /** Called when a commit is on disk, with its number of statements and its payload bytes. */
  onCommit: (statements: number, payloadBytes: number) => void;
}

export class GroupCommit {
  readonly #options: GroupCommitOptions;
  /** When commits are on disk. */
  readonly durability: Durability;
  readonly #queue: PendingWrite[] = [];
  #scheduled = false;
  #batch: Batch | undefined;
  #commits = 0;

  constructor(options: GroupCommitOptions) {
    const { connection, onLost } = options;
    this.#options = options;
    this.durability = new Durability({
      sync: connection.sync,
      syncEarly: connection.syncEarly,
      onFree: (isUrgent) => {
        if (isUrgent && this.#queue.length > 0) this.#commitBatch();
        // Also what the commit has put back.
        if (this.#queue.length > 0) this.#schedule();
      },
      onLost: (error, lost) => {
        for (const operation of this.#queue.splice(0)) operation.reject(lost);
        onLost(error);
      },
    });
  }

  /** Number of committed transactions. */
  get commits(): number {
    return this.#commits;
  }

  write<T>(start: () => Step<T>, options: WriteOptions = {}): Promise<T> {
    const { lost } = this.durability;
    if (lost) return Promise.reject(lost);
    const { gate } = this.#options;
    if (gate && !gate.admits(options)) return Promise.reject(describeFullDisk());
    return new Promise((resolve, reject) => {
      this.#queue.push(new CallersWrite({ start, options }, resolve, reject));
      this.#schedule();
    });
  }

  readonly #runSteps = <T>(steps: Step<T>): T =>
    this.#options.connection.runSteps(steps, this.#runQuery);
  readonly #runQuery = (query: Query): Row[] => this.#run(query);

  /** Commits all requested operations. Never rejects. */
  async flush(): Promise<void> {
    // Without the error of a disk that has failed: those operations have been rejected.
    const settled = () => this.durability.settled().catch(() => {});
    await settled();
    while (this.#queue.length > 0) {
      this.#commitBatch();
      await settled();
    }
    await this.durability.ended();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      if (this.durability.isBusy) return;
      if (this.#queue.length > 0) this.#commitBatch();
      if (this.#queue.length > 0) this.#schedule();
    });
  }

  #commitBatch(): void {
    const { connection, gate, memory, onCommit } = this.#options;
    const operations = this.#takePending();
    if (operations.length === 0) return;
    const batch: Batch = {
      hasBegun: false,
      failure: undefined,
      refusal: undefined,
      bytes: 0,
      written: 0,
    };
    this.#batch = batch;
    try {
      // An earlier rollback may have failed together with the disk.
      if (connection.inTransaction) connection.execute('rollback');
      this.#runAll(operations, batch);
      if (memory) this.#runWrites(batch, () => this.#runSteps(memory.write()));
      if (batch.hasBegun) connection.execute('commit');
    } catch (error) {
      this.#rollBack();
      memory?.forget();
      this.#batch = undefined;
      if (batch.refusal === undefined) this.#fail(operations, error);
      else this.#separate(operations, error);
      return;
    } finally {
      this.#batch = undefined;
    }
    memory?.settle();
    if (batch.hasBegun) this.#commits++;
    gate?.spend(batch.bytes);
    const settle = () => {
      for (const operation of operations) operation.settle();
      onCommit(batch.written, batch.bytes);
    };
    const { bytes, written } = batch;
    const fail = (lost: StoreUnavailableError) => {
      for (const operation of operations) operation.reject(lost);
    };
    if (written === 0) settle();
    else if (mayBeLeft(operations)) this.durability.leave({ bytes, settle, fail });
    else this.durability.putOnDisk({ bytes, settle, fail });
  }

  /**
   * While the disk is full, each operation has its own commit: one that does not fit must not fail
   * a cancellation.
   */
  #takePending(): PendingWrite[] {
    const { gate } = this.#options;
    if (!gate?.isFull) {
      return this.#queue[0]?.isAlone ? this.#queue.splice(0, 1) : this.#takeTogether(MAX_WEIGHT);
    }
    for (let next = this.#queue.shift(); next; next = this.#queue.shift()) {
      if (gate.admits(next.options)) return [next];
      next.reject(describeFullDisk());
    }
    return [];
  }

  /** Takes operations until they have the weight, or up to the first one that needs a transaction of its own. */
  #takeTogether(maxWeight: number): PendingWrite[] {
    let weight = 0;
    let end = 0;
    for (const { isAlone, options } of this.#queue) {
      if (isAlone || weight >= maxWeight) break;
      weight += weightOf(options);
      end++;
    }
    return this.#queue.splice(0, end);
  }

  /**
   * The first failure for lack of space releases the reserve; operations that may use it run again.
   */
  #fail(operations: readonly PendingWrite[], error: unknown): void {
    const { gate, onFailure } = this.#options;
    onFailure(error);
    const again = new Set<PendingWrite>();
    if (gate && !gate.isFull && isOutOfSpace(error) && this.#makeSpace(gate)) {
      for (const operation of operations) if (gate.admits(operation.options)) again.add(operation);
    }
    const unavailable = describeUnavailable(error);
    for (const operation of operations) if (!again.has(operation)) operation.reject(unavailable);
    this.#queue.unshift(...again);
  }

  /** Returns false if the disk is not merely full: the failure then applies to all operations. */
  #makeSpace(gate: SpaceGate): boolean {
    const { onFailure, onFull } = this.#options;
    try {
      gate.close();
      onFull();
      return true;
    } catch (error) {
      onFailure(error);
      return false;
    }
  }

  /** Also runs operations that the operations themselves request, up to the limits. */
  #runAll(operations: PendingWrite[], batch: Batch): void {
    const { gate } = this.#options;
    let weight = 0;
    for (let i = 0; i < operations.length; i++) {
      const operation = operations[i];
      if (!operation) return;
      this.#runWrites(batch, () => operation.run(this.#runSteps));
      // The operation may have got the error, but nothing of the batch can be committed.
      if (batch.failure) throw batch.failure;
      weight += weightOf(operation.options);
      if (gate?.isFull || operation.isAlone) continue;
      if (batch.bytes >= MAX_BYTES) this.#queue.unshift(...operations.splice(i + 1));
      else if (i === operations.length - 1) {
        operations.push(...this.#takeTogether(MAX_WEIGHT - weight));
      }
    }
  }

  /** Throws what ends the batch: a failure, or a refusal. */
  #runWrites(batch: Batch, run: () => void): void {
    try {
      run();
    } catch (error) {
      if (!batch.failure) batch.refusal = error;
      throw error;
    }
  }

  /** Finds the operation at fault: each one runs again in a transaction of its own. */
  #separate(operations: readonly PendingWrite[], error: unknown): void {
    const [first, ...others] = operations;
    if (first && others.length === 0) {
      first.reject(error);
      return;
    }
    for (const operation of operations) operation.isAlone = true;
    this.#queue.unshift(...operations);
  }

  /** After the batch has failed nothing may run: it would run outside of a transaction. */
  #run(query: Query): Row[] {
    const batch = this.#batch;
    if (!batch) throw new Error('An operation ran on after its transaction');
    if (batch.failure) throw batch.failure;
    const { connection } = this.#options;
    try {
      for (const param of query.params) {
        if (typeof param === 'object' && param !== null) batch.bytes += param.byteLength;
      }
      if (!batch.hasBegun) this.#begin(batch);
      const rows = connection.run(query);
      if (!query.sql.startsWith('select')) batch.written++;
      return rows;
    } catch (error) {
      if (isStorageFailure(error) || !connection.inTransaction) {
        batch.failure = error instanceof Error ? error : new Error(String(error));
      }
      throw error;
    }
  }

  #begin(batch: Batch): void {
    this.#options.connection.execute('begin immediate');
    batch.hasBegun = true;
  }

  #rollBack(): void {
    const { connection } = this.#options;
    try {
      if (connection.inTransaction) connection.execute('rollback');
    } catch {
      // The next batch begins with another attempt, and fails if that fails.
    }
  }
}

function weightOf({ weight = 1 }: WriteOptions): number {
  return weight;
}

function mayBeLeft(operations: readonly PendingWrite[]): boolean {
  return operations.every(({ options }) => options.onDisk === 'later');
}

function describeFullDisk(): StoreUnavailableError {
  const text = 'The disk is full, so the store accepts no new data';
  return new StoreUnavailableError(text, { code: 'SQLITE_FULL' });
}

type RunSteps = <T>(steps: Step<T>) => T;

/** One operation that waits for its commit, and the promise of its caller. */
interface PendingWrite {
  readonly options: WriteOptions;
  /** It gets a transaction of its own. */
  isAlone: boolean;
  /** Runs the steps, perhaps for a second time. Throws what they throw. */
  run(runSteps: RunSteps): void;
  /** Gives the caller the result of the last run. */
  settle(): void;
  /** Whatever the last run did, the caller gets this error. */
  reject(error: unknown): void;
}

interface WriteCall<T> {
  start: () => Step<T>;
  options: WriteOptions;
}

/** A class, because three closures for each operation cost more memory. */
class CallersWrite<T> implements PendingWrite {
  readonly options: WriteOptions;
  readonly reject: (error: unknown) => void;
  isAlone = false;
  readonly #start: () => Step<T>;
  readonly #resolve: (value: T) => void;
  #result: { value: T } | undefined;

  constructor(
    { options, start }: WriteCall<T>,
    resolve: (value: T) => void,
    reject: (error: unknown) => void,
  ) {
    this.options = options;
    this.reject = reject;
    this.#start = start;
    this.#resolve = resolve;
  }

  run(runSteps: RunSteps): void {
    this.#result = { value: runSteps(this.#start()) };
  }

  settle(): void {
    if (this.#result) this.#resolve(this.#result.value);
  }
}
