// Provides a queue, a worker and a client for benchmarks: over HTTP, over gRPC, or without a
// carrier. Clients use HTTP if a platform process exists.
import { DirectStand } from './direct.ts';
import { sendLoad, timeEach } from './load.ts';
import { callPlatform, readPage, waitForCompleted } from './platform-calls.ts';
import { type Platform, spawnWorker, startPlatform, stopProcess } from './processes.ts';

/** Carrier between worker and queue. `direct`: none, see direct.ts. */
export type Carrier = 'HTTP' | 'gRPC' | 'direct';

export const CARRIERS: readonly Carrier[] = ['HTTP', 'gRPC', 'direct'];

export const SLOTS = 64;

export interface Stand {
  /** Submits with `run` from several clients at a time; resolves when all jobs are accepted. */
  submitMany(load: { clients: number; jobs: number; input: object }): Promise<void>;
  /** Runs jobs with `runsync`, one after the other. @returns the time of each, ms */
  timeRoundTrips(count: number, input: object): Promise<number[]>;
  /** @returns the output */
  runsync(input: object): Promise<unknown>;
  /** Reads the job's chunks to the end. */
  stream(input: object, count: number): Promise<void>;
  /** Waits until this number of jobs has completed since the start. */
  waitForCompleted(count: number): Promise<void>;
}

export interface StandOptions {
  carrier: Carrier;
  /** File in `handlers`, and ID of the endpoint. */
  handler: string;
  workerArgs?: string[];
  /** Further arguments of `millrace serve`. */
  platformArgs?: string[];
  /** Calls the platform in another way than PlatformStand; not for `direct`. */
  connect?: (platform: Platform, endpoint: string) => Stand;
}

export async function withStand<T>(
  { carrier, connect, handler, platformArgs = [], workerArgs = [] }: StandOptions,
  measure: (stand: Stand) => Promise<T>,
): Promise<T> {
  if (carrier === 'direct') {
    const stand = await DirectStand.start(handler, SLOTS);
    try {
      return await measure(stand);
    } finally {
      await stand.stop();
    }
  }
  const platform = await startPlatform([handler], platformArgs);
  const { grpcUrl, url, workerKey: key } = platform;
  const link = carrier === 'HTTP' ? url : grpcUrl;
  const options = { url: link, key, endpoint: handler, handler: `handlers/${handler}.ts` };
  const worker = spawnWorker({ ...options, slots: SLOTS }, workerArgs);
  try {
    return await measure(connect?.(platform, handler) ?? new PlatformStand(platform, handler));
  } finally {
    await stopProcess(worker);
    await platform.stop();
  }
}

export class PlatformStand implements Stand {
  readonly #platform: Platform;
  readonly #endpoint: string;

  constructor(platform: Platform, endpoint: string) {
    this.#platform = platform;
    this.#endpoint = endpoint;
  }

  async submitMany(load: { clients: number; jobs: number; input: object }): Promise<void> {
    const { clients, input, jobs: requests } = load;
    await sendLoad({ clients, requests, ...this.#request('run', { input }) });
  }

  /** As `submitMany`, with so many jobs in each request. */
  async submitTogether(load: {
    clients: number;
    jobs: number;
    together: number;
    input: object;
  }): Promise<void> {
    const { clients, input, jobs, together } = load;
    const body = { jobs: Array.from({ length: together }, () => ({ input })) };
    await sendLoad({ clients, requests: jobs / together, ...this.#request('jobs', body) });
  }

  timeRoundTrips(requests: number, input: object): Promise<number[]> {
    return timeEach({ requests, ...this.#request('runsync', { input }) });
  }

  async runsync(input: object): Promise<unknown> {
    const path = `/v2/${this.#endpoint}/runsync`;
    return JSON.parse(await callPlatform(this.#platform, path, { input })).output;
  }

  async stream(input: object, count: number): Promise<void> {
    const path = `/v2/${this.#endpoint}`;
    const { id } = JSON.parse(await callPlatform(this.#platform, `${path}/run`, { input }));
    let after = '0';
    for (let seen = 0; seen < count; ) {
      const page = await readPage(this.#platform, `${path}/stream/${id}?after=${after}`);
      seen += page.count;
      after = page.next;
      if (page.count === 0) throw new Error(`stream ended after ${seen} of ${count} chunks`);
    }
  }

  waitForCompleted(count: number): Promise<void> {
    return waitForCompleted(this.#platform, this.#endpoint, count);
  }

  #request(verb: 'run' | 'runsync' | 'jobs', body: object) {
    return {
      url: `${this.#platform.url}/v2/${this.#endpoint}/${verb}`,
      headers: { authorization: `Bearer ${this.#platform.adminKey}` },
      body: JSON.stringify(body),
    };
  }
}
