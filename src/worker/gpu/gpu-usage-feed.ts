// Samples the GPUs and gives each worker process the figures of its own devices. gpu-accounts.ts
// attributes the figures to attempts.
import { type ChildProcess, spawn } from 'node:child_process';
import { backoffMs } from '../../base/backoff.ts';
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { readProcess, TICKS_PER_SECOND } from '../../base/process/process-table.ts';
import { readLines } from '../../base/text/line-reader.ts';
import type { GpuFigures } from './gpu-accounts.ts';

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

/** In this order in each line. */
export const DEVICE_FIELDS = ['uuid', 'memory.used', 'utilization.gpu', 'power.draw'] as const;
export const PROCESS_FIELDS = ['gpu_uuid', 'pid', 'used_memory'] as const;

/** What a device does not tell is undefined. */
export interface DeviceSample {
  uuid: string;
  /** Of all processes. */
  usedBytes: number | undefined;
  /** 0 to 1. */
  utilization: number | undefined;
  powerWatts: number | undefined;
}

/** Memory of one process on one device. */
export interface ProcessSample {
  uuid: string;
  pid: number;
  usedBytes: number;
}

/** Larger figures are errors of the driver: some report the largest number of 32 or 64 bits. */
const MOST = { memoryMib: 2 ** 30, percent: 100, watts: 10_000, pid: 2 ** 31 } as const;
const MAX_UUID_CHARS = 64;

const MAX_LINE_CHARS = 500;
const RESTARTS = { baseMs: 1_000, maxMs: 300_000, jitter: 0.2 };
/** A run of this length resets the wait before the next restart, ms. */
const GOOD_RUN_MS = 60_000;

/**
 * Becomes nvidia-smi. If this process dies, even by SIGKILL, its end of the pipe closes, and the
 * other half of the shell kills nvidia-smi, which might otherwise run on: it prints nothing while no
 * process uses a GPU, so it would not notice.
 */
const SCRIPT = 'exec 3<&0; (cat <&3; kill -9 $$) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null';

interface SmiLoopOptions {
  /** Path of nvidia-smi. */
  command: string;
  /** Arguments besides those of the loop. */
  args: readonly string[];
  /** Time between two samples, ms. */
  everyMs: number;
  /** Receives each line, in parts of at most 500 characters. */
  onLine: (line: string) => void;
  /** Called when it ended by itself, or was killed because it was silent. */
  onFailure: (reason: string) => void;
  /** It is killed if it prints nothing for this long, ms. Default: its silence is normal. */
  maxSilenceMs?: number;
  clock?: Clock;
}

export class SmiLoop {
  readonly #options: SmiLoopOptions;
  readonly #clock: Clock;
  #child: ChildProcess | undefined;
  #isStarted = false;
  #failures = 0;
  #cancelRestart: () => void = () => {};
  #cancelSilence: () => void = () => {};
  #endedTicks = 0;

  constructor(options: SmiLoopOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Processor time of nvidia-smi so far, as far as it is known. */
  get cpuSeconds(): number {
    return (this.#endedTicks + this.#readTicks()) / TICKS_PER_SECOND;
  }

  /** Process ID of the running nvidia-smi. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#launch();
  }

  /** Kills nvidia-smi and does not wait for its end: one that is stuck in the driver has none. */
  stop(): void {
    this.#isStarted = false;
    this.#cancelRestart();
    this.#cancelSilence();
    if (this.#child) abandon(this.#child);
    this.#child = undefined;
  }

  #launch(): void {
    const { args, command, everyMs, onLine } = this.#options;
    const startedAt = this.#clock.now();
    const loop = [...args, `--loop-ms=${everyMs}`];
    let child: ChildProcess;
    try {
      child = spawn('/bin/sh', ['-c', SCRIPT, 'sh', command, ...loop], {
        stdio: ['pipe', 'pipe', 'ignore'],
      });
    } catch (error) {
      // Without free memory spawn throws.
      this.#restart(String(error), startedAt);
      return;
    }
    this.#child = child;
    child.stdin?.on('error', () => {});
    child.unref();
    let last = '';
    if (child.stdout) {
      readLines(child.stdout, {
        maxChars: MAX_LINE_CHARS,
        onLine: (line) => {
          if (this.#child !== child) return;
          last = line;
          this.#expectMore(child);
          onLine(line);
        },
      });
    }
    this.#expectMore(child);
    child.once('error', (error) => this.#end(child, error.message, startedAt));
    child.once('exit', (code, signal) => {
      const how = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
      this.#end(child, `nvidia-smi ${how}${last === '' ? '' : ` and said: ${last}`}`, startedAt);
    });
  }

  /** A killed program that does not end is not replaced: its successor would hang too. */
  #expectMore(child: ChildProcess): void {
    const { maxSilenceMs } = this.#options;
    this.#cancelSilence();
    if (maxSilenceMs === undefined) return;
    this.#cancelSilence = this.#clock.after(maxSilenceMs, () => {
      this.#options.onFailure(`nvidia-smi printed no sample for ${maxSilenceMs} ms`);
      this.#endedTicks += this.#readTicks();
      child.kill('SIGKILL');
    });
  }

  #end(child: ChildProcess, reason: string, startedAt: number): void {
    child.stdin?.destroy();
    if (this.#child !== child) return;
    this.#child = undefined;
    this.#cancelSilence();
    this.#restart(reason, startedAt);
  }

  #restart(reason: string, startedAt: number): void {
    this.#failures = this.#clock.now() - startedAt >= GOOD_RUN_MS ? 1 : this.#failures + 1;
    this.#options.onFailure(reason);
    const waitMs = backoffMs(this.#failures, RESTARTS);
    this.#cancelRestart = this.#clock.after(waitMs, () => this.#launch());
  }

  #readTicks(): number {
    const pid = this.#child?.pid;
    return pid === undefined ? 0 : (readProcess(pid)?.cpuTicks ?? 0);
  }
}

