// The two long polls of a worker on RunPod. RunPodTakes polls for jobs and creates leases for them: one
// poll at a time, which is never given up, because it may be bringing a job. Invalid jobs of a batch fail
// one by one. StopPolls polls for jobs to stop while the link is open; the link stops them.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type Lease, LinkError, type TakeRequest } from '../../wire/link/worker-link.ts';
import { type ArrivedJob, readJobs, readStops } from './bodies.ts';
import {
  chooseRetryMs,
  isSuccess,
  isTransientAnswer,
  type RunPodAddresses,
  type RunPodAnswer,
  type RunPodCaller,
  toPassingError,
} from './caller.ts';
import type { RunPodJobs } from './jobs.ts';
import { type FailurePosts, waitAtMost } from './posts.ts';

/** Longest wait of a take in the protocol's own client, ms. */
export const TAKE_WAIT_MS = 90_000;
/** No server holds a poll this long: its connection is dead. */
const POLL_LIMIT_MS = 95_000;
/** An empty answer that arrives sooner is followed by a pause, ms; that of a poll for stops is as long. */
const EARLY_MS = 1_000;
/** First pause, doubled with each such answer. */
const FIRST_PAUSE_MS = 50;

/** Pause if the platform has no such route, ms; it may get one. */
const ABSENT_MS = 60_000;

/** How long an exiting worker waits for an open poll, ms. */
const LAST_WAIT_MS = 3_000;

interface RunPodTakesOptions {
  addresses: RunPodAddresses;
  caller: RunPodCaller;
  jobs: RunPodJobs;
  failures: FailurePosts;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

interface TakePoll {
  leases: Promise<Lease[]>;
  isOver: boolean;
  /** Jobs that were stopped before they arrived. */
  stopped: Set<string>;
}

export class RunPodTakes {
  readonly #options: RunPodTakesOptions;
  /** Open, or answered with jobs that nobody has taken yet. */
  #poll: TakePoll | undefined;
  #wake: () => void = () => {};

  constructor(options: RunPodTakesOptions) {
    this.#options = options;
  }

  async take({ max, waitMs }: TakeRequest, signal: AbortSignal): Promise<Lease[]> {
    const { clock, signal: closing } = this.#options;
    const until = clock.now() + Math.min(waitMs, TAKE_WAIT_MS);
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, EARLY_MS)) {
      const askedAt = clock.now();
      const leases = await this.#next(max);
      const now = clock.now();
      if (leases.length > 0 || signal.aborted || now >= until) return leases;
      if (now - askedAt >= EARLY_MS) pauseMs = FIRST_PAUSE_MS / 2;
      else await sleep(clock, pauseMs, AbortSignal.any([signal, closing]));
      if (signal.aborted || closing.aborted) return [];
    }
  }

  /** A job is ready to be handed out again: the waiting take returns it without the poll. */
  wake(): void {
    this.#wake();
  }

  /** The job is not here: the stop may have overtaken it. */
  stopEarly(jobId: string): void {
    if (this.#poll && !this.#poll.isOver) this.#poll.stopped.add(jobId);
  }

  /** Resolves when the open poll is answered, or after the time limit. */
  async end(): Promise<void> {
    const poll = this.#poll;
    if (!poll) return;
    await waitAtMost(
      poll.leases.catch(() => {}),
      this.#options.clock,
      LAST_WAIT_MS,
    );
  }

  async #next(max: number): Promise<Lease[]> {
    const { jobs } = this.#options;
    const again = jobs.takeRequeued(max);
    if (again.length > 0) return again;
    this.#poll ??= this.#open(max);
    const { promise: woken, resolve } = Promise.withResolvers<undefined>();
    this.#wake = () => resolve(undefined);
    try {
      const leases = await Promise.race([this.#poll.leases, woken]);
      // The poll continues for the next take.
      if (leases === undefined) return jobs.takeRequeued(max);
      this.#poll = undefined;
      return leases;
    } catch (error) {
      this.#poll = undefined;
      throw error;
    }
  }

  #open(max: number): TakePoll {
    const stopped = new Set<string>();
    const leases = this.#ask(max).then(
      (arrived) => {
        poll.isOver = true;
        return this.#accept(arrived, stopped);
      },
      (error: unknown) => {
        poll.isOver = true;
        throw error;
      },
    );
    // Nobody may be waiting at the moment; the next take gets the error.
    leases.catch(() => {});
    const poll: TakePoll = { leases, stopped, isOver: false };
    return poll;
  }

  async #ask(max: number): Promise<ArrivedJob[]> {
    const { addresses, caller, clock, jobs, signal } = this.#options;
    const url = addresses.take(max, jobs.size > 0);
    const askedAt = clock.now();
    try {
      const answer = await caller.get(url, { limitMs: POLL_LIMIT_MS, signal });
      // The platform's answer to a machine that sleeps between jobs.
      if (answer.status === 400) return [];
      if (isSuccess(answer)) return readJobs(answer.body);
      if (answer.status === 401 || answer.status === 403) {
        throw new LinkError('unauthorized', `job-take: ${answer.status}`);
      }
      throw toPassingError('job-take', answer);
    } catch (error) {
      if (clock.now() - askedAt >= POLL_LIMIT_MS && !signal.aborted) return [];
      throw error;
    }
  }

  #accept(arrived: readonly ArrivedJob[], stopped: ReadonlySet<string>): Lease[] {
    return arrived.flatMap((job) => {
      const { failures, jobs, log } = this.#options;
      const { jobId } = job;
      if (!('input' in job)) {
        log.error({ job: jobId, fault: job.fault }, 'job refused');
        const message = `the job cannot run: ${job.fault}`;
        if (jobId !== undefined) failures.fail(jobId, { code: 'input_invalid', message });
        return [];
      }
      if (stopped.has(job.jobId)) {
        log.info({ job: jobId }, 'job stopped before it arrived');
        return [];
      }
      const lease = jobs.add(job);
      if (!lease) log.warn({ job: jobId }, 'job delivered again while it runs');
      return lease ?? [];
    });
  }
}

