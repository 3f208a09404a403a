// Applies the state of devices to their workers. A worker on a bad device ends; a worker whose
// device leaks memory gets a new process. worker/gpu reads and judges; keepers own the processes.
import { type Clock, systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Detection } from '../gpu/detect.ts';
import type { HealthPolicy } from '../gpu/device-health.ts';
import { type DeviceSet, numberDevice } from '../gpu/device-sets.ts';
import {
  DEFAULT_MEMORY_POLICY,
  type JobActivity,
  judgeMemory,
  type MemoryFinding,
  type MemoryHistory,
  type MemoryPolicy,
  startMemory,
} from '../gpu/memory-watch.ts';
import { type DeviceStatus, GpuMonitor } from '../gpu/monitor.ts';
import { readNvidiaSmi, type SmiReading } from '../gpu/nvidia-smi.ts';

export interface WatchedWorker {
  readonly set: DeviceSet;
  /**
   * Job counts of the running process; undefined without one (restarting, quarantined). A process
   * that loads its handler counts as running, with counts of 0.
   */
  readonly activity: JobActivity | undefined;
  /** The device is bad: the process releases its jobs and exits, and none is started. */
  quarantine(reason: string): void;
  readmit(): void;
  /** Replace the process when no job runs. */
  recycle(reason: string): void;
}

export interface DeviceWatchOptions {
  /** Its reading is the baseline, made before any of our processes uses a device. */
  detection: Pick<Detection, 'devices' | 'nvidia' | 'reading'>;
  workers: readonly WatchedWorker[];
  log: Log;
  clock?: Clock;
  /** Time between two readings, ms. Default 10,000. */
  intervalMs?: number | undefined;
  /** Limit for one run of nvidia-smi, ms. Default 10,000. */
  timeoutMs?: number | undefined;
  policy?: Partial<HealthPolicy> | undefined;
  /** Growth since the first job of a process at which it is replaced. Default: never. */
  vramGrowthLimitBytes?: number | undefined;
  /** Default: the nvidia-smi that the detection found. */
  read?: ((signal: AbortSignal) => Promise<SmiReading>) | undefined;
}

interface Watched {
  readonly worker: WatchedWorker;
  readonly uuids: ReadonlySet<string>;
  /** Activity at the start of the reading. */
  before: JobActivity | undefined;
  /** Reason of the worker's quarantine. */
  quarantine: string | undefined;
}

export class DeviceWatch {
  readonly #monitor: GpuMonitor;
  readonly #workers: readonly Watched[];
  readonly #memories = new Map<string, MemoryHistory>();
  readonly #memoryPolicy: MemoryPolicy;
  readonly #log: Log;
  #isStarted = false;

