// Measures the utilization of GPUs in pods with nvidia-smi. One reading serves all calls within two
// seconds.
import { type Clock, systemClock } from '../base/clock.ts';
import type { ContainerStats } from '../engine/engine.ts';
import { readNvidiaSmi, type SmiReading } from '../worker/gpu/nvidia-smi.ts';
import type { SmiGpu } from '../worker/gpu/nvidia-smi-report.ts';

const READING_SERVES_MS = 2_000;

export class GpuUsage {
  readonly #command: string;
  readonly #clock: Clock;
  #reading: Promise<SmiReading> | undefined;
  #readAt = 0;

  /** `command`: path of nvidia-smi. */
  constructor(command: string, clock: Clock = systemClock) {
    this.#command = command;
    this.#clock = clock;
  }

  /**
   * Returns the GPUs that were found, in the order of the UUIDs; none if the driver does not
   * respond.
   */
  async measure(uuids: readonly string[]): Promise<ContainerStats['gpus']> {
    if (uuids.length === 0) return [];
    const reading = await this.#read();
    if (reading.kind === 'fault') return [];
    const { gpus } = reading.report;
    return uuids.flatMap((uuid) => gpus.filter((gpu) => gpu.uuid === uuid).map(describe));
  }

  #read(): Promise<SmiReading> {
    const now = this.#clock.now();
    if (!this.#reading || now - this.#readAt > READING_SERVES_MS) {
      this.#readAt = now;
      this.#reading = readNvidiaSmi({ command: this.#command });
    }
    return this.#reading;
  }
}

function describe({ memory, utilization = 0 }: SmiGpu): ContainerStats['gpus'][number] {
  const { totalBytes = 0, usedBytes = 0 } = memory;
  const share = totalBytes > 0 ? Math.round((usedBytes / totalBytes) * 100) : 0;
  return { util: Math.round(utilization), memoryUtil: Math.min(100, share) };
}
