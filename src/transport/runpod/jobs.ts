// The jobs that a worker on RunPod holds. RunPod has no leases: RunPodJobs creates and keeps them,
// and starts a released job again here. RunPod knows only the machine, so RunPodLedger records the jobs of
// each process in a file: when the process dies, the next one must post the failure of its jobs.
import { randomUUID } from 'node:crypto';
import {
  appendFileSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { makeFolder } from '../../base/make-folder.ts';
import { LIMITS } from '../../wire/job/job.ts';
import type {
  Lease,
  LeaseRef,
  ReleaseReason,
  WorkerIdentity,
} from '../../wire/link/worker-link.ts';
import type { StreamedOutput } from './bodies.ts';

/** Attempts after which a repeatedly released job is given up. */
const MAX_ATTEMPTS = 5;
const MAX_PAST = 1_000;
const NO_INPUT = new Uint8Array(0);

const SUFFIX = '.jobs';

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
  lastReport: Promise<unknown>;
}

interface RunPodJobsOptions {
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
      lastReport: Promise.resolve(),
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

export interface LedgerOptions {
  /** Created if it is missing; other workers of the machine may share it. */
  folder: string;
  log: Log;
}

/**
 * Job IDs that a process left, with their file, which is claimed so that no other process uses it.
 */
export interface AbandonedJobs {
  jobIds: string[];
  /** The failure of all of them is posted. */
  forget(): void;
  /** Not all are posted: another process must try. */
  putBack(): void;
}

/** If the disk fails, only this record is lost. */
export class RunPodLedger {
  readonly #options: LedgerOptions;
  #path: string | undefined;
  /** The last write may have stopped halfway. */
  #isTorn = false;
  readonly #jobIds = new Set<string>();

  constructor(options: LedgerOptions) {
    this.#options = options;
  }

  /** Creates the file of this process. */
  open(identity: WorkerIdentity): void {
    const { folder } = this.#options;
    this.#try(() => {
      makeFolder(folder, 0o700);
      const path = join(folder, nameFile(identity));
      writeFileSync(path, '', { mode: 0o600 });
      this.#path = path;
    });
  }

  add(jobId: string): void {
    this.#jobIds.add(jobId);
    this.#write(`+${JSON.stringify(jobId)}\n`);
  }

  remove(jobId: string): void {
    if (!this.#jobIds.delete(jobId)) return;
    const path = this.#path;
    if (this.#jobIds.size > 0) this.#write(`-${JSON.stringify(jobId)}\n`);
    else if (path !== undefined) this.#try(() => writeFileSync(path, ''));
  }

  /** The process exits and has posted the end of all its jobs. */
  close(): void {
    const path = this.#path;
    this.#path = undefined;
    if (path !== undefined && this.#jobIds.size === 0) this.#try(() => rmSync(path));
  }

  /** Claims what earlier processes of this worker have left. */
  takeOver({ incarnation, workerId }: WorkerIdentity): AbandonedJobs[] {
    const { folder } = this.#options;
    const names = this.#try(() => readdirSync(folder)) ?? [];
    return names.flatMap((name) => {
      const other = readName(name);
      const isOlder = other?.workerId === workerId && other.incarnation < incarnation;
      return isOlder ? (this.#claim(join(folder, name)) ?? []) : [];
    });
  }

  /** Undefined if another process was faster. */
  #claim(path: string): AbandonedJobs | undefined {
    const claimed = `${path}.taken`;
    try {
      renameSync(path, claimed);
      return {
        jobIds: readJobIds(readFileSync(claimed, 'utf8')),
        forget: () => this.#try(() => rmSync(claimed)),
        putBack: () => this.#try(() => renameSync(claimed, path)),
      };
    } catch {
      return undefined;
    }
  }

  #write(line: string): void {
    const path = this.#path;
    if (path === undefined) return;
    // A full disk may have cut off the previous line; it must not damage this one.
    const text = this.#isTorn ? `\n${line}` : line;
    this.#isTorn = true;
    this.#try(() => {
      appendFileSync(path, text);
      this.#isTorn = false;
    });
  }

  #try<T>(act: () => T): T | undefined {
    try {
      return act();
    } catch (error) {
      const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
      const level = isMissing ? 'debug' : 'warn';
      this.#options.log[level]({ err: error }, 'writing the list of running jobs failed');
      return undefined;
    }
  }
}

function nameFile({ incarnation, workerId }: WorkerIdentity): string {
  return `${workerId}.${incarnation}${SUFFIX}`;
}

function readName(name: string): WorkerIdentity | undefined {
  const [, workerId, incarnation] = /^(.+)\.(\d+)\.jobs$/.exec(name) ?? [];
  if (workerId === undefined) return undefined;
  return { workerId, incarnation: Number(incarnation) };
}

/** A line may have been written halfway, when the process died or its disk was full: others still count. */
function readJobIds(text: string): string[] {
  const jobIds = new Set<string>();
  for (const line of text.split('\n').slice(0, -1)) {
    const jobId = readJobId(line.slice(1));
    if (jobId === undefined) continue;
    if (line.startsWith('+')) jobIds.add(jobId);
    else jobIds.delete(jobId);
  }
  return [...jobIds];
}

function readJobId(json: string): string | undefined {
  try {
    const jobId: unknown = JSON.parse(json);
    return typeof jobId === 'string' ? jobId : undefined;
  } catch {
    return undefined;
  }
}
