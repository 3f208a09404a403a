// The operations of clients on existing jobs: read, wait for, cancel, retry, list, purge.
import type { Clock } from '../base/clock.ts';
import type { JobKey, Store, StoredJob } from '../store/store.ts';
import { isTerminal, type JobStatus, type JobSummary } from '../wire/job.ts';
import { ProblemError } from '../wire/problem.ts';
import type { Changes } from './changes.ts';
import { type EndpointRemoval, readEndpoint } from './endpoint-removal.ts';
import type { JobEvent } from './lifecycle.ts';
import { measureOutput, readOutput } from './outputs.ts';
import { type ComposeRecord, composeRecord, toSummary } from './records.ts';
import type { QueueSettings } from './settings.ts';
import type { Signals } from './signals.ts';
import type { JobRef } from './submissions.ts';

/** Jobs cancelled in one operation of a purge. */
const PURGE_BATCH = 200;

/** For the refusal of what a client asked for. */
const DONE = { cancel: 'cancelled', retry: 'retried', set_ttl: 'given another ttl' } as const;

type Shown = [job: StoredJob, now: number, output: Uint8Array | undefined];

/** A job as it was read, to be shown in one of the record formats. */
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
  /** Where to go on, in bytes from the start. */
  next: number;
  /** Lines that were left out, because there were too many. */
  dropped: number;
  status: JobStatus;
}

export interface JobPage {
  jobs: JobSummary[];
  /** To be given as `before` for the next page; undefined after the last. */
  next: number | undefined;
}

export interface JobsOptions {
  store: Store;
  clock: Clock;
  signals: Signals;
  changes: Changes;
  removal: EndpointRemoval;
  settings: QueueSettings;
  closing: AbortSignal;
}

/** Every method that names a job throws ProblemError `not_found` when it is not there (any more). */
export class Jobs {
  readonly #options: JobsOptions;

  constructor(options: JobsOptions) {
    this.#options = options;
  }

  async record(key: JobKey): Promise<ReadRecord> {
    const { clock, removal, settings, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const found = await store.read(function* (tx) {
      const job = yield* tx.job(key);
      return job && { job, output: yield* readOutput(tx, job, settings.maxOutputBytes) };
    });
    const { job, output } = found ?? raiseNoJob(key);
    return new ReadRecord(job, clock.now(), output);
  }

  /** About how large the record is, without reading the output. */
  async recordBytes(key: JobKey): Promise<number> {
    const { settings, store } = this.#options;
    const bytes = await store.read(function* (tx) {
      const job = yield* tx.job(key);
      return job && (yield* measureOutput(tx, job, settings.maxOutputBytes));
    });
    return bytes ?? raiseNoJob(key);
  }

  /** Waits until the job has ended, at most `waitMs`, and gives its record as it is then. */
  async waitForEnd(key: JobKey, waitMs: number, signal: AbortSignal): Promise<ReadRecord> {
    await this.untilEnd(key, waitMs, signal);
    return this.record(key);
  }

  /** Resolves when the job has ended, when the signal aborts, and after `waitMs` in any case. */
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

  /** @throws ProblemError `conflict` when it has ended otherwise */
  cancel(key: JobKey): Promise<JobRef> {
    return this.#put(key, { type: 'cancel' });
  }

  /** @throws ProblemError `conflict` unless it is FAILED or TIMED_OUT */
  retry(key: JobKey): Promise<JobRef> {
    return this.#put(key, { type: 'retry' });
  }

  /** Counts from now and replaces what was; on an ended job it replaces the retention. */
  async setTtl(key: JobKey, ttlMs: number): Promise<void> {
    await this.#put(key, { type: 'set_ttl', ttlMs });
  }

  /** Cancels all that waits, delayed jobs too. @returns how many */
  async purge(endpointId: string): Promise<number> {
    let removed = 0;
    for (;;) {
      const count = await this.#options.changes.commit(function* (tx, step) {
        yield* readEndpoint(tx, endpointId);
        const waiting = yield* tx.queuedJobs(endpointId, PURGE_BATCH);
        for (const job of waiting) yield* step(job, { type: 'cancel' });
        return waiting.length;
      });
      removed += count;
      if (count < PURGE_BATCH) return removed;
    }
  }

  /** Newest first. */
  async list(listing: {
    endpointId: string;
    status: JobStatus | undefined;
    before: number | undefined;
    limit: number;
  }): Promise<JobPage> {
    const { clock, store } = this.#options;
    const jobs = await store.read(function* (tx) {
      yield* readEndpoint(tx, listing.endpointId);
      return yield* tx.jobs({ ...listing, limit: listing.limit + 1 });
    });
    const page = jobs.slice(0, listing.limit);
    const next = jobs.length > page.length ? page.at(-1)?.position : undefined;
    return { jobs: page.map((job) => toSummary(job, clock.now())), next };
  }

  /** What the handler logged, over all attempts, from byte `from` on. */
  async log(key: JobKey, from: number): Promise<JobLog> {
    const { removal, settings, store } = this.#options;
    removal.refuseGone(key.endpointId);
    const found = await store.read(function* (tx) {
      const job = yield* tx.job(key);
      return job && { job, lines: yield* tx.log({ ...key, from, maxBytes: settings.maxLogBytes }) };
    });
    const { job, lines } = found ?? raiseNoJob(key);
    return { lines, next: from + lines.length, dropped: job.logDropped, status: job.status };
  }

  async #put(key: JobKey, event: Extract<JobEvent, { type: keyof typeof DONE }>): Promise<JobRef> {
    const { changes, removal } = this.#options;
    removal.refuseGone(key.endpointId);
    const decision = (await changes.commitOne(key, event)) ?? raiseNoJob(key);
    if ('refused' in decision) {
      throw new ProblemError(
        'conflict',
        `job ${key.id} cannot be ${DONE[event.type]}: ${decision.refused}`,
      );
    }
    return { id: key.id, status: decision.job.status };
  }
}

function raiseNoJob({ id }: JobKey): never {
  throw new ProblemError('not_found', `job ${id} not found or expired`);
}
