// A worker and its supervisor in the simulation: starts one process after the other on the same simulated
// disk, and says bye for dead ones.
import { sleep } from '../../src/base/clock.ts';
import { readHandler } from '../../src/handler/loading/load.ts';
import type { Device, Report, ReportReply, WorkerLink } from '../../src/wire/link/worker-link.ts';
import { InlineExecutor } from '../../src/worker/execution/inline-executor.ts';
import { MemoryOutbox } from '../../src/worker/outbox/outbox.ts';
import { createWorker, type Worker } from '../../src/worker/worker.ts';
import { FlakyLink, type Weather } from './flaky-link.ts';
import { createHandler, GPU_TYPES } from './job-plan.ts';
import { type Disk, KeptOutbox, readUndelivered } from './kept-outbox.ts';
import type { VirtualTime } from './virtual-time.ts';

const CPU: Device = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'simulated', memoryBytes: 0 };
const SLOTS = 3;
/** How long the supervisor tries to say bye for a dead worker, ms. */
const BYE_LIMIT_MS = 10_000;
const BYE_RETRY_MS = 500;
const MAX_RESTART_MS = 5_000;

export interface SimulatedWorkerOptions {
  id: string;
  clock: VirtualTime;
  random: () => number;
  weather: () => Weather;
  platform: () => WorkerLink | undefined;
  onReply: (report: Report, reply: ReportReply) => void;
  /** Called when the process dies, with what is on its disk. */
  onDeath: (left: Disk) => void;
  /** The worker writes outcomes to disk before it sends them. */
  hasDisk: boolean;
  /** The supervisor says bye for dead processes. */
  isSupervised: boolean;
  /** Index of the type of its GPU; undefined: none. */
  gpu: number | undefined;
}

interface Process {
  incarnation: number;
  link: FlakyLink;
  outbox: KeptOutbox | MemoryOutbox;
  worker: Worker;
}

export class SimulatedWorker {
  readonly #options: SimulatedWorkerOptions;
  readonly #disk: Disk = new Map();
  #incarnation = 0;
  #process: Process | undefined;
  #isClosed = false;

  constructor(options: SimulatedWorkerOptions) {
    this.#options = options;
    this.#start();
  }

  /** Kills the process at once; a new one starts a little later. */
  kill(): void {
    const dead = this.#process;
    if (!dead) return;
    this.#process = undefined;
    this.#end(dead);
    this.#options.onDeath(this.#disk);
    void this.#replace(dead);
  }

  /** Cuts the worker off from the platform for `ms`, perhaps longer than its leases last. */
  part(ms: number): void {
    this.#process?.link.part(ms);
  }

  /** Drains the worker; nothing replaces it. */
  async drain(): Promise<void> {
    this.#isClosed = true;
    await this.#process?.worker.drain();
  }

  /** Recycles the process: it drains, then a new process starts. */
  recycle(): void {
    const old = this.#process;
    if (!old) return;
    old.worker.recycle('simulated');
    void old.worker.ended.then(() => {
      if (this.#process !== old) return;
      this.#process = undefined;
      this.#start();
    });
  }

  close(): void {
    this.#isClosed = true;
    if (this.#process) this.#end(this.#process);
    this.#process = undefined;
  }

  #end({ link, outbox }: Process): void {
    link.kill();
    if (outbox instanceof KeptOutbox) outbox.die();
  }

  async #replace(dead: Process): Promise<void> {
    const { clock, isSupervised, random } = this.#options;
    if (isSupervised) await this.#reportDeath(dead);
    await sleep(clock, Math.floor(random() * MAX_RESTART_MS));
    this.#start();
  }

  /** Says bye for a dead process, with retries until `BYE_LIMIT_MS`. */
  async #reportDeath({ incarnation }: Process): Promise<void> {
    const { clock, id: workerId } = this.#options;
    const link = this.#createLink();
    const outbox = readUndelivered(this.#disk);
    for (const until = clock.now() + BYE_LIMIT_MS; clock.now() < until; ) {
      try {
        return await link.bye({ workerId, incarnation, reason: 'crashed', outbox });
      } catch {
        await sleep(clock, BYE_RETRY_MS);
      }
    }
  }

  #createLink(): FlakyLink {
    const { clock, onReply, platform, random, weather } = this.#options;
    return new FlakyLink({ clock, random, weather, platform, onReply });
  }

  #start(): void {
    if (this.#isClosed) return;
    const { clock, gpu, hasDisk, id: workerId, random } = this.#options;
    const incarnation = ++this.#incarnation;
    const link = this.#createLink();
    const killProcess = () => {
      if (this.#process?.incarnation === incarnation) this.kill();
    };
    const handler = readHandler(createHandler({ clock, gpu, killProcess }), 'simulated');
    const disk = this.#disk;
    const outbox = hasDisk ? new KeptOutbox({ disk, clock, random }) : new MemoryOutbox();
    const worker = createWorker({
      link,
      executor: new InlineExecutor({ handler, devices: [CPU], slots: SLOTS, clock }),
      outbox,
      workerId,
      incarnation,
      version: 'simulated',
      devices: [gpu === undefined ? CPU : describeGpu(gpu)],
      clock,
    });
    this.#process = { incarnation, link, outbox, worker };
    worker.start().catch(() => {
      // The worker was killed or drained before it had started.
    });
  }
}

function describeGpu(gpu: number): Device {
  const gpuTypeId = GPU_TYPES[gpu];
  return { ...CPU, kind: 'gpu', ...(gpuTypeId !== undefined && { gpuTypeId }) };
}
