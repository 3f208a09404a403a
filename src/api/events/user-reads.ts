// Bounds what the topics of one user cost: the bytes that are read in a second, and those that are kept.
import { type Clock, sleep } from '../../base/clock.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS } from '../../wire/routes/event-topics.ts';

/** Assumed size of a topic before its first read. */
const FIRST_BYTES = 262_144;
const RETRY_MS = 5_000;

export class UserReads {
  readonly #clock: Clock;
  /** Bytes that may be read at once; below 0 while reads wait. */
  #free: number = EVENT_LIMITS.userBurstBytes;
  #freeAt: number;
  #kept = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#freeAt = clock.now();
  }

  open(): TopicBytes {
    return new TopicBytes(this);
  }

  /** As if nothing had been read. */
  get isRested(): boolean {
    this.#refill();
    return this.#free === EVENT_LIMITS.userBurstBytes;
  }

  /** Reserves bytes; resolves when the user may read them. An abort gives them back. */
  async wait(bytes: number, ended: AbortSignal): Promise<void> {
    this.#refill();
    this.#free -= bytes;
    if (this.#free >= 0) return;
    await sleep(this.#clock, (-this.#free / EVENT_LIMITS.userBytesPerSecond) * 1_000, ended);
    if (ended.aborted) this.#free += bytes;
  }

  #refill(): void {
    const { userBurstBytes, userBytesPerSecond } = EVENT_LIMITS;
    const now = this.#clock.now();
    const more = ((now - this.#freeAt) / 1_000) * userBytesPerSecond;
    this.#free = Math.min(userBurstBytes, this.#free + more);
    this.#freeAt = now;
  }

  /** Corrects a reservation by the difference to the bytes that were read. */
  spend(bytes: number): void {
    this.#free -= bytes;
  }

  /** @throws ProblemError `rate_limited` */
  keep(bytes: number): void {
    if (bytes > 0 && this.#kept + bytes > EVENT_LIMITS.userBytes) {
      const detail = `Your event streams already hold ${this.#kept} bytes of different topics, at most ${EVENT_LIMITS.userBytes} are held; close some.`;
      throw new ProblemError('rate_limited', detail, { retryAfterMs: RETRY_MS });
    }
    this.#kept += bytes;
  }
}

/** Counts the bytes of one topic for its user. */
export class TopicBytes {
  readonly #reads: UserReads;
  #expected = FIRST_BYTES;
  #kept = 0;

  constructor(reads: UserReads) {
    this.#reads = reads;
  }

  wait(ended: AbortSignal): Promise<void> {
    return this.#reads.wait(this.#expected, ended);
  }

  /** @throws ProblemError `rate_limited` if the user's topics would keep too much */
  note(bytes: number): void {
    this.#reads.spend(bytes - this.#expected);
    this.#expected = bytes;
    this.#reads.keep(bytes - this.#kept);
    this.#kept = bytes;
  }

  release(): void {
    this.#reads.keep(-this.#kept);
    this.#kept = 0;
  }
}
