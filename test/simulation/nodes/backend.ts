// One session at the simulated server: carries out the statements of one connection, one after the other.

import { MIGRATIONS } from '../../../src/store/postgres/schema.ts';
import type { Answer } from '../../../src/store/postgres/session.ts';
import type { Row, SqlValue } from '../../../src/store/store.ts';
import { UniqueViolation } from './cluster-tables.ts';
import {
  type Committer,
  checkCommit,
  checkOwner,
  type Database,
  describeError,
  nameNodeLock,
  nameStoreLock,
  type Schema,
} from './database.ts';
import { Transaction } from './transaction.ts';

export interface Statement {
  sql: string;
  params: readonly SqlValue[];
  answer: Done;
}

type Done = (answer: Answer | Error) => void;

export interface BackendOptions {
  database: Database;
  pid: number;
  node: string;
  schema: Schema;
  statementTimeoutMs: number;
}

/** Between two looks whether another session has ended, ms. */
const TERMINATION_STEP_MS = 20;

const OK: Answer = { command: '', rows: [] };

export class Backend implements Committer {
  readonly pid: number;
  readonly node: string;
  readonly schema: Schema;
  known: number | undefined;
  lockedAt = Number.NEGATIVE_INFINITY;
  hasLostLock = false;
  /** Tells the client's side of the connection; an error is the last message. */
  onEnd: (error: Error | undefined) => void = () => {};
  /** Cuts the connection: what is on its way is lost. */
  onCut: () => void = () => {};
  readonly #database: Database;
  readonly #statements: Statement[] = [];
  readonly #transaction: Transaction;
  #isBusy = false;
  #isCommitting = false;
  #isTerminated = false;
  #isEnded = false;

  constructor({ database, node, pid, schema, statementTimeoutMs }: BackendOptions) {
    this.#database = database;
    this.pid = pid;
    this.schema = schema;
    this.node = node;
    this.#transaction = new Transaction({ database, holder: this, schema, statementTimeoutMs });
  }

  receive(statement: Statement): void {
    if (this.#isEnded) return;
    this.#statements.push(statement);
    this.#next();
  }

  /** The client has closed the connection: statements before are carried out. */
  close(): void {
    this.receive({ sql: 'close', params: [], answer: () => {} });
  }

  /** Ends the session, unless it is in the middle of a commit: then after it. */
  terminate(): void {
    if (this.#isCommitting) this.#isTerminated = true;
    else this.end(describeError('terminating connection', '57P01', 'FATAL'));
  }

  /** Its locks are lost and it stays, as behind a pooler that shares it. */
  loseLocks(): void {
    const { locks } = this.#database;
    if (locks.get(nameStoreLock(this.schema.name)) !== this) return;
    locks.delete(nameStoreLock(this.schema.name));
    this.hasLostLock = true;
  }

  end(error?: Error): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    const { locks, sessions } = this.#database;
    for (const [key, holder] of locks) if (holder === this) locks.delete(key);
    sessions.delete(this.pid);
    this.#transaction.rollBack();
    this.onEnd(error);
  }

  #next(): void {
    while (!this.#isBusy && !this.#isEnded) {
      const statement = this.#statements.shift();
      if (!statement) return;
      this.#isBusy = true;
      this.#execute(statement, (answer) => {
        this.#isBusy = false;
        if (this.#isEnded) return;
        if (answer instanceof Error) this.#transaction.fail();
        statement.answer(answer);
        if (this.#isTerminated) this.terminate();
        else this.#next();
      });
    }
  }

