// Determines the resources of all pods together: measured on this machine, or set by the operator.
import { statfsSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { constrainedMemory } from 'node:process';
import type { EngineKind } from '../control/endpoints/deployment-rules.ts';
import { type Amounts, limitAmounts, type Overcommit } from '../control/limits/capacity.ts';

const GB = 1_073_741_824;
const UNBOUNDED = 100_000_000;

/** Undefined amounts are measured. */
export interface CapacityChoice {
  overcommit: Overcommit;
  machine: Partial<Amounts>;
}

export interface MachineOptions {
  engine: EngineKind;
  dataFolder: string;
}

/** Measures the amounts that the operator does not set. */
export function measureLimits(
  { machine, overcommit }: CapacityChoice,
  options: MachineOptions,
): Amounts {
  return limitAmounts({ ...measureMachine(options), ...machine }, overcommit);
}

function measureMachine({ dataFolder, engine }: MachineOptions): Amounts {
  // The cluster knows its machines, and a quota of the namespace bounds the pods.
  if (engine === 'kubernetes') return { memoryGb: UNBOUNDED, vcpus: UNBOUNDED, diskGb: UNBOUNDED };
  // Pods of the process engine share this process's own memory limit.
  const own = engine === 'process' ? constrainedMemory() : 0;
  const memory = own > 0 ? Math.min(own, totalmem()) : totalmem();
  const { blocks, bsize } = statfsSync(dataFolder);
  return {
    memoryGb: Math.max(1, Math.floor(memory / GB)),
    vcpus: availableParallelism(),
    // A file system that reports no size has no limit.
    diskGb: blocks === 0 ? Number.MAX_SAFE_INTEGER : Math.max(1, Math.floor((blocks * bsize) / GB)),
  };
}