interface StopPollsOptions {
  url: string;
  caller: RunPodCaller;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  onStop: (jobIds: readonly string[]) => void;
}

export class StopPolls {
  readonly #options: StopPollsOptions;
  #failures = 0;
  #isAbsent = false;
  /** Why stops do not arrive; undefined if they do. */
  trouble: Error | undefined;

  constructor(options: StopPollsOptions) {
    this.#options = options;
  }

  /** Ends with the signal; never rejects. */
  async run(): Promise<void> {
    const { clock, signal } = this.#options;
    while (!signal.aborted) {
      const waitMs = await this.#poll();
      if (waitMs > 0) await sleep(clock, waitMs, signal);
    }
  }

  /** @returns ms to wait before the next poll */
  async #poll(): Promise<number> {
    const { caller, clock, log, signal, url } = this.#options;
    const askedAt = clock.now();
    try {
      const answer = await caller.get(url, { limitMs: POLL_LIMIT_MS, signal });
      // 400 is the answer to a machine that sleeps between jobs, as for a take.
      const isAccepted = isSuccess(answer) || answer.status === 400;
      if (!isAccepted && (answer.status === 501 || !isTransientAnswer(answer)))
        return this.#noteAbsence();
      if (!isAccepted) throw toPassingError('job-stop', answer);
      this.#failures = 0;
      this.#isAbsent = false;
      this.trouble = undefined;
      return this.#act(answer) || clock.now() - askedAt >= EARLY_MS ? 0 : EARLY_MS;
    } catch (error) {
      if (signal.aborted) return 0;
      // A poll that reached its time limit is no fault.
      if (clock.now() - askedAt >= POLL_LIMIT_MS) return 0;
      this.#failures += 1;
      this.trouble = error instanceof Error ? error : new Error(String(error));
      log[this.#failures === 1 ? 'warn' : 'debug'](
        { err: error },
        'polling for stops failed, retrying',
      );
      return chooseRetryMs(error, this.#failures);
    }
  }

  /** Returns false if the answer names no job. */
  #act({ body }: RunPodAnswer): boolean {
    const jobIds = readStops(body);
    if (jobIds.length > 0) this.#options.onStop(jobIds);
    return jobIds.length > 0;
  }

  #noteAbsence(): number {
    if (!this.#isAbsent) {
      this.#options.log.warn('platform has no channel for stops, jobs cannot be cancelled');
    }
    this.#isAbsent = true;
    this.trouble = undefined;
    return ABSENT_MS;
  }
}
