// The transaction of one simulated session on the tables of its schema. One transaction of a schema writes at a time.
import { type Database, describeError, type Holder, type Schema } from './database.ts';

export interface TransactionOptions {
  database: Database;
  holder: Holder;
  schema: Schema;
  /** Longest wait for another transaction, ms. */
  statementTimeoutMs: number;
}

export class Transaction {
  readonly #options: TransactionOptions;
  #state: 'none' | 'open' | 'failed' = 'none';
  /** The number that its commit writes. */
  #number: number | undefined;
  hasWritten = false;

  constructor(options: TransactionOptions) {
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#state !== 'none';
  }

  get hasFailed(): boolean {
    return this.#state === 'failed';
  }

  begin(): void {
    this.#state = 'open';
    this.#number = undefined;
    this.hasWritten = false;
  }

  /** A statement has failed: the transaction can only be rolled back. */
  fail(): void {
    if (this.isOpen) this.#state = 'failed';
  }

  setNumber(number: number): void {
    this.#number = number;
  }

  /** Waits for the transaction that writes now. `refuse` is called if that takes too long. */
  enter(act: () => void, refuse: (error: Error) => void): void {
    const { database, holder, schema, statementTimeoutMs } = this.#options;
    if (schema.writer === undefined || this.#isWriter) {
      schema.writer = holder;
      act();
      return;
    }
    const cancel = database.time.after(statementTimeoutMs, () => {
      const place = schema.waiting.indexOf(waiting);
      if (place < 0) return;
      schema.waiting.splice(place, 1);
      refuse(describeError('canceling statement due to lock timeout', '55P03'));
    });
    const go = () => {
      cancel();
      act();
    };
    const waiting = { holder, go };
    schema.waiting.push(waiting);
  }

  commit(): void {
    const { schema } = this.#options;
    if (this.hasWritten) {
      schema.tables.commit();
      schema.number = this.#number ?? schema.number;
      for (const note of schema.notes.splice(0)) note();
    }
    this.#end();
  }

  rollBack(): void {
    const { holder, schema } = this.#options;
    const own = schema.waiting.find((waiting) => waiting.holder === holder);
    if (own) schema.waiting.splice(schema.waiting.indexOf(own), 1);
    if (this.#isWriter) {
      schema.tables.undoTo(0);
      schema.notes.length = 0;
    }
    this.#end();
  }

  /** Reads what this transaction sees: its own changes, and what others have committed. */
  read<T>(read: () => T): T {
    const { tables, writer } = this.#options.schema;
    return writer === undefined || this.#isWriter ? read() : tables.readCommitted(read);
  }

  get #isWriter(): boolean {
    return this.#options.schema.writer === this.#options.holder;
  }

  #end(): void {
    const { schema } = this.#options;
    this.#state = 'none';
    if (!this.#isWriter) return;
    const next = schema.waiting.shift();
    schema.writer = next?.holder;
    next?.go();
  }
}
