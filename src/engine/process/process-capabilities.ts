// What the process engine can do for a pod. The limits are those for which this machine lets the platform create
// control groups.
import type { EngineCapabilities } from '../engine.ts';
import type { CgroupHome } from './cgroups.ts';

/** `maxProcesses`: of a pod; 0: no limit. */
export function describeCapabilities(
  { cpu, memory, pids }: CgroupHome,
  maxProcesses: number,
): EngineCapabilities {
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
    mounts: { persistent: true, network: ['folder', 'name'] },
    registries: false,
    healthChecks: false,
  };
}
