// The jobs that a worker on RunPod holds. That platform knows no leases: they are made here, kept
// here, and a job that is given back without blame begins again here.
import { randomUUID } from 'node:crypto';
import { LIMITS } from '../../wire/job.ts';
import type { Lease, LeaseRef, ReleaseReason } from '../../wire/link/worker-link.ts';
import type { StreamedOutput } from './bodies.ts';
import type { RunPodLedger } from './ledger.ts';

/** A job that goes back so often without having run to its end is given up. */
const MAX_ATTEMPTS = 5;
const MAX_PAST = 1_000;
const NO_INPUT = new Uint8Array(0);

export interface HeldJob {
  readonly lease: Lease;
  /** The platform does not want it any more. */
  isStopped: boolean;
  /** The last report that was applied; undefined before the first. */
  seq: number | undefined;
  /** Chunks of the report under way that were posted. */
  postedOfReport: number;
  /** Chunks of the attempt that were posted. */
  posted: number;
  /** The platform does not take chunks of it. */
  isStreamRefused: boolean;
  /** Answers in a row that the report under way was refused by. */
  refusals: number;
  readonly streamed: StreamedOutput;
  /** Reports are taken one after the other. */
  turn: Promise<unknown>;
}

export interface RunPodJobsOptions {
  ledger: RunPodLedger | undefined;
  createStreamed: () => StreamedOutput;
  /** A job is to be handed out again. */
  onAgain: () => void;
}

export class RunPodJobs {
  readonly #options: RunPodJobsOptions;
  readonly #held = new Map<string, HeldJob>();
  /** Jobs that were here lately. */
  readonly #past = new Set<string>();
  /** Leases to be handed out before any of the platform's. */
  #again: HeldJob[] = [];

  constructor(options: RunPodJobsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#held.size;
  }

  get all(): HeldJob[] {
    return [...this.#held.values()];
  }

  /** Each once. */
  get jobIds(): string[] {
    return [...new Set(this.all.map(({ lease }) => lease.jobId))];
  }

  find(token: string): HeldJob | undefined {
    return this.#held.get(token);
  }

  /** Undefined if it is here already: it was delivered twice. */
  add(job: Pick<Lease, 'jobId' | 'input' | 's3Config'>): Lease | undefined {
    const { jobId } = job;
    const isHere = this.all.some((held) => held.lease.jobId === jobId && !held.isStopped);
    if (isHere) return undefined;
    this.#options.ledger?.add(jobId);
    return this.#hold(createLease({ ...job, attempt: 1, solo: false })).lease;
  }

  /** One whose outcome an earlier process left. */
  adopt({ attempt, jobId, token }: LeaseRef): void {
    if (this.#held.has(token)) return;
    this.#options.ledger?.add(jobId);
    this.#hold({ ...createLease({ jobId, attempt, input: NO_INPUT, solo: false }), token });
  }

  /** Leases of jobs that were given back, at most so many. */
  takeAgain(max: number): Lease[] {
    const isWanted = ({ isStopped }: HeldJob) => !isStopped;
    for (const held of this.#again) if (!isWanted(held)) this.remove(held);
    this.#again = this.#again.filter(isWanted);
    return this.#again.splice(0, max).map(({ lease }) => lease);
  }

  /**
   * Given back without blame: it begins anew, if nothing of it can have been seen and it was not too
   * often. False if it has to be answered for.
   */
  beginAgain(held: HeldJob, reason: ReleaseReason): boolean {
    const { attempt, input } = held.lease;
    if (reason === 'drain' || held.posted > 0 || attempt >= MAX_ATTEMPTS) return false;
    if (input === NO_INPUT) return false;
    this.#held.delete(held.lease.token);
    const solo = reason === 'suspect';
    this.#again.push(this.#hold(createLease({ ...held.lease, attempt: attempt + 1, solo })));
    this.#options.onAgain();
    return true;
  }

  /** False if it is not here, and was not lately either. */
  stop(jobId: string): boolean {
    let isKnown = this.#past.has(jobId);
    for (const held of this.all) {
      if (held.lease.jobId !== jobId) continue;
      held.isStopped = true;
      isKnown = true;
    }
    return isKnown;
  }

  remove({ lease: { jobId, token } }: HeldJob): void {
    this.#held.delete(token);
    this.#past.add(jobId);
    const [oldest] = this.#past;
    if (this.#past.size > MAX_PAST && oldest !== undefined) this.#past.delete(oldest);
    if (!this.all.some(({ lease }) => lease.jobId === jobId)) this.#options.ledger?.remove(jobId);
  }

  #hold(lease: Lease): HeldJob {
    const held: HeldJob = {
      lease,
      isStopped: false,
      seq: undefined,
      postedOfReport: 0,
      posted: 0,
      isStreamRefused: false,
      refusals: 0,
      streamed: this.#options.createStreamed(),
      turn: Promise.resolve(),
    };
    this.#held.set(lease.token, held);
    return held;
  }
}

type LeaseTerms = Pick<Lease, 'jobId' | 'attempt' | 'input' | 'solo' | 's3Config'>;

/** The platform's own time limit reaches the worker as a stop. */
function createLease(terms: LeaseTerms): Lease {
  return {
    ...terms,
    token: randomUUID(),
    executionTimeoutMs: LIMITS.executionTimeoutMs.max,
    submittedAt: Date.now(),
  };
}
