// A second worker of the harness, which takes a job whose lease has expired and releases it.
import type { Device, WorkerLink } from '../wire/link/worker-link.ts';

const WORKER_ID = 'harness-other';

export class OtherWorker {
  readonly #devices: Device[];
  #incarnation = 0;

  constructor(devices: Device[]) {
    this.#devices = devices;
  }

  /** @returns the number of jobs that it took: one, or none if none is available */
  async takeAndRelease(link: WorkerLink): Promise<number> {
    this.#incarnation += 1;
    const identity = { workerId: WORKER_ID, incarnation: this.#incarnation };
    const rest = { protocol: 1, version: 'other', slots: 1, outbox: [] };
    await link.hello({ ...identity, ...rest, devices: this.#devices });
    const take = { takeId: `other-${this.#incarnation}`, max: 1, waitMs: 0, held: [] };
    const leases = await link.take({ ...identity, ...take }, AbortSignal.timeout(1_000));
    await link.bye({ ...identity, reason: 'drained', outbox: [] });
    return leases.length;
  }
}
