// Restrictions of containers unless the operator changes them: processes, capabilities, memory
// beside GPUs. Pure.
import type { ContainerSpec } from './engine.ts';

export interface Containment {
  /** Processes and threads of a container; 0: no limit. */
  pids: number;
  /** Without the prefix CAP_; `engine`: the engine's default set. */
  capabilities: readonly string[] | 'engine';
  /** `allowed`: programs may gain privileges when they start, like sudo and su. */
  newPrivileges: 'forbidden' | 'allowed';
  /** Memory of a pod with GPUs, per GPU; null: its share of the engine's machine. 0: no limit. */
  memoryPerGpuGb: number | null;
}

/**
 * Capabilities for images that start as root and drop privileges, and for servers on ports below
 * 1024. Omitted from Docker's own set: AUDIT_WRITE, MKNOD, NET_RAW, SETFCAP, SETPCAP, SYS_CHROOT.
 */
export const USUAL_CAPABILITIES = [
  ...['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID'],
  ...['KILL', 'NET_BIND_SERVICE', 'SETGID', 'SETUID'],
] as const;

export const DEFAULT_CONTAINMENT: Containment = {
  pids: 4_096,
  capabilities: USUAL_CAPABILITIES,
  newPrivileges: 'forbidden',
  memoryPerGpuGb: null,
};

/** The rest is for the engine and its machine's system. */
const SHARED_PART = 0.9;

export function describeContainment({ capabilities, newPrivileges, pids }: Containment) {
  return {
    ...(pids > 0 && { PidsLimit: pids }),
    ...(capabilities !== 'engine' && { CapDrop: ['ALL'], CapAdd: [...capabilities] }),
    ...(newPrivileges === 'forbidden' && { SecurityOpt: ['no-new-privileges'] }),
  };
}

interface Machine {
  memoryBytes: number;
  /** Number of GPUs; 0: unknown. */
  gpus: number;
}

/** Limit for a pod with GPUs, which requests no memory; null: no limit. */
export function limitGpuMemory(
  { gpus }: Pick<ContainerSpec, 'gpus'>,
  { memoryPerGpuGb }: Containment,
  machine: Machine,
): number | null {
  if (gpus.length === 0 || memoryPerGpuGb === 0) return null;
  if (memoryPerGpuGb !== null) return memoryPerGpuGb * gpus.length * BYTES_PER_GB;
  const share = machine.gpus === 0 ? 1 : Math.min(1, gpus.length / machine.gpus);
  return Math.floor(machine.memoryBytes * SHARED_PART * share);
}

const BYTES_PER_GB = 1_073_741_824;
