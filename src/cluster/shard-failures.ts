// The shards that this node could not open: when to try again, and when to leave them to another node.
import { backoffMs } from '../base/backoff.ts';

/** Pauses between attempts to open a shard. */
const RETRY = { baseMs: 250, maxMs: 5_000, jitter: 0.2 };
/** A shard that this node owns and cannot open is given up after so many failed attempts in a row, */
const GIVE_UP_TIMES = 3;
/** or at the first failure after this time, ms: the attempts may be long. */
const GIVE_UP_MS = 4_000;

interface Failure {
  /** Failed attempts in a row, whatever the reason. */
  times: number;
  until: number;
  /** Of these, those of a shard that this node had claimed. */
  openings: number;
  /** Begin of the first of them. */
  since: number;
}

export interface FailedAttempt {
  startedAt: number;
  now: number;
  /** The node owned the shard and had its lease, so the fault is with the shard or with its connection. */
  isOwner: boolean;
}

export class ShardFailures {
  readonly #failures = new Map<number, Failure>();

  /** The shards whose last attempt failed. */
  get all(): number[] {
    return [...this.#failures.keys()];
  }

  note(shard: number, { isOwner, now, startedAt }: FailedAttempt): void {
    const before = this.#failures.get(shard);
    const times = (before?.times ?? 0) + 1;
    this.#failures.set(shard, {
      times,
      until: now + backoffMs(times, RETRY),
      openings: isOwner ? (before?.openings ?? 0) + 1 : 0,
      since: isOwner && before && before.openings > 0 ? before.since : startedAt,
    });
  }

  /** The shard is open. */
  forget(shard: number): void {
    this.#failures.delete(shard);
  }

  mayTry(shard: number, now: number): boolean {
    return now >= (this.#failures.get(shard)?.until ?? 0);
  }

  /** Whether another node should try, if there is one. */
  isHopeless(shard: number, now: number): boolean {
    const failure = this.#failures.get(shard);
    if (!failure || failure.openings === 0) return false;
    return failure.openings >= GIVE_UP_TIMES || now - failure.since >= GIVE_UP_MS;
  }
}
