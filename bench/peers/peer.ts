// What each peer offers to the benchmark: the same jobs, submitted and finished in the same way.
import type { Service } from './services.ts';

export interface PeerQueue {
  /** Submits the jobs from several clients at a time; resolves when the peer has accepted all of them. */
  submitMany(load: { clients: number; jobs: number; input: object }): Promise<void>;
  /** Waits until this number of jobs has completed since the start. */
  waitForCompleted(count: number): Promise<void>;
  /** Submits jobs one after the other and waits for each output. @returns the time of each, ms */
  timeRoundTrips(count: number, input: object): Promise<number[]>;
  close(): Promise<void>;
}

export interface Peer {
  name: string;
  /** Settings that differ from the peer's defaults, for the table. */
  settings: string;
  startService(): Promise<Service>;
  /** @param port of the service, on loopback */
  open(port: number): Promise<PeerQueue>;
}

/** Concurrent jobs of a worker, as of Millrace's in this benchmark. */
export const SLOTS = 64;

/** Calls `submit` `jobs` times, from `clients` callers that each wait for their last call. */
export async function submitFrom(
  { clients, jobs }: { clients: number; jobs: number },
  submit: () => Promise<unknown>,
): Promise<void> {
  let left = jobs;
  const client = async () => {
    while (left-- > 0) await submit();
  };
  await Promise.all(Array.from({ length: clients }, client));
}

/** Calls `run` `count` times, one after the other. @returns the time of each, ms */
export async function timeEachRun(count: number, run: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let n = 0; n < count; n++) {
    const startedAt = performance.now();
    await run();
    times.push(performance.now() - startedAt);
  }
  return times;
}

/** Counts completed jobs, and lets callers wait for a count or for the end of one job. */
export class Completions {
  #count = 0;
  readonly #counts = new Map<number, () => void>();
  readonly #jobs = new Map<string, () => void>();

  add(id: string): void {
    this.#count += 1;
    this.#counts.get(this.#count)?.();
    this.#jobs.get(id)?.();
  }

  /** Resolves when this number of jobs has completed. */
  reach(count: number): Promise<void> {
    if (this.#count >= count) return Promise.resolve();
    return new Promise((resolve) => this.#counts.set(count, resolve));
  }

  /** Call it before the job is submitted. */
  async ended(id: string): Promise<void> {
    await new Promise<void>((resolve) => this.#jobs.set(id, resolve));
    this.#jobs.delete(id);
  }
}
