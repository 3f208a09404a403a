// What a worker does with the figures of its GPUs: it counts them for attempts, and asks for a new
// process if an attempt ran out of device memory and the memory did not come back.
import type { Clock } from '../../base/clock.ts';
import type { GpuUsage } from '../../wire/job/job.ts';
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { MAX_HOLD_MS, MemoryReturn } from './memory-return.ts';
import { type GpuFigures, UsageMeter } from './usage-meter.ts';

export interface GpuAccountsOptions {
  /** Number of GPUs of the process. */
  devices: number;
  clock: Clock;
  /** Whether no attempt is active. */
  isIdle: () => boolean;
  /** Called when taking may resume. */
  onRelief: () => void;
  onRecycle: (reason: string) => void;
}

export class GpuAccounts {
  readonly #options: GpuAccountsOptions;
  readonly #meter: UsageMeter<Lease>;
  readonly #memory = new MemoryReturn<Lease>();

  constructor(options: GpuAccountsOptions) {
    this.#options = options;
    this.#meter = new UsageMeter({ devices: options.devices });
  }

  /** The worker should take no job for a moment: it waits for device memory to come back. */
  get isHolding(): boolean {
    return this.#memory.isPending(this.#options.clock.now());
  }

  begin(lease: Lease): void {
    this.#meter.begin(lease, this.#options.clock.now());
    this.#memory.begin(lease);
  }

  /** Undefined if the attempt never began. */
  end(lease: Lease, outcome: Outcome): GpuUsage | undefined {
    const { clock, onRelief } = this.#options;
    const now = clock.now();
    const isOutOfMemory = outcome.kind === 'failed' && outcome.error.code === 'gpu_out_of_memory';
    if (this.#memory.end(lease, { isOutOfMemory, now })) clock.after(MAX_HOLD_MS, onRelief);
    return this.#meter.end(lease, now);
  }

  note(figures: GpuFigures): void {
    const { clock, isIdle, onRecycle, onRelief } = this.#options;
    const now = clock.now();
    this.#meter.sample(figures, now);
    const verdict = this.#memory.judge(figures, { isIdle: isIdle(), now });
    if (verdict.kind === 'returned') onRelief();
    if (verdict.kind === 'kept') {
      const mib = Math.round(verdict.excessBytes / 2 ** 20);
      onRecycle(`a job ran out of GPU memory, and ${mib} MiB more than before it are still in use`);
    }
  }
}
