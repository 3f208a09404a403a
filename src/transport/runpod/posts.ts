// Posts what the platform learns of a job. RunPodPosts posts the reports of one attempt until each is
// answered: the chunks of the stream one by one, then the outcome. FailurePosts posts the failure of jobs
// that nobody runs: jobs that cannot run, and jobs of dead processes.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { LinkError, type Report, type ReportReply } from '../../wire/link/worker-link.ts';
import {
  composeStreamPost,
  describeFailure,
  encodeFailure,
  encodeOutput,
  encodeProgress,
  type FailureFacts,
  type ReporterFacts,
  sliceChunks,
} from './bodies.ts';
import {
  chooseRetryMs,
  describeAnswer,
  isSuccess,
  isTransientAnswer,
  type RunPodAddresses,
  type RunPodAnswer,
  type RunPodCaller,
  toPassingError,
} from './caller.ts';
import type { AbandonedJobs, HeldJob } from './jobs.ts';

/** Rejections in a row that count as final: an intermediary may be at fault for fewer. */
const REFUSALS = 3;
const GONE: readonly number[] = [404, 409, 410];

/** How long an exiting worker waits for unanswered posts, ms. */
const LAST_WAIT_MS = 3_000;

interface RunPodPostsOptions {
  addresses: RunPodAddresses;
  caller: RunPodCaller;
  facts: ReporterFacts;
  joinsText: boolean;
  log: Log;
}

type PostResult = 'taken' | 'gone';
type OfKind<Kind extends Report['kind']> = Extract<Report, { kind: Kind }>;

export class RunPodPosts {
  readonly #options: RunPodPostsOptions;

  constructor(options: RunPodPostsOptions) {
    this.#options = options;
  }

  /** @throws LinkError `unavailable`: a repeated report continues where this one stopped */
  async chunks(held: HeldJob, { body, first, sizes }: OfKind<'chunks'>): Promise<ReportReply> {
    const chunks = sliceChunks(sizes, body);
    const { joinsText } = this.#options;
    for (;;) {
      if (held.isStopped) return { answer: 'superseded' };
      const at = held.postedOfReport;
      const post = composeStreamPost(chunks, { at, joinsText });
      if (!post) break;
      await this.#streamOne(held, post.body);
      held.streamed.add(first + at, chunks.slice(at, at + post.count));
      held.postedOfReport += post.count;
      held.posted += post.count;
    }
    held.postedOfReport = 0;
    return { answer: 'applied' };
  }

  /** A later value replaces it, so it is posted only once. */
  async progress({ lease: { jobId } }: HeldJob, { body }: OfKind<'progress'>): Promise<void> {
    const { addresses, caller, log } = this.#options;
    const url = addresses.done(jobId, [['isStream', 'false']]);
    try {
      const answer = await caller.post(url, jobId, encodeProgress(body));
      if (isSuccess(answer)) return;
      log.debug({ job: jobId, status: answer.status }, 'progress report failed');
    } catch (error) {
      log.debug({ job: jobId, err: error }, 'progress report failed');
    }
  }

  /** @throws LinkError `unavailable`; `invalid` if the platform rejects the result */
  async outcome(held: HeldJob, report: OfKind<'outcome'>): Promise<ReportReply> {
    const { jobId } = held.lease;
    const recycle = report.recycle === true;
    const failure = describeFailure(report.outcome);
    const isStream = held.posted > 0 || isStreamed(report);
    const body = failure
      ? encodeFailure(failure, this.#options.facts, recycle)
      : encodeOutput(isStreamed(report) ? held.streamed.join() : report.body, recycle);
    const verdict = await this.#postDone(held, body, isStream);
    if (verdict === 'taken') return { answer: 'applied' };
    this.#options.log.error({ job: jobId }, 'platform no longer knows the job');
    return { answer: 'gone' };
  }

  /** Posts the failure of a job that nobody holds (any more). @throws LinkError `unavailable` */
  async fail(jobId: string, failure: FailureFacts): Promise<void> {
    const { addresses, caller, facts, log } = this.#options;
    const url = addresses.done(jobId, [['isStream', 'false']]);
    const answer = await caller.post(url, jobId, encodeFailure(failure, facts, false));
    if (isTransientAnswer(answer)) throw toPassingError('job-done', answer);
    if (isSuccess(answer)) return;
    const said = describeAnswer(answer);
    log.error({ job: jobId, said }, 'failure report refused');
  }

  async #streamOne(held: HeldJob, body: Uint8Array): Promise<void> {
    const { jobId } = held.lease;
    const { addresses, caller, log } = this.#options;
    // The protocol's own client sends this for streams too.
    const url = addresses.stream(jobId, [['isStream', 'false']]);
    if (url === undefined || held.isStreamRefused) return;
    const answer = await caller.post(url, jobId, body);
    if (this.#judge('job-stream', held, answer) === 'taken') return;
    // The output at the end contains the refused chunks too.
    held.isStreamRefused = true;
    log.warn({ job: jobId, status: answer.status }, 'stream of the job refused');
  }

  async #postDone(held: HeldJob, body: Uint8Array, isStream: boolean): Promise<PostResult> {
    const { addresses, caller } = this.#options;
    const { jobId } = held.lease;
    const url = addresses.done(jobId, [['isStream', String(isStream)]]);
    return this.#judge('job-done', held, await caller.post(url, jobId, body));
  }

  #judge(what: string, held: HeldJob, answer: RunPodAnswer): PostResult {
    if (isSuccess(answer)) {
      held.refusals = 0;
      return 'taken';
    }
    if (isTransientAnswer(answer)) throw toPassingError(what, answer);
    held.refusals += 1;
    if (held.refusals < REFUSALS) {
      throw new LinkError('unavailable', `${what}: ${describeAnswer(answer)}`);
    }
    held.refusals = 0;
    if (GONE.includes(answer.status)) return 'gone';
    throw new LinkError('invalid', `${what}: ${describeAnswer(answer)}`);
  }
}

function isStreamed({ outcome }: OfKind<'outcome'>): boolean {
  return outcome.kind === 'completed' && outcome.output === 'chunks';
}

interface FailurePostsOptions {
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
