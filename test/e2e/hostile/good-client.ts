// A client that does nothing wrong, of another user than the attacker: it calls at a steady pace, one
// call after the other, and notes how long each takes and what goes wrong.
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { z } from 'zod';

const record = z.looseObject({ id: z.string(), status: z.string() });

export interface GoodClientOptions {
  url: string;
  key: string;
  endpoint: string;
  /** Between two rounds, ms. */
  pauseMs?: number;
}

export class GoodClient {
  readonly faults: string[] = [];
  /** Of each `runsync`, and of each of the light calls, ms. */
  readonly times: Record<'runsync' | 'light', number[]> = { runsync: [], light: [] };
  readonly #options: GoodClientOptions;
  readonly #agent = new Agent({ connections: 4, headersTimeout: 300_000 });
  readonly #waiting = new Set<() => void>();
  readonly #done: Promise<void>;
  #rounds = 0;
  #isStopped = false;

  constructor(options: GoodClientOptions) {
    this.#options = options;
    this.#done = this.#run();
  }

  /** Resolves when so many more rounds are over. */
  async serve(rounds: number): Promise<void> {
    const until = this.#rounds + rounds;
    while (this.#rounds < until) {
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
      });
    }
  }

  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    await this.#done;
    await this.#agent.close();
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      try {
        await this.#callAll();
      } catch (error) {
        this.faults.push(String(error));
      }
      this.#rounds++;
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
      await sleep(this.#options.pauseMs ?? 20);
    }
  }

  async #callAll(): Promise<void> {
    const base = `/v2/${this.#options.endpoint}`;
    const input = { n: this.#rounds, ms: 0 };
    const job = record.parse(JSON.parse(await this.#call('runsync', `${base}/runsync`, { input })));
    if (job.status !== 'COMPLETED') this.faults.push(`the job is ${job.status}`);
    for (const path of [`${base}/status/${job.id}`, `${base}/health`, '/healthz']) {
      await this.#call('light', path);
    }
  }

  async #call(kind: 'runsync' | 'light', path: string, body?: object): Promise<string> {
    const { key, url } = this.#options;
    const startedAt = performance.now();
    const answer = await request(`${url}${path}`, {
      dispatcher: this.#agent,
      // Each probe of a load balancer comes on a new connection.
      reset: path === '/healthz',
      method: body ? 'POST' : 'GET',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    this.times[kind].push(performance.now() - startedAt);
    if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode} ${text}`);
    return text;
  }
}
