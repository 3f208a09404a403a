// Samples GPUs: runs one nvidia-smi that prints samples in a loop, and restarts it when it ends or falls silent; reads the
// samples, and sums them up for a worker process.

import { type ChildProcess, spawn } from 'node:child_process';
import { backoffMs } from '../../base/backoff.ts';
import { type Clock, systemClock } from '../../base/clock.ts';
import { readProcess, TICKS_PER_SECOND } from '../../base/process/process-table.ts';
import { readLines } from '../../base/text/line-reader.ts';
import type { GpuFigures } from './usage-meter.ts';

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
