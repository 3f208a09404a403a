// The jobs that a worker on RunPod holds. RunPod has no leases: this file creates and keeps them,
// and starts a released job again here.
import { randomUUID } from 'node:crypto';
import { LIMITS } from '../../wire/job/job.ts';
import type { Lease, LeaseRef, ReleaseReason } from '../../wire/link/worker-link.ts';
import type { StreamedOutput } from './bodies.ts';
import type { RunPodLedger } from './ledger.ts';

/** Attempts after which a repeatedly released job is given up. */
const MAX_ATTEMPTS = 5;
const MAX_PAST = 1_000;
const NO_INPUT = new Uint8Array(0);

export interface HeldJob {
  readonly lease: Lease;
  /** The platform has stopped the job. */
  isStopped: boolean;
  /** The last applied report; undefined before the first. */
  seq: number | undefined;
  /** Posted chunks of the current report. */
  postedOfReport: number;
  /** Posted chunks of the attempt. */
  posted: number;
  /** The platform rejects chunks of this job. */
  isStreamRefused: boolean;
  /** Rejections of the current report in a row. */
  refusals: number;
  readonly streamed: StreamedOutput;
  /** Serializes the reports of the job. */
  turn: Promise<unknown>;
}

export interface RunPodJobsOptions {
  ledger: RunPodLedger | undefined;
  createStreamed: () => StreamedOutput;
  /** A job is ready to be handed out again. */
  onRequeued: () => void;
}

export class RunPodJobs {
  readonly #options: RunPodJobsOptions;
  readonly #held = new Map<string, HeldJob>();
  /** Jobs that were here recently. */
  readonly #past = new Set<string>();
  /** Leases to hand out before any of the platform's. */
  #requeued: HeldJob[] = [];

  constructor(options: RunPodJobsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#held.size;
  }

  get all(): HeldJob[] {
    return [...this.#held.values()];
  }

  /** IDs without repeats. */
  get jobIds(): string[] {
    return [...new Set(this.all.map(({ lease }) => lease.jobId))];
  }

  find(token: string): HeldJob | undefined {
    return this.#held.get(token);
  }

  /** Undefined if the job is already here: it was delivered twice. */
  add(job: Pick<Lease, 'jobId' | 'input' | 's3Config'>): Lease | undefined {
    const { jobId } = job;
    const isHere = this.all.some((held) => held.lease.jobId === jobId && !held.isStopped);
    if (isHere) return undefined;
    this.#options.ledger?.add(jobId);
    return this.#hold(createLease({ ...job, attempt: 1, solo: false })).lease;
  }

  /** Adds a job whose outcome an earlier process left. */
  adopt({ attempt, jobId, token }: LeaseRef): void {
    if (this.#held.has(token)) return;
    this.#options.ledger?.add(jobId);
    this.#hold({ ...createLease({ jobId, attempt, input: NO_INPUT, solo: false }), token });
  }

  /** Returns up to `max` leases of released jobs. */
  takeRequeued(max: number): Lease[] {
    const isWanted = ({ isStopped }: HeldJob) => !isStopped;
    for (const held of this.#requeued) if (!isWanted(held)) this.remove(held);
    this.#requeued = this.#requeued.filter(isWanted);
    return this.#requeued.splice(0, max).map(({ lease }) => lease);
  }

  /**
   * Starts a released job again if no client can have seen output of it and the attempts are not
   * used up. Returns false if its failure must be posted.
   */
  requeue(held: HeldJob, reason: ReleaseReason): boolean {
    const { attempt, input } = held.lease;
    if (reason === 'drain' || held.posted > 0 || attempt >= MAX_ATTEMPTS) return false;
    if (input === NO_INPUT) return false;
    this.#held.delete(held.lease.token);
    const solo = reason === 'suspect';
    this.#requeued.push(this.#hold(createLease({ ...held.lease, attempt: attempt + 1, solo })));
    this.#options.onRequeued();
    return true;
  }

  /** Returns false if the job is not here and was not recently. */
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