function abandon(child: ChildProcess): void {
  child.kill('SIGKILL');
  child.stdin?.destroy();
  child.stdout?.destroy();
}

/** Undefined if the line is no sample. */
export function parseDeviceSample(line: string): DeviceSample | undefined {
  const [uuid, memory, utilization, power, ...more] = splitLine(line);
  if (uuid === undefined || power === undefined || more.length > 0) return undefined;
  const usedMib = readFigure(memory, MOST.memoryMib);
  const percent = readFigure(utilization, MOST.percent);
  return {
    uuid,
    usedBytes: usedMib === undefined ? undefined : usedMib * 2 ** 20,
    utilization: percent === undefined ? undefined : percent / 100,
    powerWatts: readFigure(power, MOST.watts),
  };
}

/** Undefined if the line is no sample, or the driver does not tell the memory of the process. */
export function parseProcessSample(line: string): ProcessSample | undefined {
  const [uuid, process, memory, ...more] = splitLine(line);
  const pid = readFigure(process, MOST.pid);
  const usedMib = readFigure(memory, MOST.memoryMib);
  if (uuid === undefined || more.length > 0) return undefined;
  if (pid === undefined || !Number.isInteger(pid) || usedMib === undefined) return undefined;
  return { uuid, pid, usedBytes: usedMib * 2 ** 20 };
}

function splitLine(line: string): string[] {
  const fields = line.split(',').map((field) => field.trim());
  const [uuid = ''] = fields;
  const isUuid = /^(?:GPU|MIG)-[\w/-]+$/.test(uuid) && uuid.length <= MAX_UUID_CHARS;
  return isUuid ? fields : [];
}

/** `[N/A]`, `[Not Supported]` and the like are no figures. */
function readFigure(text: string | undefined, most: number): number | undefined {
  if (text === undefined || !/^\d+(?:\.\d+)?$/.test(text)) return undefined;
  const value = Number(text);
  return value <= most ? value : undefined;
}

interface WorkerSamples {
  /** Number of devices of the worker process. */
  devices: number;
  /** Those that have a recent sample. A MIG instance has none: its GPU's figures are not its own. */
  samples: readonly DeviceSample[];
  /** Device memory of the process and its children; undefined if nvidia-smi does not list them. */
  processBytes: number | undefined;
  validMs: number;
}

/** A sum exists only if each device has the figure. */
export function sumSamples(worker: WorkerSamples): GpuFigures {
  const { devices, processBytes, samples, validMs } = worker;
  const sum = (read: (sample: DeviceSample) => number | undefined): number | undefined => {
    const values = samples.map(read).filter((value) => value !== undefined);
    return values.length < devices ? undefined : values.reduce((total, value) => total + value, 0);
  };
  const utilization = sum((sample) => sample.utilization);
  return {
    vramBytes: processBytes ?? sum((sample) => sample.usedBytes),
    vramScope: processBytes === undefined ? 'devices' : 'process',
    utilization: utilization === undefined ? undefined : utilization / devices,
    powerWatts: sum((sample) => sample.powerWatts),
    validMs,
  };
}
