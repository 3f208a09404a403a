// Holds chunks during the last seconds of a stopping platform. A runpod-python worker drops a chunk
// that it cannot deliver. If the answer is 503, it repeats the chunk after 2 s. So chunks wait here
// and get 503 at the end: their workers then send nothing while the platform is down.
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
   * Waits for the next chunk of the attempts in `listStreaming`.
   * @returns the attempts whose chunk has arrived: their workers send it again later, so no chunk
   * is missing
   */
  async park(listStreaming: () => readonly RunPodLease[]): Promise<RunPodLease[]> {
    this.#over ??= Promise.withResolvers();
    const until = this.#clock.now() + PARK_MS;
    const isComplete = () => listStreaming().every((held) => this.#held.has(held));
    while (!isComplete() && this.#clock.now() < until) await sleep(this.#clock, POLL_MS);
    // Collected before the answer, which refuses a chunk of each of them.
    const whole = [...this.#held].filter(({ isBroken }) => !isBroken);
    this.#over.resolve();
    return whole;
  }
}
