// Calls the operations of one endpoint over the network and checks the shape of answers.
import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import {
  chunkList,
  health,
  jobList,
  jobRecord,
  jobRef,
  readOk,
  type SeenRecord,
} from './answers.ts';
import type { PlatformProcess } from './processes.ts';

const END_LIMIT_MS = 120_000;
const POLL_MS = 50;

/** Members of the body besides `input`. */
export interface SubmitOptions {
  policy?: Record<string, number>;
  idempotencyKey?: string;
}

export interface StreamAnswer {
  chunks: z.infer<typeof chunkList>;
  next: string | null;
  status: string | null;
  reset: string | null;
}

export class EndpointCaller {
  readonly #platform: PlatformProcess;
  readonly #path: string;

  constructor(platform: PlatformProcess, endpoint: string) {
    this.#platform = platform;
    this.#path = `/v2/${endpoint}`;
  }

  get(operation: string, init?: RequestInit): Promise<Response> {
    return this.#platform.fetch(`${this.#path}/${operation}`, init);
  }

  /** Sends no body if none is given. */
  post(operation: string, body?: unknown): Promise<Response> {
    const path = `${this.#path}/${operation}`;
    if (body === undefined) return this.#platform.fetch(path, { method: 'POST' });
    return this.#platform.post(path, body);
  }

  /** @returns the job's id */
  async run(input: object, options: SubmitOptions = {}): Promise<string> {
    return (await readOk(await this.post('run', { input, ...options }), jobRef)).id;
  }

  async runsync(input: object, options: SubmitOptions = {}): Promise<SeenRecord> {
    return readOk(await this.post('runsync', { input, ...options }), jobRecord);
  }

  async status(id: string): Promise<SeenRecord> {
    return readOk(await this.get(`status/${id}`), jobRecord);
  }

  async health(): Promise<z.infer<typeof health>> {
    return readOk(await this.get('health'), health);
  }

  /** Resolves when this number of workers has connected. */
  async untilServed(workers = 1): Promise<void> {
    for (;;) {
      const { idle, running } = (await this.health()).workers;
      if (idle + running >= workers) return;
      await sleep(POLL_MS);
    }
  }

  async list(query = ''): Promise<z.infer<typeof jobList>> {
    return readOk(await this.get(`jobs${query}`), jobList);
  }

  /** Resolves with the ID of the newest job of this status. */
  async newest(status: SeenRecord['status']): Promise<string> {
    for (;;) {
      const [job] = (await this.list(`?status=${status}&limit=1`)).jobs;
      if (job) return job.id;
      await sleep(POLL_MS);
    }
  }

  async stream(id: string, query = ''): Promise<StreamAnswer> {
    const answer = await this.get(`stream/${id}${query}`);
    const { headers } = answer;
    return {
      chunks: await readOk(answer, chunkList),
      next: headers.get('millrace-next'),
      status: headers.get('millrace-status'),
      reset: headers.get('millrace-reset'),
    };
  }

  /** Resolves with the record when it matches. */
  async until(id: string, wanted: (record: SeenRecord) => boolean): Promise<SeenRecord> {
    const giveUpAt = Date.now() + END_LIMIT_MS;
    for (;;) {
      const record = await this.status(id);
      if (wanted(record)) return record;
      if (Date.now() > giveUpAt) throw new Error(`waited in vain: ${JSON.stringify(record)}`);
      await sleep(POLL_MS);
    }
  }

  untilStatus(id: string, status: SeenRecord['status']): Promise<SeenRecord> {
    return this.until(id, (record) => record.status === status);
  }

  untilEnd(id: string): Promise<SeenRecord> {
    return this.until(id, ({ status }) => status !== 'IN_QUEUE' && status !== 'IN_PROGRESS');
  }
}
