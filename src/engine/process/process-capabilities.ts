// What the process engine can do for a pod. The limits are those for which this machine lets the platform create
// control groups.
import type { EngineCapabilities } from '../engine.ts';
import type { CgroupHome } from './cgroups.ts';

interface ProcessMachine {
  groups: CgroupHome;
  /** Of a pod; 0: no limit. */
  maxProcesses: number;
  /** The file system of volumes and disks has project quotas, and the platform may set them. */
  limitsFolders: boolean;
}

export function describeCapabilities({
  groups: { cpu, memory, pids },
  limitsFolders,
  maxProcesses,
}: ProcessMachine): EngineCapabilities {
  return {
    gpus: 'uuid',
    gpusAtStart: true,
    disk: { keptOverStop: true, limit: 'some' },
    limits: {
      memory: memory !== null,
      cpu: cpu !== null,
      processes: pids !== null && maxProcesses > 0,
    },
    globalNetworking: false,
    ports: { protocols: ['http', 'tcp', 'udp'], reach: 'machine' },
    mounts: {
      persistent: true,
      network: ['folder', 'name'],
      sizeLimit: limitsFolders ? 'always' : 'never',
    },
    registries: false,
    healthChecks: false,
    kubernetes: null,
  };
}
