// A node's membership in the cluster: keeps its row and its lock, and reads which node owns which shard.
import { setTimeout as sleep } from 'node:timers/promises';
import { backoffMs } from '../base/backoff.ts';
import type { PostgresTarget } from '../store/postgres/connection-url.ts';
import { codeOf, endsConnection } from '../store/postgres/postgres-errors.ts';
import {
  MIGRATIONS,
  type Migration,
  readSchemaVersion,
  requireUsable,
} from '../store/postgres/schema.ts';
import { Session, type SessionOptions } from '../store/postgres/session.ts';
import type { MigrationListener } from '../store/schema-migration.ts';
import { number } from '../store/sql/rows.ts';
import type { Query, Row } from '../store/store.ts';
import { prepareDatabase } from './cluster-database.ts';
import {
  ClusterRows,
  type ClusterView,
  type NodeRow,
  readNode,
  readShard,
  type ShardView,
} from './cluster-rows.ts';
import {
  FinalFailures,
  type LeaseClocks,
  type LeaseTimes,
  MembershipEndedError,
  NodeLease,
  NodeUrlTakenError,
  type Renewal,
} from './node-lease.ts';

export interface MembershipTimings extends LeaseTimes {
  /** Time between two renewals, ms. */
  renewMs: number;
  /** Time between two reads of the view, ms. */
  pollMs: number;
  /** How long to wait for another node with the same URL and, at the start, for nodes that do not allow a migration, ms. */
  joinWaitMs: number;
  connectTimeoutMs: number;
  statementTimeoutMs: number;
}

export interface MembershipOptions {
  target: PostgresTarget;
  /** Of this process: a new one at each start. */
  id: string;
  /** Where other nodes reach this one. */
  url: string;
  /** Fixed at the first start of a cluster. Default: the number that the database has, or else 16. */
  shards?: number | undefined;
  /** Those that the program knows. Default: all. */
  migrations?: readonly Migration[];
  /** Called if this node has migrated the schema of an existing database. Default: ignored. */
  onMigrated?: MigrationListener;
  /** Called with each failure of the connection or the database; the membership tries again. */
  onFailure: (error: unknown) => void;
  /**
   * Called once, when the node can never be a member again: with a SchemaTooNewError, or with a NodeUrlTakenError after
   * another node has had its URL for `joinWaitMs`. The membership does not try again.
   */
  onEnd: (error: unknown) => void;
  timings?: Partial<MembershipTimings>;
  /** Default: those of the machine. */
  clocks?: LeaseClocks;
  /** As SessionOptions. */
  connect?: SessionOptions['connect'];
}

/**
 * A renewal that gets no answer ends its connection in time to renew on another one: the client waits 2 s longer than
 * the server for a statement.
 */
export const TIMINGS: MembershipTimings = {
  leaseMs: 8_000,
  renewMs: 2_000,
  marginMs: 2_000,
  freeLockMs: 3_000,
  pollMs: 1_000,
  joinWaitMs: 15_000,
  connectTimeoutMs: 2_000,
  statementTimeoutMs: 1_000,
};

const RETRY = { baseMs: 50, maxMs: 1_000, jitter: 0.2 };
const JOIN_RETRY_MS = 200;
const UNIQUE_VIOLATION = '23505';

export class Membership {
  readonly #options: MembershipOptions;
  readonly #timings: MembershipTimings;
  readonly #rows: ClusterRows;
  readonly #lease: NodeLease;
  readonly #self: NodeRow;
  readonly #viewListeners = new Set<(view: ClusterView) => void>();
  /** Holds the lock of the node. Undefined while the connection is lost. */
  #session: Session | undefined;
  /** The session through which the view was read last: in a gap between two sessions, others may claim shards. */
  #viewSession: Session | undefined;
  #pid = 0;
  #view: ClusterView = { nodes: [], shards: [] };
  /** It counts when a view that was read after it has been followed: others may have claimed shards before it. */
  #renewal: Renewal | undefined;
  /** The read that is under way, and the one that follows it. */
  #reading: Promise<ClusterView> | undefined;
  #next: Promise<ClusterView> | undefined;
  #wake = new AbortController();
  /** Number of changes of shards that this node has made. */
  #changes = 0;
  /** Failed reads since the last good one. */
  #failures = 0;
  readonly #final: FinalFailures;
  #running: Promise<void> | undefined;
  #leaving: Promise<void> | undefined;

  private constructor(options: MembershipOptions) {
    this.#options = options;
    this.#timings = { ...TIMINGS, ...options.timings };
    const { id, migrations = MIGRATIONS, target, url } = options;
    this.#rows = new ClusterRows({ ...this.#timings, schema: target.schema });
    this.#final = new FinalFailures({ urlWaitMs: this.#timings.joinWaitMs });
    this.#lease = new NodeLease(this.#timings, options.clocks);
    this.#self = { id, url, version: migrations.length, isLeaving: false, controlNumber: 0 };
  }

