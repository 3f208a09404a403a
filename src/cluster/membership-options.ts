// The options of a membership, their defaults, its errors, and which of its failures are final.
import type { PostgresTarget } from '../store/postgres/connection-url.ts';
import type { Migration } from '../store/postgres/schema.ts';
import type { SessionOptions } from '../store/postgres/session.ts';
import { type MigrationListener, SchemaTooNewError } from '../store/schema-migration.ts';
import type { LeaseClocks, LeaseTimes } from './node-lease.ts';

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
export class NodeUrlTakenError extends Error {
  override readonly name = 'NodeUrlTakenError';

  constructor(url: string) {
    super(`another node with the URL ${url} is running; give each node a URL of its own`);
  }
}

export class MembershipEndedError extends Error {
  override readonly name = 'MembershipEndedError';

  constructor() {
    super('the node has left the cluster');
  }
}

export class FinalFailures {
  readonly #urlWaitMs: number;
  #takenSince: number | undefined;

  /** `urlWaitMs`: how long another node may have the URL of this one. */
  constructor({ urlWaitMs }: { urlWaitMs: number }) {
    this.#urlWaitMs = urlWaitMs;
  }

  /** Notes a failure in a row. @returns whether the node must end */
  isFinal(error: unknown, now: number): boolean {
    if (error instanceof SchemaTooNewError) return true;
    // A lost connection says nothing about the URL, so the time goes on.
    if (!(error instanceof NodeUrlTakenError)) return false;
    this.#takenSince ??= now;
    return now - this.#takenSince >= this.#urlWaitMs;
  }

  /** The node is a member. */
  end(): void {
    this.#takenSince = undefined;
  }
}
