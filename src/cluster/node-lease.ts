// Until when a node may serve, by its own monotonic clock. It counts from before a renewal was sent, so it ends before
// the lease in the database does.

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

const systemClocks: LeaseClocks = { monotonic: () => performance.now(), wall: () => Date.now() };

/** If the wall clock gains more than this on the monotonic one, the machine may have been suspended, ms. */
const SUSPENDED_MS = 1_000;

export class NodeLease {
  readonly #times: LeaseTimes;
  readonly #clocks: LeaseClocks;
  #renewedAt = Number.NEGATIVE_INFINITY;
  /** Wall clock minus monotonic clock at the renewal. */
  #offset = 0;
  #databaseOffset = 0;
  #lastNow = 0;

  constructor(times: LeaseTimes, clocks: LeaseClocks = systemClocks) {
    this.#times = times;
    this.#clocks = clocks;
  }

  /** Time for `renewed`. */
  now(): number {
    return this.#clocks.monotonic();
  }

  /** The database has answered a renewal that was sent at `sentAt` with its own time, Unix ms. */
  renewed(sentAt: number, databaseTime: number): void {
    const { monotonic, wall } = this.#clocks;
    const now = monotonic();
    this.#renewedAt = sentAt;
    this.#offset = wall() - now;
    this.#databaseOffset = databaseTime - (sentAt + now) / 2;
  }

  /** The node has no lease any more. */
  end(): void {
    this.#renewedAt = Number.NEGATIVE_INFINITY;
  }

  /** How long ago the last renewal was sent, ms. */
  get ageMs(): number {
    return this.#clocks.monotonic() - this.#renewedAt;
  }

  /** The clocks disagree: only a renewal tells how much time has passed. */
  get isDoubtful(): boolean {
    const { monotonic, wall } = this.#clocks;
    return Math.abs(wall() - monotonic() - this.#offset) > SUSPENDED_MS;
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
    const now = Math.floor(this.#clocks.monotonic() + this.#databaseOffset);
    this.#lastNow = Math.max(this.#lastNow, now);
    return this.#lastNow;
  }
}
