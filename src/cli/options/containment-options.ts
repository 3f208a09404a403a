// Options that loosen the restrictions of pods.

import { type Containment, USUAL_CAPABILITIES } from '../../platform/defaults.ts';
import { flag, integer, text, UsageError } from '../options.ts';

const NAME = /^(?:CAP_)?([A-Z][A-Z_]*)$/;

export const containmentOptions = {
  containerPids: integer({
    min: 0,
    max: 4_194_304,
    default: 4_096,
    env: 'MILLRACE_CONTAINER_PIDS',
    section: 'advanced',
    help: '--engine docker or process: maximum number of processes and threads of one pod; 0: no limit',
  }),
  containerCapabilities: text({
    placeholder: 'LIST',
    default: 'usual',
    env: 'MILLRACE_CONTAINER_CAPABILITIES',
    section: 'advanced',
    help: "--engine docker: Linux capabilities of containers, for example usual,SYS_CHROOT; usual: those that most images need; engine: the engine's defaults; none: no capabilities",
  }),
  containerNewPrivileges: flag({
    env: 'MILLRACE_CONTAINER_NEW_PRIVILEGES',
    section: 'advanced',
    help: '--engine docker: let programs in containers gain privileges, as sudo does; default: not allowed',
  }),
  containerGpuMemory: integer({
    min: 0,
    max: 65_536,
    placeholder: 'GB',
    env: 'MILLRACE_CONTAINER_GPU_MEMORY',
    section: 'advanced',
    help: "--engine docker: memory limit of a pod for each of its GPUs, GB; 0: no limit; default: 90 % of the machine's memory divided by its GPUs",
  }),
} as const;

interface ContainmentValues {
  containerPids: number;
  containerCapabilities: string;
  containerNewPrivileges: boolean;
  containerGpuMemory: number | undefined;
}

/** @throws UsageError */
export function readContainment(values: ContainmentValues): Containment {
  return {
    pids: values.containerPids,
    capabilities: readCapabilities(values.containerCapabilities),
    newPrivileges: values.containerNewPrivileges ? 'allowed' : 'forbidden',
    memoryPerGpuGb: values.containerGpuMemory ?? null,
  };
}

function readCapabilities(given: string): Containment['capabilities'] {
  if (given === 'engine') return 'engine';
  if (given === 'none' || given === '') return [];
  return given.split(',').flatMap((word) => {
    if (word.trim() === 'usual') return [...USUAL_CAPABILITIES];
    const [, name] = NAME.exec(word.trim().toUpperCase()) ?? [];
    if (name !== undefined) return name;
    throw new UsageError(
      `--container-capabilities: ${word}: unknown capability; write a name such as SYS_CHROOT`,
    );
  });
}