  /** Joins the cluster. @throws NodeUrlTakenError, UnfitDatabaseError, SchemaTooNewError, the error of pg or the system */
  static async open(options: MembershipOptions): Promise<Membership> {
    const membership = new Membership(options);
    const { connectTimeoutMs, joinWaitMs } = membership.#timings;
    const { connect, migrations = MIGRATIONS, onMigrated = () => {}, shards, target } = options;
    const rows = membership.#rows;
    const ofDatabase = { target, rows, migrations, shards, connect, onMigrated };
    await prepareDatabase({ ...ofDatabase, connectTimeoutMs, waitMs: joinWaitMs });
    await membership.#joinFirst(performance.now() + joinWaitMs);
    membership.#running = membership.#run();
    return membership;
  }

  get id(): string {
    return this.#self.id;
  }

  /** As read last. */
  get view(): ClusterView {
    return this.#view;
  }

  /** Calls the listener after each read of the view, also of an unchanged one. It must not throw. */
  onView(listener: (view: ClusterView) => void): void {
    this.#viewListeners.add(listener);
  }

  /** The node has a lease. Otherwise other nodes may serve its shards. */
  get isServing(): boolean {
    // After a failure, the pause counts: every request asks.
    if (this.#lease.isDoubtful && this.#failures === 0) this.#wake.abort();
    const isConnected = this.#session !== undefined && this.#session === this.#viewSession;
    return this.#lease.isValid(isConnected);
  }

  /** Reads the view, beginning after the call. @throws the error of pg or the system */
  refresh(): Promise<ClusterView> {
    if (!this.#reading) return this.#begin();
    this.#next ??= this.#reading
      .catch(() => {})
      .then(() => {
        this.#next = undefined;
        return this.#reading ?? this.#begin();
      });
    return this.#next;
  }

  /** False: a live node owns the shard, or it is offered to one. Succeeds again for a shard of this node. */
  async claim(shard: number): Promise<boolean> {
    return this.#change(this.#rows.claim(shard, this.id));
  }

  /** This node no longer owns the shard. Only `to` may claim it while it is a live member; null: any node. */
  async offer(shard: number, to: string | null): Promise<void> {
    await this.#change(this.#rows.offer(shard, { me: this.id, to }));
  }

  /** This node could not open the shard, and no longer owns it. `to` may claim it. */
  async giveUp(shard: number, to: string): Promise<void> {
    await this.#change(this.#rows.giveUp(shard, { me: this.id, to }));
  }

  /** Whether this node owns the shard, by the database. Rejects if it has no lease and gets none. */
  async isMine(shard: number): Promise<boolean> {
    if (!this.isServing) await this.refresh();
    const [row] = await this.#query(this.#rows.shard(shard));
    if (!this.isServing) throw new Error('the lease of the node cannot be renewed');
    return row !== undefined && readShard(row).owner === this.id;
  }

  /** Tells other nodes that endpoints, templates or keys have changed. */
  async noteControl(controlNumber: number): Promise<void> {
    this.#self.controlNumber = controlNumber;
    await this.#query(this.#rows.noteControl(this.id, controlNumber));
  }

  /** From now on plans give this node no shards, and let it offer all that it has. */
  async beginLeaving(): Promise<void> {
    this.#self.isLeaving = true;
    await this.#query(this.#rows.beginLeaving(this.id));
    await this.refresh();
  }

  /** The database's time, Unix ms. */
  databaseNow(): number {
    return this.#lease.databaseNow();
  }

  /** Removes the node's row, so that other nodes may claim its shards at once. Never rejects. */
  leave(): Promise<void> {
    this.#leaving ??= this.#leave();
    return this.#leaving;
  }

  get #isLeaving(): boolean {
    return this.#leaving !== undefined;
  }

  async #leave(): Promise<void> {
    this.#wake.abort();
    await this.#running;
    await (this.#next ?? this.#reading)?.catch(() => {});
    this.#lease.end();
    const session = this.#session;
    if (!session) return;
    const { sql, params } = this.#rows.remove(this.id);
    await session.query({ sql, params }).catch(this.#options.onFailure);
    this.#session = undefined;
    await session.end();
  }

  async #joinFirst(end: number): Promise<void> {
    for (;;) {
      try {
        await this.#read();
        return;
      } catch (error) {
        if (!(error instanceof NodeUrlTakenError) || performance.now() > end) throw error;
      }
      await sleep(JOIN_RETRY_MS);
    }
  }

  async #run(): Promise<void> {
    while (!this.#isLeaving) {
      let waitMs = this.#timings.pollMs;
      try {
        await this.refresh();
        this.#failures = 0;
        this.#final.end();
      } catch (error) {
        if (this.#isLeaving) return;
        this.#options.onFailure(error);
        if (this.#final.isFinal(error, performance.now())) {
          this.#options.onEnd(error);
          return;
        }
        waitMs = Math.min(waitMs, backoffMs(++this.#failures, RETRY));
      }
      await sleep(waitMs, undefined, { signal: this.#wake.signal }).catch(() => {});
      if (this.#wake.signal.aborted && !this.#isLeaving) this.#wake = new AbortController();
    }
  }

  #begin(): Promise<ClusterView> {
    if (this.#isLeaving) return Promise.reject(new MembershipEndedError());
    const reading = this.#read().finally(() => {
      this.#reading = undefined;
    });
    this.#reading = reading;
    return reading;
  }

  /** Connects and joins if need be, renews the lease if it is time, and reads the view, in one round trip. */
  async #read(): Promise<ClusterView> {
    this.#renewal = undefined;
    const session = this.#session ?? (await this.#connect());
    try {
      const isDue = this.#lease.ageMs >= this.#timings.renewMs || this.#lease.isDoubtful;
      let changes = this.#changes;
      const [isMember, read] = await Promise.all([
        isDue ? this.#renew(session) : true,
        this.#readView(session),
      ]);
      let view = isMember ? read : undefined;
      // Others have removed the row of this node.
      if (!isMember) await this.#join(session);
      // The answer to a change may have come together with the answer to this read, which is older.
      while (view === undefined || changes !== this.#changes) {
        changes = this.#changes;
        view = await this.#readView(session);
      }
      this.#view = view;
    } catch (error) {
      this.#dropIfEnded(session, error);
      throw error;
    }
    if (!this.#isLeaving) for (const listener of this.#viewListeners) listener(this.#view);
    this.#viewSession = session;
    if (this.#renewal) this.#lease.accept(this.#renewal);
    this.#renewal = undefined;
    return this.#view;
  }

  async #readView(session: Session): Promise<ClusterView> {
    const [nodes, shards] = await Promise.all([
      session.query(this.#rows.nodes()),
      session.query(this.#rows.shards()),
    ]);
    return { nodes: nodes.map(readNode), shards: shards.map(readShard) };
  }

  /** @returns false if the node no longer has a row */
  async #renew(session: Session): Promise<boolean> {
    const sentAt = this.#lease.now();
    const [row] = await session.query(this.#rows.renew(this.#self));
    if (row) this.#renewal = this.#lease.read(sentAt, number(row, 'now'));
    else this.#lease.end();
    return row !== undefined;
  }

  /** A session that holds the lock of the node, which has joined. */
  async #connect(): Promise<Session> {
    const { connectTimeoutMs, statementTimeoutMs } = this.#timings;
    const { connect, target } = this.#options;
    const session = await Session.connect({
      target,
      connect,
      connectTimeoutMs,
      statementTimeoutMs,
    });
    try {
      await this.#lock(session);
      await this.#join(session);
    } catch (error) {
      session.destroy();
      throw error;
    }
    this.#session = session;
    void session.ended.then(() => {
      this.#drop(session);
      // Another one is needed at once.
      this.#wake.abort();
    });
    return session;
  }

  async #lock(session: Session): Promise<void> {
    if (this.#pid !== 0) {
      // An earlier session may still be open at the server. Between its end and the lock, only a fresh renewal shows
      // others that the node is alive.
      await this.#renew(session);
      await session.query(this.#rows.terminate(this.#pid));
    }
    const [row] = await session.query(this.#rows.lock(this.id));
    if (row?.['locked'] !== true) throw new Error(`another session is the node ${this.id}`);
    this.#pid = await session.readPid();
  }

  /** @throws NodeUrlTakenError, SchemaTooNewError */
  async #join(session: Session): Promise<void> {
    await session.query(this.#rows.removeDead(this.#self));
    const sentAt = this.#lease.now();
    const joining = session.query(this.#rows.join(this.#self));
    const [row] = await joining.catch((error: unknown) => {
      throw codeOf(error) === UNIQUE_VIOLATION ? new NodeUrlTakenError(this.#self.url) : error;
    });
    if (row) this.#renewal = this.#lease.read(sentAt, number(row, 'now'));
    else requireUsable(await readSchemaVersion(session), this.#self.version);
  }

  #dropIfEnded(session: Session, error: unknown): void {
    if (endsConnection(error)) this.#drop(session);
  }

  #drop(session: Session): void {
    if (this.#session === session) this.#session = undefined;
    session.destroy();
  }

  /** Changes a row of a shard. @returns whether it was changed */
  async #change(query: Query): Promise<boolean> {
    const [row] = await this.#query(query);
    if (!row) return false;
    this.#changes++;
    const changed: ShardView = readShard(row);
    const shards = this.#view.shards.map((shard) => (shard.id === changed.id ? changed : shard));
    this.#view = { nodes: this.#view.nodes, shards };
    return true;
  }

  async #query(query: Query): Promise<Row[]> {
    if (!this.#session) await this.refresh();
    const session = this.#session;
    if (!session) throw new MembershipEndedError();
    try {
      return await session.query(query);
    } catch (error) {
      this.#dropIfEnded(session, error);
      throw error;
    }
  }
}
