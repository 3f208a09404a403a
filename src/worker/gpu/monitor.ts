// Reads the devices at an interval and reports changes of their health. device-health.ts judges the
// readings; device-watch.ts acts on them.
import { type Clock, systemClock } from '../../base/clock.ts';
import type { FoundDevice } from './detect.ts';
import {
  DEFAULT_HEALTH_POLICY,
  type DeviceHealth,
  type DeviceReading,
  type HealthPolicy,
  judgeReading,
  startHealth,
} from './device-health.ts';
import type { SmiReading } from './nvidia-smi.ts';
import type { SmiGpu, SmiMemory, SmiReport } from './nvidia-smi-report.ts';

interface GpuMonitorOptions {
  /** NVIDIA devices; others cannot be read and are ignored. */
  devices: readonly FoundDevice[];
  /** Reads all devices once; aborted by the signal. */
  read: (signal: AbortSignal) => Promise<SmiReading>;
  /** First reading, made by the detection; later error counts and memory use are compared with it. */
  first?: SmiReading | undefined;
  /** Time between two readings, ms. Default 10,000. */
  intervalMs?: number | undefined;
  /** Missing members are taken from DEFAULT_HEALTH_POLICY. */
  policy?: Partial<HealthPolicy> | undefined;
  clock?: Clock;
  /** Called when a reading, other than the first, has changed the state of a device's health. */
  onChange: (status: DeviceStatus, before: DeviceHealth) => void;
  /** Called after each reading and its changes. */
  onReading: () => void;
}

/** Last known state of one device. */
export interface DeviceStatus {
  found: FoundDevice;
  health: DeviceHealth;
  /**
   * The last reading included the device; otherwise memory, utilization and temperature are older.
   */
  isCurrent: boolean;
  memory: SmiMemory;
  /** Percent of the whole GPU; not reported for a GPU with MIG. */
  utilization: number | undefined;
  temperatureC: number | undefined;
}

export class GpuMonitor {
  readonly #options: GpuMonitorOptions;
  readonly #intervalMs: number;
  readonly #policy: HealthPolicy;
  readonly #clock: Clock;
  readonly #statuses: Map<string, DeviceStatus>;
  /** Undefined while stopped. */
  #cancelNext: (() => void) | undefined;
  #reading: { readonly done: Promise<void> } | undefined;
  /** Aborted by `stop`. */
  #stopping = new AbortController();
  readonly #firstWaitMs: number;

