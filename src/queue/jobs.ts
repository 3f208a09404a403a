// The operations of clients on existing jobs: read, wait for, cancel, retry, list, purge.
import type { Waiter } from '../base/waiters.ts';
import {
  findOutgrownGpu,
  type JobKey,
  type Reader,
  type StoredJob,
  type Transaction,
} from '../store/store.ts';
import { isTerminal, type JobStatus } from '../wire/job/job.ts';
import type { JobDetailsHead, JobSummary, WaitReason } from '../wire/job/job-records.ts';
import { ProblemError } from '../wire/problem.ts';
import type { StepOn } from './changes.ts';
import { readEndpoint } from './endpoint-removal.ts';
import { retryJob } from './flows/parents.ts';
import { NO_REMOTE } from './handover/remote-jobs.ts';
import { type ChangePage, type ChangeRequest, changeJobs } from './job-changes.ts';
import {
  describePreviews,
  type FailedListing,
  type FailedPage,
  isFiltered,
  type JobListing,
  listFailed,
  searchJobs,
} from './job-lists.ts';
import { listLaterTypes } from './leases/presence.ts';
import type { JobEvent } from './lifecycle/lifecycle.ts';
import { measureOutput, type OutputBounds, readOutput } from './payloads/outputs.ts';
import type { QueueParts } from './queue-parts.ts';
import {
  addMembers,
  type ComposeRecord,
  composeRecord,
  describeDetails,
  hasOutput,
  toSummary,
} from './records.ts';
import type { JobRef } from './submissions.ts';
import type { WaitFacts } from './waits.ts';

/** Past participles for the error messages. */
const DONE = { cancel: 'cancelled', retry: 'retried', set_ttl: 'given another ttl' } as const;

type Shown = [
  job: StoredJob,
  now: number,
  output: Uint8Array | undefined,
  waitReason: WaitReason | undefined,
];

/** A snapshot of a job; formats it for the clients of one API. */
export class ReadRecord implements JobRef {
  readonly id: string;
  readonly status: JobStatus;
  readonly #shown: Shown;

  constructor(...shown: Shown) {
    const [job] = shown;
    this.id = job.id;
    this.status = job.status;
    this.#shown = shown;
  }

  /** JSON bytes. */
  get body(): Buffer {
    return Buffer.concat(this.pieces);
  }

