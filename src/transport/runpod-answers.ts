// Answers for jobs that nobody runs: those that cannot be run, and those of processes that died. Each
// is told once more until it is heard.
import { type Clock, sleep } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { FailureFacts } from './runpod-bodies.ts';
import type { LeftJobs } from './runpod-ledger.ts';
import type { RunPodPosts } from './runpod-posts.ts';

const RETRY_MS = 1_000;
/** A worker that leaves waits so long for those that are not heard yet, ms. */
const LAST_WAIT_MS = 3_000;

export interface RunPodAnswersOptions {
  posts: RunPodPosts;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

export class RunPodAnswers {
  readonly #options: RunPodAnswersOptions;
  readonly #open = new Set<Promise<void>>();

  constructor(options: RunPodAnswersOptions) {
    this.#options = options;
  }

  /** In the background; never rejects. */
  fail(jobId: string, failure: FailureFacts): void {
    this.#track(this.#tell(jobId, failure));
  }

  /** What a process left, all but the jobs in `kept`; in the background. */
  failLeft(left: LeftJobs, kept: ReadonlySet<string>, failure: FailureFacts): void {
    this.#track(this.#tellAll(left, kept, failure));
  }

  /** As `failLeft`, once. @throws LinkError `unavailable`: somebody else is to try */
  async failLeftNow(
    left: LeftJobs,
    kept: ReadonlySet<string>,
    failure: FailureFacts,
  ): Promise<void> {
    try {
      for (const jobId of left.jobIds) {
        if (!kept.has(jobId)) await this.#options.posts.fail(jobId, failure);
      }
    } catch (error) {
      left.putBack();
      throw error;
    }
    left.forget();
  }

  /** Resolves when all is heard, or there is no more time for it. */
  async end(): Promise<void> {
    await waitAtMost(Promise.all(this.#open), this.#options.clock, LAST_WAIT_MS);
  }

  #track(answer: Promise<void>): void {
    this.#open.add(answer);
    void answer.finally(() => this.#open.delete(answer));
  }

  async #tellAll(left: LeftJobs, kept: ReadonlySet<string>, failure: FailureFacts): Promise<void> {
    for (const jobId of left.jobIds) if (!kept.has(jobId)) await this.#tell(jobId, failure);
    if (this.#options.signal.aborted) left.putBack();
    else left.forget();
  }

  async #tell(jobId: string, failure: FailureFacts): Promise<void> {
    const { clock, log, posts, signal } = this.#options;
    while (!signal.aborted) {
      try {
        return await posts.fail(jobId, failure);
      } catch (error) {
        log.debug({ job: jobId, err: error }, 'the platform did not hear of a failed job');
        await sleep(clock, RETRY_MS, signal);
      }
    }
  }
}

/** Leaves no timer behind. */
export async function waitAtMost(work: Promise<unknown>, clock: Clock, ms: number): Promise<void> {
  const done = new AbortController();
  await Promise.race([work, sleep(clock, ms, done.signal)]);
  done.abort();
}