  constructor(options: GpuMonitorOptions) {
    const { devices, first, intervalMs = 10_000, policy = {}, clock = systemClock } = options;
    this.#options = options;
    this.#intervalMs = intervalMs;
    this.#policy = { ...DEFAULT_HEALTH_POLICY, ...policy };
    this.#clock = clock;
    const readable = devices.filter(({ vendor }) => vendor === 'nvidia');
    this.#statuses = new Map(
      readable.map((found) => [found.device.uuid, startStatus(found, clock.now())]),
    );
    this.#firstWaitMs = first ? this.#intervalMs : 0;
    if (first) this.#note(first);
  }

  get statuses(): DeviceStatus[] {
    return [...this.#statuses.values()];
  }

  /**
   * Starts with a reading at once, or after the interval if there was a first reading. Does nothing
   * without devices.
   */
  start(): void {
    if (this.#cancelNext || this.#statuses.size === 0) return;
    if (this.#stopping.signal.aborted) this.#stopping = new AbortController();
    this.#plan(this.#firstWaitMs);
  }

  /** Aborts a running reading without reporting it. */
  stop(): void {
    this.#cancelNext?.();
    this.#cancelNext = undefined;
    this.#stopping.abort();
    this.#reading = undefined;
  }

  #plan(waitMs: number): void {
    const cancel = this.#clock.after(waitMs, () => {
      void this.readNow().then(() => {
        // Stopped, or stopped and restarted, meanwhile.
        if (this.#cancelNext === cancel) this.#plan(this.#intervalMs);
      });
    });
    this.#cancelNext = cancel;
  }

  /** Reads once, in addition to the interval; never two readings at a time. Never rejects. */
  readNow(): Promise<void> {
    if (this.#reading) return this.#reading.done;
    const current = { done: this.#readOnce(this.#stopping.signal) };
    this.#reading = current;
    const end = () => {
      if (this.#reading === current) this.#reading = undefined;
    };
    return current.done.then(end);
  }

  async #readOnce(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const reading = await this.#options.read(signal).catch(explainRejection);
    if (signal.aborted) return;
    const { onChange, onReading } = this.#options;
    for (const { before, status } of this.#note(reading)) onChange(status, before);
    onReading();
  }

  /** @returns the devices whose state of health has changed */
  #note(reading: SmiReading): { status: DeviceStatus; before: DeviceHealth }[] {
    const now = this.#clock.now();
    const changes: { status: DeviceStatus; before: DeviceHealth }[] = [];
    for (const [uuid, before] of this.#statuses) {
      const view = viewDevice(before.found, reading);
      const judged = { health: before.health, reading: view.reading, now, policy: this.#policy };
      const isCurrent = view.measured !== undefined;
      const status = { ...before, ...view.measured, isCurrent, health: judgeReading(judged) };
      this.#statuses.set(uuid, status);
      const isChanged = status.health.state.name !== before.health.state.name;
      if (isChanged) changes.push({ status, before: before.health });
    }
    return changes;
  }
}

function explainRejection(error: unknown): SmiReading {
  const reason = error instanceof Error ? error.message : String(error);
  return { kind: 'fault', fault: 'failed', reason, remedy: 'see the reason' };
}

function startStatus(found: FoundDevice, now: number): DeviceStatus {
  const memory = { totalBytes: found.device.memoryBytes, usedBytes: undefined };
  return {
    found,
    health: startHealth(now),
    isCurrent: false,
    memory,
    utilization: undefined,
    temperatureC: undefined,
  };
}

interface DeviceView {
  reading: DeviceReading;
  measured?: Pick<DeviceStatus, 'memory' | 'utilization' | 'temperatureC'>;
}

/** Extracts one device from a report of nvidia-smi. */
function viewDevice(found: FoundDevice, answer: SmiReading): DeviceView {
  if (answer.kind === 'report') return viewInReport(found, answer.report, answer.lostBusIds);
  if (answer.fault === 'missing' || answer.fault === 'mismatch') {
    return { reading: { kind: 'unreadable', reason: answer.reason } };
  }
  if (answer.fault !== 'lost' || answer.pciBusId === undefined) {
    return { reading: { kind: 'unread', reason: answer.reason } };
  }
  // A lost card can prevent nvidia-smi from reporting the others, which are not at fault.
  const isThis = answer.pciBusId === found.pciBusId;
  return { reading: isThis ? { kind: 'lost', reason: answer.reason } : { kind: 'skipped' } };
}

function viewInReport(
  found: FoundDevice,
  report: SmiReport,
  lostBusIds: readonly string[],
): DeviceView {
  const parentUuid = found.mig?.parentUuid ?? found.device.uuid;
  const gpu = report.gpus.find(
    ({ uuid, pciBusId }) => uuid === parentUuid || (uuid === '' && pciBusId === found.pciBusId),
  );
  if (gpu?.isLost || lostBusIds.includes(found.pciBusId)) {
    return {
      reading: { kind: 'lost', reason: `the driver has lost the GPU at ${found.pciBusId}` },
    };
  }
  if (!gpu) return { reading: { kind: 'lost', reason: 'nvidia-smi no longer lists it' } };
  if (!found.mig && gpu.isMigEnabled) {
    return { reading: { kind: 'lost', reason: 'it was switched to MIG mode' } };
  }
  const { utilization, temperatureC } = gpu;
  const part = found.mig ? findPart(found, gpu) : undefined;
  if (found.mig && !part) {
    return { reading: { kind: 'lost', reason: 'its MIG instance is gone' } };
  }
  const memory = part?.memory ?? gpu.memory;
  // Errors in one instance do not affect its neighbours.
  const eccVolatile = part?.eccVolatile ?? gpu.eccVolatile;
  const eccAggregate = part ? undefined : gpu.eccAggregate;
  return {
    reading: { ...gpu, kind: 'read', eccVolatile, eccAggregate },
    measured: { memory, utilization, temperatureC },
  };
}

function findPart({ mig, device }: FoundDevice, gpu: SmiGpu) {
  return gpu.migDevices.find(
    ({ uuid, gpuInstanceId, computeInstanceId }) =>
      uuid === device.uuid ||
      (uuid === undefined &&
        gpuInstanceId === mig?.gpuInstanceId &&
        computeInstanceId === mig.computeInstanceId),
  );
}
