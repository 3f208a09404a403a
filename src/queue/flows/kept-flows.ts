// Bounds the records of flows: removes those that have ended and are old, and refuses further ones of a user with too many.
import { ENDING } from '../../store/store.ts';
import { LIMITS, QUEUE_FULL_RETRY_MS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { QueueParts } from '../queue-parts.ts';
import { countKept, findOldFlows } from './flow-record.ts';

/** Pause after no record was old, ms. */
const PAUSE_MS = 600_000;
/** Records removed in one commit: each may have 100 KB. */
const REMOVED_AT_ONCE = 16;

export class KeptFlows {
  readonly #options: Pick<QueueParts, 'clock' | 'store'>;
  /** Records by user, as they were counted last, and those added since. */
  #counts = new Map<string, number>();
  #sweepAt = 0;

  constructor(options: Pick<QueueParts, 'clock' | 'store'>) {
    this.#options = options;
  }

  async count(): Promise<void> {
    this.#counts = await this.#options.store.read(countKept);
  }

  /** Call this after the commit that adds a flow. */
  added(userId: string): void {
    this.#counts.set(userId, (this.#counts.get(userId) ?? 0) + 1);
  }

  /** @throws ProblemError `queue_full` */
  refuseFull(userId: string): void {
    const most = LIMITS.keptFlowsOfUser;
    if ((this.#counts.get(userId) ?? 0) < most) return;
    const detail = `${most} flows of the user are kept, the most that may; a record is kept for ${LIMITS.flowRetentionMs / 3_600_000} hours`;
    throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
  }

  /** Removes some old records. @returns whether there may be more */
  async sweep(): Promise<boolean> {
    const { clock, store } = this.#options;
    const now = clock.now();
    if (now < this.#sweepAt) return false;
    const before = (now - LIMITS.flowRetentionMs) * 1_000;
    const old = await store.read((tx) => findOldFlows(tx, { before, limit: REMOVED_AT_ONCE }));
    if (old.length === 0) {
      this.#sweepAt = now + PAUSE_MS;
      await this.count();
      return false;
    }
    // A client may have retried one meanwhile: then its record has another kind.
    await store.write((tx) => {
      for (const each of old) tx.removeResource(each);
    }, ENDING);
    return true;
  }
}
