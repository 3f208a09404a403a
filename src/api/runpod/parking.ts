// Holds chunks during the last seconds of a stopping platform. A runpod-python worker drops a chunk
// that it cannot deliver, but repeats one that was answered with 503 after 2 s: chunks wait here
// for that answer, so that their workers send nothing while the platform is down.
import { type Clock, sleep } from '../../base/clock.ts';
import { LinkError } from '../../wire/link/worker-link.ts';
import type { RunPodLease } from './lease.ts';

/** How long to wait for the next chunk of a worker that has yielded before, ms. */
const PARK_MS = 2_000;
const POLL_MS = 20;

export class Parking {
  readonly #clock: Clock;
  readonly #held = new Set<RunPodLease>();
  #over: PromiseWithResolvers<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves at once unless the platform stops. @throws LinkError `unavailable` when it exits */
  async hold(held: RunPodLease): Promise<void> {
    if (!this.#over) return;
    this.#held.add(held);
    await this.#over.promise;
    throw new LinkError('unavailable', 'the platform is stopping');
  }

  /**
   * `listStreaming`: the attempts whose next chunk is waited for.
   * @returns those whose chunk has come, and is sent again later, so that nothing of them is missing
   */
  async park(listStreaming: () => readonly RunPodLease[]): Promise<RunPodLease[]> {
    this.#over ??= Promise.withResolvers();
    const until = this.#clock.now() + PARK_MS;
    const isComplete = () => listStreaming().every((held) => this.#held.has(held));
    while (!isComplete() && this.#clock.now() < until) await sleep(this.#clock, POLL_MS);
    // With the answer each of them has a chunk that was refused.
    const whole = [...this.#held].filter(({ isBroken }) => !isBroken);
    this.#over.resolve();
    return whole;
  }
}
