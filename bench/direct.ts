// Runs queue and worker in this process, with the store in memory and the handler in the same
// thread: the cost without a carrier. It uses the harness for authors' tests.
import { createHarness, type Harness, type HarnessJob } from 'millrace/testing';
import type { Stand } from './stands.ts';

export class DirectStand implements Stand {
  readonly #harness: Harness;
  readonly #slots: number;
  /** The last submitted jobs, in order. */
  #submitted: HarnessJob[] = [];

  private constructor(harness: Harness, slots: number) {
    this.#harness = harness;
    this.#slots = slots;
  }

  static async start(name: string, slots: number): Promise<DirectStand> {
    const handler = await import(`./handlers/${name}.ts`);
    return new DirectStand(await createHarness({ handler, slots }), slots);
  }

  stop(): Promise<void> {
    return this.#harness.close();
  }

  async submitMany(load: { clients: number; jobs: number; input: object }): Promise<void> {
    let left = load.jobs;
    const client = async () => {
      while (left-- > 0) this.#submitted.push(await this.#harness.submit(load.input));
    };
    await Promise.all(Array.from({ length: load.clients }, client));
    // Jobs are taken in order, so when these have ended, all earlier ones have too.
    this.#submitted = this.#submitted.slice(-2 * this.#slots);
  }

  async timeRoundTrips(count: number, input: object): Promise<number[]> {
    const times: number[] = [];
    for (let i = 0; i < count; i++) {
      const startedAt = performance.now();
      await this.#harness.run(input);
      times.push(performance.now() - startedAt);
    }
    return times;
  }

  runsync(input: object): Promise<unknown> {
    return this.#harness.run(input);
  }

  async stream(input: object, count: number): Promise<void> {
    let seen = 0;
    for await (const _ of this.#harness.stream(input)) seen++;
    if (seen !== count) throw new Error(`stream ended after ${seen} of ${count} chunks`);
  }

  async waitForCompleted(): Promise<void> {
    await Promise.all(this.#submitted.map((job) => job.end()));
  }
}