  #execute({ params, sql }: Statement, done: Done): void {
    if (sql === 'close') this.end();
    else if (sql === 'commit') this.#commit(done);
    else if (sql === 'begin') {
      this.#transaction.begin();
      done(OK);
    } else if (sql === 'rollback') {
      this.#transaction.rollBack();
      done({ command: 'ROLLBACK', rows: [] });
    } else if (this.#transaction.hasFailed) {
      done(describeError('current transaction is aborted', '25P02'));
    } else this.#change(sql, params, done);
  }

  #change(sql: string, params: readonly SqlValue[], done: Done): void {
    if (sql === 'discard plans') done(OK);
    else if (sql.startsWith('update last_commit')) this.#fence(sql, Number(params[0]), done);
    else if (/^(?:select|update) simulated/.test(sql)) this.#call(sql, Number(params[0]), done);
    else if (sql.includes('pg_terminate_backend')) this.#terminateOthers(sql, params, done);
    else this.#ask(sql, params, done);
  }

  #ask(sql: string, params: readonly SqlValue[], done: Done): void {
    try {
      const rows = this.#database.cluster.execute(sql, params) ?? this.#read(sql, params);
      if (!rows) throw new Error(`the simulated server does not know the statement: ${sql}`);
      done({ command: 'SELECT', rows });
    } catch (error) {
      if (!(error instanceof UniqueViolation)) throw error;
      done(describeError(error.message, '23505'));
    }
  }

  #commit(done: Done): void {
    const { hasFailed, hasWritten } = this.#transaction;
    const fate = hasWritten && !hasFailed ? this.#database.chooseFate() : 'done';
    if (hasFailed) {
      this.#transaction.rollBack();
      done({ command: 'ROLLBACK', rows: [] });
    } else if (fate === 'full') {
      this.#transaction.rollBack();
      done(describeError('could not extend file: no space left on device', '53100'));
    } else if (fate === 'lost') {
      this.onCut();
      this.end();
    } else if (typeof fate === 'number') {
      this.#isCommitting = true;
      this.#database.time.after(fate, () => {
        this.#isCommitting = false;
        // Otherwise the whole server has died meanwhile.
        if (!this.#isEnded) this.#store(done);
      });
    } else if (fate === 'unheard') {
      this.#store(() => {
        this.onCut();
        this.end();
      });
    } else this.#store(done);
  }

  #store(done: Done): void {
    if (this.#transaction.hasWritten) checkCommit(this.#database, this);
    const isNew = this.#transaction.hasWritten;
    this.#transaction.commit();
    if (isNew) this.known = this.schema.number;
    done({ command: 'COMMIT', rows: [] });
  }

  #fence(sql: string, expected: number, done: Done): void {
    const isConditional = sql.includes('case when number = $1');
    const act = () => {
      const { number } = this.schema;
      if (isConditional && number !== expected) {
        this.#database.onFenced();
        done(describeError('division by zero', '22012'));
      } else if (this.#database.failsWrite()) {
        done(describeError('could not extend file: no space left on device', '53100'));
      } else {
        this.#transaction.setNumber(number + 1);
        done(OK);
      }
    };
    this.#transaction.enter(act, done);
  }

  #call(sql: string, number: number, done: Done): void {
    const call = this.#database.calls.take(number);
    const isRead = sql.startsWith('select');
    const act = () => {
      try {
        const value = this.#transaction.read(() => call(this.schema.tables));
        done({ command: isRead ? 'SELECT' : 'UPDATE', rows: [{ value }] });
      } catch (error) {
        done(describeError(String(error), '23505'));
      }
    };
    if (isRead) act();
    else if (this.#transaction.isOpen) {
      this.#transaction.hasWritten = true;
      this.#transaction.enter(act, done);
    } else throw new Error('a statement writes outside of a transaction');
  }

  #terminateOthers(sql: string, params: readonly SqlValue[], done: Done): void {
    const { sessions, time } = this.#database;
    const found = this.#listTerminated(sql, params);
    for (const pid of found) sessions.get(pid)?.terminate();
    const waitMs = Number(/pg_terminate_backend\(pid, (\d+)\)/.exec(sql)?.[1] ?? 0);
    const until = time.now() + waitMs;
    const wait = () => {
      const isOver = found.every((pid) => !sessions.has(pid));
      if (isOver || time.now() >= until) done({ command: 'SELECT', rows: [] });
      else time.after(TERMINATION_STEP_MS, wait);
    };
    wait();
  }

  /** Holders of a store's lock and of its rows, or the session with this number if it holds a lock. */
  #listTerminated(sql: string, params: readonly SqlValue[]): number[] {
    const { locks } = this.#database;
    const schema = /objid = hashtext\('([^']+)'\)/.exec(sql)?.[1];
    if (schema !== undefined) {
      const { waiting, writer } = this.schema;
      const found = new Set([locks.get(nameStoreLock(schema))]);
      if (sql.includes("to_regclass('last_commit')")) {
        for (const each of [writer, ...waiting.map(({ holder }) => holder)]) found.add(each);
      }
      return [...found].flatMap((holder) => (holder && holder !== this ? [holder.pid] : []));
    }
    const pid = Number(params[0] ?? /and pid = (\d+)/.exec(sql)?.[1]);
    return [...locks.values()].some((holder) => holder.pid === pid) ? [pid] : [];
  }

  #read(sql: string, params: readonly SqlValue[]): Row[] | undefined {
    if (sql.includes('server_version_num')) {
      const settings = { read_only: 'off', synchronous: 'on', fsync: 'on' };
      return [{ version: 150_000, standby: false, ...settings }];
    }
    if (sql.includes('to_regclass')) return [{ version: 'schema_version' }];
    if (sql.includes('from schema_version'))
      return [{ version: MIGRATIONS.length, oldest: MIGRATIONS.length }];
    if (sql.includes('pg_backend_pid')) return [{ pid: this.pid }];
    if (sql.includes('pg_try_advisory_lock')) return [{ locked: this.#lock(sql, params) }];
    if (!sql.startsWith('select number from last_commit')) return undefined;
    checkOwner(this.#database, this);
    this.known = this.schema.number;
    return [{ number: this.known }];
  }

  #lock(sql: string, [id]: readonly SqlValue[]): boolean {
    const { locks, time } = this.#database;
    const { name } = this.schema;
    const isNode = id !== undefined && sql.includes('|| cast(');
    const key = isNode ? nameNodeLock(name, String(id)) : nameStoreLock(name);
    const holder = locks.get(key);
    if (holder && holder !== this) return false;
    locks.set(key, this);
    this.lockedAt = time.now();
    return true;
  }
}
