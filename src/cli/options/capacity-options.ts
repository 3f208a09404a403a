// `serve --overcommit` and `--machine`: what all pods together may ask for.
import { statfsSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';
import { constrainedMemory } from 'node:process';
import {
  type Amounts,
  DEFAULT_OVERCOMMIT,
  limitAmounts,
  type Overcommit,
} from '../../control/limits/capacity.ts';
import { text } from '../options.ts';
import type { EngineKind } from '../platform/engine-options.ts';
import { readNumbers } from './named-numbers.ts';

const GB = 1_073_741_824;
const FACTOR = { min: 1, max: 1_000 };
const AMOUNT = { min: 1, max: 100_000_000 };

export const capacityOptions = {
  overcommit: text({
    default: `vcpus=${DEFAULT_OVERCOMMIT.vcpus}, disk=${DEFAULT_OVERCOMMIT.disk}`,
    placeholder: 'FACTORS',
    env: 'MILLRACE_OVERCOMMIT',
    help: 'factors by which pods together may exceed the vCPUs and the disk of the machine; memory is never overcommitted',
    section: 'advanced',
  }),
  machine: text({
    placeholder: 'AMOUNTS',
    env: 'MILLRACE_MACHINE',
    help:
      'capacity that pods share: memory=GB,vcpus=N,disk=GB; default: this machine, with the file ' +
      'system of --data; set it if the engine is on another machine',
    section: 'advanced',
  }),
};

/** Amounts that the operator does not give are undefined. */
export interface CapacityChoice {
  overcommit: Overcommit;
  machine: Partial<Amounts>;
}

/** @throws UsageError */
export function readCapacity(values: {
  overcommit: string;
  machine: string | undefined;
}): CapacityChoice {
  const factors = readNumbers('--overcommit', values.overcommit, { vcpus: FACTOR, disk: FACTOR });
  const ranges = { memory: AMOUNT, vcpus: AMOUNT, disk: AMOUNT };
  const given =
    values.machine === undefined ? {} : readNumbers('--machine', values.machine, ranges);
  const { disk, memory, vcpus } = given;
  return {
    overcommit: { ...DEFAULT_OVERCOMMIT, ...factors },
    machine: {
      ...(memory !== undefined && { memoryGb: memory }),
      ...(vcpus !== undefined && { vcpus }),
      ...(disk !== undefined && { diskGb: disk }),
    },
  };
}

export interface MachineOptions {
  engine: EngineKind;
  dataFolder: string;
}

/** Amounts that the operator does not give are measured on this machine. */
export function measureLimits(
  { machine, overcommit }: CapacityChoice,
  options: MachineOptions,
): Amounts {
  return limitAmounts({ ...measureMachine(options), ...machine }, overcommit);
}

function measureMachine({ dataFolder, engine }: MachineOptions): Amounts {
  // Pods of the process engine share the limit that this process may itself be under.
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