  constructor(options: DeviceWatchOptions) {
    const { detection, workers, log, intervalMs, policy, clock = systemClock } = options;
    const { vramGrowthLimitBytes: recycleAtBytes } = options;
    this.#log = log;
    this.#memoryPolicy = { ...DEFAULT_MEMORY_POLICY, recycleAtBytes };
    this.#workers = workers.map((worker) => ({
      worker,
      uuids: new Set(worker.set.devices.map(({ uuid }) => uuid)),
      before: undefined,
      quarantine: undefined,
    }));
    const read = options.read ?? chooseReader(options, clock);
    this.#monitor = new GpuMonitor({
      devices: read ? detection.devices.filter(({ device }) => this.#isUsed(device.uuid)) : [],
      read: (signal) => {
        for (const watched of this.#workers) watched.before = watched.worker.activity;
        return read ? read(signal) : Promise.reject(new Error('nvidia-smi not found'));
      },
      first: detection.reading,
      intervalMs,
      policy,
      clock,
      onChange: (status, before) => this.#logChange(status, before.state.name),
      onReading: () => this.#act(),
    });
    for (const { found, isCurrent, memory } of this.#monitor.statuses) {
      const baselineBytes = isCurrent ? memory.usedBytes : undefined;
      this.#memories.set(found.device.uuid, startMemory(baselineBytes));
    }
  }

  /** Last known state of each readable device of the workers, for metrics and health. */
  get statuses(): DeviceStatus[] {
    return this.#monitor.statuses;
  }

  /** Acts on the detection at once; the first reading of its own follows after the interval. */
  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    for (const status of this.statuses) {
      if (status.health.state.name !== 'healthy') this.#logChange(status, 'unknown');
    }
    this.#judgeHealth();
    this.#monitor.start();
  }

  /** Kills a running nvidia-smi; workers get no further commands. */
  stop(): void {
    this.#isStarted = false;
    this.#monitor.stop();
  }

  /** Reads once in addition to the interval, or joins a running reading. Never rejects. */
  readNow(): Promise<void> {
    return this.#monitor.readNow();
  }

  #isUsed(uuid: string): boolean {
    return this.#workers.some(({ uuids }) => uuids.has(uuid));
  }

  #act(): void {
    this.#judgeHealth();
    for (const status of this.statuses) {
      // Values of an earlier reading say nothing about now.
      if (status.isCurrent) this.#judgeMemory(status);
    }
  }

  #judgeHealth(): void {
    for (const watched of this.#workers) {
      const own = this.statuses.filter(({ found }) => watched.uuids.has(found.device.uuid));
      const reason = findQuarantine(own);
      const wasQuarantined = watched.quarantine !== undefined;
      if (reason === watched.quarantine) continue;
      watched.quarantine = reason;
      if (reason === undefined) watched.worker.readmit();
      // A new reason for the same state appears only in the log and the statuses.
      else if (!wasQuarantined) watched.worker.quarantine(reason);
    }
  }

  #judgeMemory({ found, memory }: DeviceStatus): void {
    const { uuid } = found.device;
    const history = this.#memories.get(uuid);
    const watched = this.#workers.find(({ uuids }) => uuids.has(uuid));
    if (!history || !watched) return;
    const { before, worker } = watched;
    const sample = { usedBytes: memory.usedBytes, before, after: worker.activity };
    const judged = judgeMemory({ history, sample, policy: this.#memoryPolicy });
    this.#memories.set(uuid, judged.history);
    if (!judged.finding) return;
    this.#logFinding(judged.finding, { device: numberDevice(found), uuid });
    if (judged.finding.name === 'recycle') {
      worker.recycle(explainGrowth(judged.finding.grownBytes, numberDevice(found)));
    }
  }

  #logFinding(finding: MemoryFinding, device: { device: string; uuid: string }): void {
    const { name, ...figures } = finding;
    const fields = { ...device, ...figures };
    switch (name) {
      case 'held':
        this.#log.warn(fields, 'device memory is in use by processes of others');
        return;
      case 'freed':
        this.#log.info(fields, 'device memory is free again');
        return;
      case 'growing':
        this.#log.warn(fields, 'device memory grows between jobs');
        return;
      case 'recycle':
        this.#log.warn(fields, 'device memory exceeded its limit, replacing the worker process');
    }
  }

  #logChange({ found, health }: DeviceStatus, from: string): void {
    const { state } = health;
    const fields = {
      device: numberDevice(found),
      uuid: found.device.uuid,
      from,
      to: state.name,
      ...('reason' in state && { reason: state.reason }),
      ...('probeAt' in state && { probeAt: new Date(state.probeAt).toISOString() }),
    };
    if (state.name === 'healthy') this.#log.info(fields, 'device healthy again');
    else this.#log.warn(fields, `device ${state.name}`);
  }
}

/** Undefined if the detection found nothing that can be read again. */
function chooseReader(
  { detection, timeoutMs }: DeviceWatchOptions,
  clock: Clock,
): ((signal: AbortSignal) => Promise<SmiReading>) | undefined {
  const { nvidia } = detection;
  if (nvidia.kind !== 'working') return undefined;
  const limits = timeoutMs === undefined ? {} : { timeoutMs };
  return (signal) => readNvidiaSmi({ command: nvidia.command, clock, signal, ...limits });
}

/** One bad device takes the whole set out of service. */
function findQuarantine(statuses: readonly DeviceStatus[]): string | undefined {
  const reasons = statuses.flatMap(({ found, health: { state } }) =>
    state.name === 'quarantined' ? [`device ${numberDevice(found)}: ${state.reason}`] : [],
  );
  return reasons.length > 0 ? reasons.join('; ') : undefined;
}

function explainGrowth(grownBytes: number, device: string): string {
  const mib = Math.round(grownBytes / 2 ** 20);
  return `memory in use on device ${device} grew by ${mib} MiB since the process's first job`;
}
