// Measures a run's use of resources as shares of its limits. Processor time is measured between two
// samples.
import { availableParallelism, totalmem } from 'node:os';
import {
  findBeneath,
  type ProcessEntry,
  readProcess,
  readProcesses,
  readResidentBytes,
  TICKS_PER_SECOND,
} from '../../base/process/process-table.ts';
import { type ContainerSpec, type ContainerStats, toShare } from '../engine.ts';
import { listMembers } from './cgroups.ts';
import type { RunningRun, RunRecord } from './runs.ts';

const BYTES_PER_GB = 1_073_741_824;

interface CpuSample {
  /** File of the run. */
  file: string;
  /** Unix ms. */
  at: number;
  cpuTicks: number;
}

export class UsageMeter {
  /** Last samples by ID. */
  readonly #samples = new Map<string, CpuSample>();

  /** Since the last sample of this run, or since its start. */
  measure(
    { id, limits }: ContainerSpec,
    { file, record }: RunningRun,
    now: number,
  ): Omit<ContainerStats, 'gpus'> {
    const processes = findProcesses(record);
    const known = this.#samples.get(id);
    const before = known?.file === file ? known : { at: record.startedAt, cpuTicks: 0 };
    const cpuTicks = sum(processes.map((process) => process.cpuTicks));
    this.#samples.set(id, { file, at: now, cpuTicks });
    const seconds = Math.max(1, now - before.at) / 1_000;
    const used = (cpuTicks - before.cpuTicks) / TICKS_PER_SECOND / seconds;
    const residentBytes = sum(processes.map(({ pid }) => readResidentBytes(pid)));
    return {
      cpu: toShare(used / (limits?.vcpus ?? availableParallelism())),
      memory: toShare(residentBytes / (limits ? limits.memoryGb * BYTES_PER_GB : totalmem())),
    };
  }

  forget(id: string): void {
    this.#samples.delete(id);
  }
}

/** From a group, if there is one: cheaper than scanning all processes of the machine. */
function findProcesses({ groups, leader }: RunRecord): ProcessEntry[] {
  if (groups.tracking === null) return findBeneath(new Set([leader.pid]), readProcesses());
  return listMembers(groups.tracking)
    .map(readProcess)
    .filter((entry) => entry !== undefined);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
