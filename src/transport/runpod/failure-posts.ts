// Posts the failure of jobs that nobody runs: jobs that cannot run, and jobs of dead processes.
// Repeats each post until it is answered.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { FailureFacts } from './bodies.ts';
import { chooseRetryMs } from './caller.ts';
import type { AbandonedJobs } from './ledger.ts';
import type { RunPodPosts } from './posts.ts';

/** How long an exiting worker waits for unanswered posts, ms. */
const LAST_WAIT_MS = 3_000;

export interface FailurePostsOptions {
  posts: RunPodPosts;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

export class FailurePosts {
  readonly #options: FailurePostsOptions;
  readonly #open = new Set<Promise<void>>();

  constructor(options: FailurePostsOptions) {
    this.#options = options;
  }

  /** Posts in the background until it is answered. */
  fail(jobId: string, failure: FailureFacts, onAccepted: () => void = () => {}): void {
    const answer = this.#post(jobId, failure, onAccepted);
    this.#open.add(answer);
    void answer.finally(() => this.#open.delete(answer));
  }

  /**
   * Posts once for all jobs that a process left, except those in `kept`. @throws LinkError
   * `unavailable`: another process must try
   */
  async failAbandonedNow(
    left: AbandonedJobs,
    kept: ReadonlySet<string>,
    failure: FailureFacts,
  ): Promise<void> {
    const jobIds = left.jobIds.filter((jobId) => !kept.has(jobId));
    try {
      await tryAll(jobIds.map((jobId) => this.#options.posts.fail(jobId, failure)));
    } catch (error) {
      left.putBack();
      throw error;
    }
    left.forget();
  }

  /** Resolves when all posts are answered, or after the time limit. */
  async end(): Promise<void> {
    await waitAtMost(Promise.all(this.#open), this.#options.clock, LAST_WAIT_MS);
  }

  async #post(jobId: string, failure: FailureFacts, onAccepted: () => void): Promise<void> {
    const { clock, log, posts, signal } = this.#options;
    for (let failures = 1; !signal.aborted; failures++) {
      try {
        await posts.fail(jobId, failure);
        return onAccepted();
      } catch (error) {
        log.debug({ job: jobId, err: error }, 'reporting a failed job failed');
        await sleep(clock, chooseRetryMs(error, failures), signal);
      }
    }
  }
}

/** Leaves no timer running. */
export async function waitAtMost(work: Promise<unknown>, clock: Clock, ms: number): Promise<void> {
  const done = new AbortController();
  await Promise.race([work, sleep(clock, ms, done.signal)]);
  done.abort();
}

/** Waits for all of them. @throws the first error */
export async function tryAll(attempts: readonly Promise<unknown>[]): Promise<void> {
  await Promise.allSettled(attempts);
  await Promise.all(attempts);
}
