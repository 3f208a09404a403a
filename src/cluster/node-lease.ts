// Until when a node may serve, by its own monotonic clock, and which failures end its membership. The lease counts from
// before a renewal was sent, so it ends before the lease in the database does.
import { SchemaTooNewError } from '../store/schema-migration.ts';

export interface LeaseTimes {
  /** Validity of a lease in the database, ms. */
  leaseMs: number;
  /** How long before the end of its lease a node stops serving, ms. */
  marginMs: number;
  /** After this time without a renewal, a node without a connection counts as dead, ms. */
  freeLockMs: number;
}

export interface LeaseClocks {
  /** ms. */
  monotonic: () => number;
  /** Unix ms. */
  wall: () => number;
}

/** What the answer to a renewal says. */
export interface Renewal {
  /** When the renewal was sent, by the monotonic clock, ms. */
  sentAt: number;
  /** Wall clock minus monotonic clock at the answer. */
  offset: number;
  /** The database's clock minus the monotonic clock. */
  databaseOffset: number;
}

const systemClocks: LeaseClocks = { monotonic: () => performance.now(), wall: () => Date.now() };

/** If the wall clock gains more than this on the monotonic one, the machine may have been suspended, ms. */
const SUSPENDED_MS = 1_000;

export class NodeLease {
  readonly #times: LeaseTimes;
  readonly #clocks: LeaseClocks;
  #last: Renewal = { sentAt: Number.NEGATIVE_INFINITY, offset: 0, databaseOffset: 0 };
  #lastNow = 0;

  constructor(times: LeaseTimes, clocks: LeaseClocks = systemClocks) {
    this.#times = times;
    this.#clocks = clocks;
  }

  /** Time for `read`. */
  now(): number {
    return this.#clocks.monotonic();
  }

  /** The database has answered a renewal that was sent at `sentAt` with its own time, Unix ms. */
  read(sentAt: number, databaseTime: number): Renewal {
    const { monotonic, wall } = this.#clocks;
    const now = monotonic();
    const databaseOffset = databaseTime - (sentAt + now) / 2;
    return { sentAt, offset: wall() - now, databaseOffset };
  }

  /** From now on the renewal counts. */
  accept(renewal: Renewal): void {
    this.#last = renewal;
  }

  /** The node no longer has a lease. */
  end(): void {
    this.#last = { ...this.#last, sentAt: Number.NEGATIVE_INFINITY };
  }

  /** How long ago the last renewal was sent, ms. */
  get ageMs(): number {
    return this.#clocks.monotonic() - this.#last.sentAt;
  }

  /** The clocks disagree: only a renewal tells how much time has passed. */
  get isDoubtful(): boolean {
    const { monotonic, wall } = this.#clocks;
    return Math.abs(wall() - monotonic() - this.#last.offset) > SUSPENDED_MS;
  }

  /** `isConnected`: the session that holds the lock of the node is open, as far as the node knows. */
  isValid(isConnected: boolean): boolean {
    const { freeLockMs, leaseMs, marginMs } = this.#times;
    const connected = leaseMs - marginMs;
    // Other nodes may count it as dead sooner, by the share that the margin is of the lease.
    const unconnected = Math.min(connected, freeLockMs * (connected / leaseMs));
    return this.ageMs < (isConnected ? connected : unconnected) && !this.isDoubtful;
  }

  /** The database's time, Unix ms. It never goes back. */
  databaseNow(): number {
    const now = Math.floor(this.#clocks.monotonic() + this.#last.databaseOffset);
    this.#lastNow = Math.max(this.#lastNow, now);
    return this.#lastNow;
  }
}

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
