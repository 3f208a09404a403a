// Keeps a session with the database: opens it, opens another one when it ends, and finds out what became of a commit
// whose answer was lost.
import { setTimeout as sleep } from 'node:timers/promises';
import { backoffMs } from '../../base/backoff.ts';
import { type MigrationListener, SchemaTooNewError } from '../schema-migration.ts';
import { StoreUnavailableError } from '../store.ts';
import {
  checkServer,
  describeTermination,
  evictHolder,
  ShardLostError,
  takeLock,
} from './database.ts';
import { describeUnavailable } from './postgres-errors.ts';
import {
  isLatest,
  MIGRATION_MS,
  migrate,
  readSchemaVersion,
  requireKnown,
  requireUsable,
} from './schema.ts';
import { Session, type SessionOptions } from './session.ts';

export interface LinkSettings extends SessionOptions {
  /** How long operations wait for a lost connection before they are rejected, ms. Default 5,000. */
  waitMs: number;
  /** How long the start waits for a platform that still uses the database, ms. Default 15,000. */
  lockWaitMs: number;
  /** How long to wait for a connection, ms. Default 10,000. */
  connectTimeoutMs: number;
  /** Longest time of one statement, ms. Default 30,000. */
  statementTimeoutMs: number;
  /**
   * Ends whatever session holds the lock of the store, instead of waiting for its end: the caller has made sure that it
   * is the owner. Default: false.
   */
  takeOver: boolean;
  /**
   * Whether this process still owns the store. Asked before and after a connection takes the lock of the store. If not,
   * the store is lost: `onLost` gets a ShardLostError. If it rejects, the connection is tried again. Default: it does.
   */
  mayReturn: () => Promise<boolean>;
  /** Refuses the schema of a newer version, also of one that this version may run beside. Default: false. */
  isExact: boolean;
  /** Called with each failure of the connection or the database. Default: only the failed callers learn of it. */
  onFailure: (error: unknown) => void;
  /** Called if the schema of an existing database was migrated. Default: ignored. */
  onMigrated: MigrationListener;
  /** Called when a lost connection is replaced. Default: ignored. */
  onReconnect: () => void;
  /**
   * Called once, when the database does not have what this process has written, or another process owns the store:
   * everything rejects from then on, until a new process opens the store. Default: ignored.
   */
  onLost: (error: unknown) => void;
}

export const LINK_DEFAULTS = {
  waitMs: 5_000,
  lockWaitMs: 15_000,
  connectTimeoutMs: 10_000,
  statementTimeoutMs: 30_000,
  takeOver: false,
  mayReturn: () => Promise.resolve(true),
  isExact: false,
  onFailure: () => {},
  onMigrated: () => {},
  onReconnect: () => {},
  onLost: () => {},
};

interface LinkOptions extends LinkSettings {
  /** Called when the connection has been lost for `waitMs`. */
  onOutage: () => void;
  /** Called with each new session, before anything else uses it. */
  onSession: (session: Session) => Promise<void>;
}

/** What became of a commit whose answer was lost. */
export type Fate = 'committed' | 'undone';

const RETRY = { baseMs: 100, maxMs: 5_000, jitter: 0.2 };

export class DatabaseLink {
  readonly #options: LinkOptions;
  /** Undefined while the connection is lost. */
  #session: Session | undefined;
  #pid = 0;
  #committed = 0;
  #pending: number | undefined;
  /** Resolves when there is a session again, or never will be. */
  #opening = Promise.resolve();
  /** The connection has been lost for `waitMs`. */
  #isOut = false;
  /** Resolves when that is so, or the connection is back. */
  #patience: Promise<void> = Promise.resolve();
  #cause: unknown;
  #dead: StoreUnavailableError | undefined;
  readonly #closing = new AbortController();

  private constructor(options: LinkOptions) {
    this.#options = options;
  }

  /** Connects, takes the lock and migrates. @throws the error of pg or the system, UnfitDatabaseError, SchemaTooNewError, ShardLostError */
  static async open(options: LinkOptions): Promise<DatabaseLink> {
    const link = new DatabaseLink(options);
    const session = await Session.connect(options);
    try {
      await checkServer(session);
      await link.#lock(session);
      await link.#migrate(session);
      link.#committed = await readNumber(session);
      await link.#use(session);
    } catch (error) {
      await session.end();
      throw error;
    }
    return link;
  }

  /** Why there is no connection; undefined if there is one. */
  get fault(): unknown {
    return this.#dead ?? (this.#session ? undefined : this.#cause);
  }

  /** Why everything rejects from now on. */
  get dead(): StoreUnavailableError | undefined {
    return this.#dead;
  }

  /** Number of the next commit. */
  get next(): number {
    return this.#committed + 1;
  }

  /** Why operations are rejected at once: the connection has been lost for `waitMs`, or forever. */
  get outage(): StoreUnavailableError | undefined {
    return this.#dead ?? (this.#isOut ? describeUnavailable(this.#cause) : undefined);
  }