  /** JSON bytes, in pieces. */
  get pieces(): Uint8Array[] {
    return composeRecord(...this.#shown);
  }

  /** JSON bytes, in pieces, in another format. */
  compose(format: ComposeRecord): Uint8Array[] {
    return format(...this.#shown);
  }
}

export interface JobLog {
  /** NDJSON. */
  lines: Uint8Array;
  /** Where the next read starts, bytes from the start. */
  next: number;
  /** Number of lines that were dropped because the log was too large. */
  dropped: number;
  status: JobStatus;
}

export interface JobPage {
  jobs: JobSummary[];
  /** The `before` of the next page; undefined after the last page. */
  next: number | undefined;
}

type JobsOptions = Pick<
  QueueParts,
  | 'changes'
  | 'clock'
  | 'closing'
  | 'outputs'
  | 'payloads'
  | 'positions'
  | 'remoteJobs'
  | 'removal'
  | 'settings'
  | 'signals'
  | 'store'
  | 'waits'
>;

/**
 * Every method with a job ID throws ProblemError `not_found` if the job does not exist (any more).
 */
export class Jobs {
  readonly #options: JobsOptions;
  /** Ends when the last requested change of many jobs of the endpoint ends. */
  readonly #turns = new Map<string, Promise<void>>();

  constructor(options: JobsOptions) {
    this.#options = options;
  }

  async record(key: JobKey): Promise<ReadRecord> {
    const { clock, outputs, payloads, removal, settings, store, waits } = this.#options;
    removal.refuseGone(key.endpointId);
    const bounds = { maxBytes: settings.maxOutputBytes, maxAtOnce: payloads.partBytes };
    const kept = outputs.takeSmall(key);
    const found = await store.read((tx) => readShown(tx, key, { ...bounds, kept }));
    const { facts, job, output } = found ?? raiseNoJob(key);
    const waitReason = facts && (await waits.describe(job, facts));
    if (typeof output !== 'number') return new ReadRecord(job, clock.now(), output, waitReason);
    const large =
      outputs.take(job) ?? (await payloads.read('output', key, output)) ?? raiseNoJob(key);
    return new ReadRecord(job, clock.now(), large, waitReason);
  }

  /** Returns its times, settings and input as JSON, in pieces. */
  async details(key: JobKey): Promise<Uint8Array[]> {
    const { clock, payloads, removal, store, waits } = this.#options;
    removal.refuseGone(key.endpointId);
    const found = await store.read((tx) => {
      const outlined = readOutlined(tx, key);
      const input = tx.payloadUpTo('input', key, payloads.partBytes);
      return outlined && { ...outlined, input };
    });
    const { facts, input, job } = found ?? raiseNoJob(key);
    const waitReason = facts && (await waits.describe(job, facts));
    const whole = typeof input === 'number' ? await payloads.read('input', key, input) : input;
    const head = describeDetails(job, clock.now(), waitReason);
    return addMembers({ ...head }, { input: whole ?? raiseNoJob(key) });
  }

  /** The same without its input, and why it waits. */
  async outline(key: JobKey): Promise<JobDetailsHead> {
    const { clock, removal, store, waits } = this.#options;
    removal.refuseGone(key.endpointId);
    const found = await store.read((tx) => readOutlined(tx, key));
    const { facts, job } = found ?? raiseNoJob(key);
    const waitReason = facts && (await waits.describe(job, facts));
    return describeDetails(job, clock.now(), waitReason);
  }

  /** Is woken by each change of the job's row and by its removal. Open it before the job is read. */
  watch(key: JobKey): Waiter {
    return this.#options.signals.jobChanged(key);
  }

  /** Size of the input, without reading it. */
  async inputBytes(key: JobKey): Promise<number> {
    const input = await this.#options.store.read((tx) => tx.payloadUpTo('input', key, 0));
    return typeof input === 'number' ? input : (input?.length ?? raiseNoJob(key));
  }

  /** Estimates the size of the record without reading the output. */
  async recordBytes(key: JobKey): Promise<number> {
    const { outputs, settings, store } = this.#options;
    const kept = outputs.smallBytes(key);
    if (kept !== undefined) return kept;
    const bytes = await store.read((tx) => measureRecord(tx, key, settings.maxOutputBytes));
    return bytes ?? raiseNoJob(key);
  }

  /** Waits up to `waitMs` for the end of the job, then returns its current record. */
  async waitForEnd(key: JobKey, waitMs: number, signal: AbortSignal): Promise<ReadRecord> {
    await this.untilEnd(key, waitMs, signal);
    return this.record(key);
  }

  /** Resolves when the job has ended, the signal aborts, or `waitMs` is over. */
  async untilEnd(key: JobKey, waitMs: number, signal: AbortSignal): Promise<void> {
    const { clock, closing, removal, signals, store } = this.#options;
    const until = clock.now() + waitMs;
    const ended = AbortSignal.any([signal, closing]);
    for (;;) {
      const waiter = signals.jobEnded(key);
      try {
        removal.refuseGone(key.endpointId);
        const job = (await store.read((tx) => tx.job(key))) ?? raiseNoJob(key);
        const leftMs = until - clock.now();
        if (isTerminal(job.status) || leftMs <= 0 || ended.aborted) return;
        await waiter.wait(leftMs, ended);
        if (signal.aborted) return;
      } finally {
        waiter.close();
      }
    }
  }

  /** @throws ProblemError `conflict` if the job has ended with another status */
  cancel(key: JobKey): Promise<JobRef> {
    return this.#put(key, { type: 'cancel' });
  }

  /**
   * `isRepeated`: an earlier call may have had its effect; then a job in any other status is only described.
   * @throws ProblemError `conflict` unless it is FAILED or TIMED_OUT
   */
  async retry(key: JobKey, { isRepeated = false }: { isRepeated?: boolean } = {}): Promise<JobRef> {
    try {
      return await this.#put(key, { type: 'retry' });
    } catch (error) {
      const isRefused = error instanceof ProblemError && error.code === 'conflict';
      if (!isRepeated || !isRefused) throw error;
      const job = await this.#options.store.read((tx) => tx.job(key));
      return { id: key.id, status: (job ?? raiseNoJob(key)).status };
    }
  }

  /** Replaces the time to live, or the retention of an ended job, from now or from when a delayed job is due. */
  async setTtl(key: JobKey, ttlMs: number): Promise<void> {
    await this.#put(key, { type: 'set_ttl', ttlMs });
  }

  /**
   * Cancels all waiting jobs, delayed ones included, but none that is submitted after the call. @returns
   * their number, without the jobs that an earlier call cancels
   */
  purge(endpointId: string): Promise<number> {
    const upTo = this.#options.positions.next();
    return this.#inTurn(endpointId, () => this.#cancelQueued(endpointId, upTo));
  }

  /** Cancels, retries or deletes some of the jobs that match; another call goes on. */
  changeMany(request: ChangeRequest): Promise<ChangePage> {
    const act = () => changeJobs(this.#options, request);
    return request.dryRun ? act() : this.#inTurn(request.endpointId, act);
  }

  /** One after the other: only one slice of an endpoint waits for the slices of others. */
  #inTurn<T>(endpointId: string, act: () => Promise<T>): Promise<T> {
    const earlier = this.#turns.get(endpointId) ?? Promise.resolve();
    const done = earlier.then(act);
    const ended: Promise<void> = done
      .then(
        () => {},
        () => {},
      )
      .then(() => {
        if (this.#turns.get(endpointId) === ended) this.#turns.delete(endpointId);
      });
    this.#turns.set(endpointId, ended);
    return done;
  }

  async #cancelQueued(endpointId: string, upTo: number): Promise<number> {
    const { changes } = this.#options;
    const findWaiting = (tx: Transaction, limit: number): StoredJob[] => {
      readEndpoint(tx, endpointId);
      return tx.queuedJobs(endpointId, limit, upTo);
    };
    let cancelled = 0;
    for (;;) {
      const { changed, isLast } = await changes.commitSlice(findWaiting, { type: 'cancel' });
      cancelled += changed;
      if (isLast) return cancelled;
    }
  }

  /** Newest first. A page of a filtered list may have few jobs, or none, and yet a next one. */
  async list(listing: JobListing): Promise<JobPage> {
    const { store } = this.#options;
    if (isFiltered(listing)) {
      const { jobs, next } = await searchJobs(store, listing);
      return { jobs: await this.#summarize(jobs, listing), next };
    }
    const jobs = await store.read((tx) => {
      readEndpoint(tx, listing.endpointId);
      return tx.jobs({ ...listing, limit: listing.limit + 1 });
    });
    const page = jobs.slice(0, listing.limit);
    const next = jobs.length > page.length ? page.at(-1)?.position : undefined;
    return { jobs: await this.#summarize(page, listing), next };
  }

  async #summarize(jobs: readonly StoredJob[], { hasPreviews }: JobListing): Promise<JobSummary[]> {
    const { clock, store } = this.#options;
    const previews = hasPreviews ? await describePreviews(store, jobs) : [];
    return jobs.map((job, index) => ({ ...toSummary(job, clock.now()), ...previews[index] }));
  }

  /** FAILED and TIMED_OUT jobs of several endpoints, the newest first. */
  listFailed(endpointIds: readonly string[], listing: FailedListing): Promise<FailedPage> {
    const { clock, store } = this.#options;
    return listFailed(store, endpointIds, { listing, now: clock.now() });
  }

  /** Returns the handler's log of all attempts from byte `from` on. */
  async log(key: JobKey, from: number): Promise<JobLog> {
    const { removal, settings, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const found = await store.read((tx) => {
      const job = tx.job(key);
      return job && { job, lines: tx.log({ ...key, from, maxBytes: settings.maxLogBytes }) };
    });
    const { job, lines } = found ?? raiseNoJob(key);
    return { lines, next: from + lines.length, dropped: job.logDropped, status: job.status };
  }

  async #put(key: JobKey, event: Extract<JobEvent, { type: keyof typeof DONE }>): Promise<JobRef> {
    const { changes, removal, remoteJobs, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const isRetry = event.type === 'retry';
    const read = isRetry ? await store.read((tx) => tx.job(key)) : undefined;
    const remote = read?.linked ? await remoteJobs.ofJobs([read]) : NO_REMOTE;
    const put = (tx: Transaction, step: StepOn) => {
      const job = tx.job(key);
      if (!job) return undefined;
      return isRetry ? retryJob(tx, step, { job, remote }) : step(job, event);
    };
    const decision = (await changes.commit(put)) ?? raiseNoJob(key);
    if ('refused' in decision) {
      throw new ProblemError(
        'conflict',
        `job ${key.id} cannot be ${DONE[event.type]}: ${decision.refused}`,
      );
    }
    return { id: key.id, status: decision.job.status };
  }
}

/** What a record shows. */
interface ShownJob {
  job: StoredJob;
  /** Of a queued job. */
  facts: Pick<WaitFacts, 'group' | 'laterGpus'> | undefined;
  output: Uint8Array | number | undefined;
}

function readOutlined(tx: Reader, key: JobKey): Omit<ShownJob, 'output'> | undefined {
  const job = tx.job(key);
  if (!job) return undefined;
  return { job, facts: job.status === 'IN_QUEUE' ? readWait(tx, job) : undefined };
}

function readShown(
  tx: Reader,
  key: JobKey,
  { kept, ...bounds }: OutputBounds & { kept: Uint8Array | undefined },
): ShownJob | undefined {
  const found = readOutlined(tx, key);
  if (!found) return undefined;
  const { job } = found;
  const isKept = kept && hasOutput(job) && job.outputKind === 'value';
  return { ...found, output: isKept ? kept : readOutput(tx, job, bounds) };
}

/** What limits a queued job: the limits of its endpoint, and the use of that of its group. */
export function readWait(
  tx: Reader,
  job: StoredJob,
): Pick<WaitFacts, 'group' | 'laterGpus' | 'rates'> {
  const { endpointId, group } = job;
  const outgrown = findOutgrownGpu(job);
  const endpoint = tx.endpoint(endpointId);
  const types = listLaterTypes(endpoint?.deployment ?? null, outgrown ?? null);
  const limit = endpoint?.settings.groupConcurrency;
  return {
    group:
      group === null || limit === undefined || limit === null
        ? undefined
        : { limit, leases: tx.countLeases(endpointId, group) },
    ...(outgrown !== undefined && types.length > 0 && { laterGpus: { outgrown, types } }),
    rates: endpoint?.settings,
  };
}

function measureRecord(tx: Reader, key: JobKey, maxBytes: number): number | undefined {
  const job = tx.job(key);
  return job && measureOutput(tx, job, maxBytes);
}

function raiseNoJob({ id }: JobKey): never {
  throw new ProblemError('not_found', `job ${id} not found or expired`);
}
