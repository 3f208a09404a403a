// `serve --overcommit` and `--machine`: the resources that all pods together may request.

import { DEFAULT_OVERCOMMIT } from '../../platform/defaults.ts';
import type { CapacityChoice } from '../../platform/machine-limits.ts';
import { text } from '../options.ts';
import { readNumbers } from './named-numbers.ts';

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
