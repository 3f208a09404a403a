// Samples the GPUs and gives each worker process the figures of its own devices. gpu-samples.ts
// reads the samples; usage-meter.ts attributes the figures to attempts.
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { readProcess } from '../../base/process/process-table.ts';
import {
  DEVICE_FIELDS,
  type DeviceSample,
  PROCESS_FIELDS,
  type ProcessSample,
  parseDeviceSample,
  parseProcessSample,
  SmiLoop,
  sumSamples,
} from './gpu-samples.ts';
import type { GpuFigures } from './usage-meter.ts';

/** A worker process whose devices are sampled. */
export interface FedWorker {
  readonly uuids: readonly string[];
  /** Undefined without a process. */
  readonly pid: number | undefined;
  noteGpuFigures(figures: GpuFigures): void;
}

interface GpuUsageFeedOptions {
  /** Path of nvidia-smi. */
  command: string;
  workers: readonly FedWorker[];
  /** Time between two samples, ms. */
  everyMs: number;
  log: Log;
  clock?: Clock;
}

const FORMAT = '--format=csv,noheader,nounits';
/** Processes on all GPUs that are remembered; more are ignored. */
const MAX_PROCESSES = 4_096;
/** Ancestors of a process that are looked at. */
const MAX_DEPTH = 64;
/** Samples may be missed while the machine is busy. */
const VALID_SAMPLES = 3;
const MIN_VALID_MS = 5_000;

interface Aged<Sample> {
  sample: Sample;
  at: number;
}

export class GpuUsageFeed {
  readonly #options: GpuUsageFeedOptions;
  readonly #clock: Clock;
  readonly #validMs: number;
  readonly #loops: readonly SmiLoop[];
  readonly #used: ReadonlySet<string>;
  readonly #devices = new Map<string, Aged<DeviceSample>>();
  readonly #processes = new Map<string, Aged<ProcessSample>>();
  /** Workers whose processes nvidia-smi has listed: without an entry they use no memory. */
  readonly #listed = new WeakSet<FedWorker>();
  #isDue = false;
  #hasFailed = false;

  constructor(options: GpuUsageFeedOptions) {
    const { clock = systemClock, command, everyMs, workers } = options;
    this.#options = options;
    this.#clock = clock;
    this.#validMs = Math.max(MIN_VALID_MS, VALID_SAMPLES * everyMs);
    this.#used = new Set(workers.flatMap(({ uuids }) => uuids));
    const onFailure = (reason: string) => this.#noteFailure(reason);
    const common = { command, everyMs, clock, onFailure };
    this.#loops = [
      new SmiLoop({
        ...common,
        args: [`--query-gpu=${DEVICE_FIELDS.join(',')}`, FORMAT],
        onLine: (line) => this.#noteDevice(line),
        maxSilenceMs: Math.max(30_000, 10 * everyMs),
      }),
      new SmiLoop({
        ...common,
        args: [`--query-compute-apps=${PROCESS_FIELDS.join(',')}`, FORMAT],
        onLine: (line) => this.#noteProcess(line),
      }),
    ];
  }

  /** Processor time that sampling has cost so far. */
  get cpuSeconds(): number {
    return this.#loops.reduce((total, { cpuSeconds }) => total + cpuSeconds, 0);
  }

  /** Of the running nvidia-smi. */
  get pids(): number[] {
    return this.#loops.map(({ pid }) => pid).filter((pid) => pid !== undefined);
  }

  start(): void {
    for (const loop of this.#loops) loop.start();
  }

  stop(): void {
    for (const loop of this.#loops) loop.stop();
  }

  #noteDevice(line: string): void {
    const sample = parseDeviceSample(line);
    if (!sample) return;
    this.#hasFailed = false;
    if (this.#used.has(sample.uuid)) {
      this.#devices.set(sample.uuid, { sample, at: this.#clock.now() });
    }
    if (this.#isDue) return;
    this.#isDue = true;
    // The lines of one sample arrive together.
    setImmediate(() => {
      this.#isDue = false;
      this.#feed();
    });
  }

  #noteProcess(line: string): void {
    const sample = parseProcessSample(line);
    if (!sample) return;
    const key = `${sample.uuid} ${sample.pid}`;
    if (this.#processes.size >= MAX_PROCESSES && !this.#processes.has(key)) return;
    this.#processes.set(key, { sample, at: this.#clock.now() });
  }

  #feed(): void {
    this.#dropOld();
    const { workers } = this.#options;
    const running = workers.filter(({ pid }) => pid !== undefined);
    const bytes = this.#sumProcesses(running);
    for (const worker of running) {
      const samples = worker.uuids.flatMap((uuid) => this.#devices.get(uuid)?.sample ?? []);
      const processBytes = this.#listed.has(worker) ? (bytes.get(worker) ?? 0) : undefined;
      const { length: devices } = worker.uuids;
      const figures = sumSamples({ devices, samples, processBytes, validMs: this.#validMs });
      worker.noteGpuFigures(figures);
    }
  }

  #dropOld(): void {
    const oldest = this.#clock.now() - this.#validMs;
    for (const known of [this.#devices, this.#processes]) {
      for (const [key, { at }] of known) if (at < oldest) known.delete(key);
    }
  }

  /** Device memory of each worker's process and its descendants. */
  #sumProcesses(workers: readonly FedWorker[]): Map<FedWorker, number> {
    const bytes = new Map<FedWorker, number>();
    const byPid = new Map(workers.map((worker) => [worker.pid, worker]));
    for (const { sample } of this.#processes.values()) {
      const worker = findAncestor(sample.pid, byPid);
      if (!worker) continue;
      this.#listed.add(worker);
      bytes.set(worker, (bytes.get(worker) ?? 0) + sample.usedBytes);
    }
    return bytes;
  }

  /** Logged once until samples arrive again; jobs do not depend on samples. */
  #noteFailure(reason: string): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#options.log.warn({ reason }, 'sampling GPUs failed, retrying');
  }
}

/** In a container nvidia-smi may list the process IDs of the host, which mean nothing here. */
function findAncestor(
  pid: number,
  workers: ReadonlyMap<number | undefined, FedWorker>,
): FedWorker | undefined {
  let at = pid;
  for (let depth = 0; depth < MAX_DEPTH && at > 1; depth += 1) {
    const worker = workers.get(at);
    if (worker) return worker;
    at = readProcess(at)?.parentPid ?? 0;
  }
  return undefined;
}