  /** Waits a bounded time for a lost connection. @throws StoreUnavailableError */
  async ready(): Promise<Session> {
    if (!this.#session && !this.outage) {
      await Promise.race([this.#opening, this.#patience]);
    }
    if (this.#dead) throw this.#dead;
    if (!this.#session) throw describeUnavailable(this.#cause);
    return this.#session;
  }

  /** The answer to the commit with the number `next` will tell what became of it. */
  expectCommit(): void {
    this.#pending = this.next;
  }

  settleCommit(fate: Fate): void {
    if (fate === 'committed') this.#committed++;
    this.#pending = undefined;
  }

  /** What became of the expected commit, after the connection has ended. @throws StoreUnavailableError if nobody can know */
  async findFate(session: Session): Promise<Fate> {
    const number = this.#pending;
    await session.ended;
    await this.#opening;
    if (this.#dead) throw this.#dead;
    this.#pending = undefined;
    return number === this.#committed ? 'committed' : 'undone';
  }

  /** Nothing can be read or written from now on. */
  lose(error: unknown): void {
    if (this.#dead) return;
    this.#dead = describeUnavailable(error);
    this.#options.onLost(error);
    void this.#session?.end();
  }

  /** Nothing can be read or written from now on; commits under way may happen or not. */
  abandon(error: unknown): void {
    this.lose(error);
    this.stopRetrying();
    this.#session?.destroy();
    void this.#opening.then(() => this.#session?.destroy());
  }

  /** From now on a lost connection stays lost. */
  stopRetrying(): void {
    this.#closing.abort();
  }

  /** Closes the connection, if there is one. */
  async close(): Promise<void> {
    this.stopRetrying();
    await this.#opening;
    await this.#session?.end();
  }

  /** In a session of its own, whose statements may take longer. `session` has the lock meanwhile. */
  async #migrate(session: Session): Promise<void> {
    const { isExact, target } = this.#options;
    const found = await readSchemaVersion(session);
    if (isExact) requireKnown(found);
    if (isLatest(found)) {
      requireUsable(found);
      return;
    }
    const patient = await Session.connect({ ...this.#options, statementTimeoutMs: MIGRATION_MS });
    try {
      const migration = await migrate(patient, target.schema);
      if (migration) this.#options.onMigrated(migration);
    } finally {
      await patient.end();
    }
  }

  async #use(session: Session): Promise<void> {
    this.#pid = await session.readPid();
    await this.#options.onSession(session);
    this.#session = session;
    this.#isOut = false;
    void session.ended.then(() => this.#onEnd(session));
  }

  #onEnd(session: Session): void {
    this.#session = undefined;
    this.#cause = session.error ?? new Error('the connection has ended');
    if (this.#closing.signal.aborted) {
      this.#dead ??= new StoreUnavailableError('The store is closed');
      return;
    }
    if (this.#dead) return;
    this.#options.onFailure(this.#cause);
    this.#opening = this.#reopen();
    this.#patience = this.#awaitOutage();
  }

  async #awaitOutage(): Promise<void> {
    const isBack = new AbortController();
    const { signal } = isBack;
    void this.#opening.then(() => isBack.abort());
    await sleep(this.#options.waitMs, undefined, { signal }).catch(() => {});
    if (signal.aborted) return;
    this.#isOut = true;
    this.#options.onOutage();
  }

  /** Never rejects. */
  async #reopen(): Promise<void> {
    const { signal } = this.#closing;
    for (let retry = 1; !signal.aborted; retry++) {
      try {
        await this.#openAgain();
        this.#options.onReconnect();
        return;
      } catch (error) {
        this.#cause = error;
        if (isPermanent(error)) {
          this.lose(error);
          return;
        }
        this.#options.onFailure(error);
      }
      await sleep(backoffMs(retry, RETRY), undefined, { signal }).catch(() => {});
    }
    this.#dead ??= new StoreUnavailableError('The store is closed');
  }

  /** Once this session has the lock, the old one has ended, and so has its transaction. */
  async #openAgain(): Promise<void> {
    const session = await Session.connect(this.#options);
    try {
      await checkServer(session);
      await this.#lock(session, this.#pid);
      this.#compare(await readNumber(session));
      await this.#use(session);
    } catch (error) {
      await session.end();
      throw error;
    }
  }

  /** @throws CommitsDifferError */
  #compare(found: number): void {
    if (found === this.#committed) return;
    if (found !== this.#pending) throw new CommitsDifferError(this.#committed, found);
    this.#committed = found;
  }

  /** `oldPid`: a session of this process, which may still be open at the server. @throws ShardLostError */
  async #lock(session: Session, oldPid?: number): Promise<void> {
    const { lockWaitMs: waitMs, takeOver, target } = this.#options;
    const prepare = async () => {
      await this.#checkOwner();
      if (oldPid !== undefined) await session.execute(describeTermination(oldPid));
      if (takeOver) await evictHolder(session, target.schema);
    };
    await takeLock(session, { target, waitMs, prepare, signal: this.#closing.signal });
    // Whoever becomes the owner from now on ends this session.
    await this.#checkOwner();
  }

  /** @throws ShardLostError */
  async #checkOwner(): Promise<void> {
    const { mayReturn, target } = this.#options;
    if (!(await mayReturn())) throw new ShardLostError(target.schema);
  }
}

/** The database does not have what this process has written. */
class CommitsDifferError extends Error {
  constructor(expected: number, found: number) {
    super(
      `the database has commit ${found}, and this platform has written ${expected}: another program has written, ` +
        'or a backup or a standby without the last commits has taken its place',
    );
  }
}

function isPermanent(error: unknown): boolean {
  return [SchemaTooNewError, CommitsDifferError, ShardLostError].some(
    (kind) => error instanceof kind,
  );
}

async function readNumber(session: Session): Promise<number> {
  const [row] = await session.query({ sql: 'select number from last_commit', params: [] });
  return Number(row?.['number']);
}
