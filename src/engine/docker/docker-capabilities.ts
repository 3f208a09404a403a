// What every Docker-compatible engine can do for a pod, with the restrictions that the platform sets by default.
import type { EngineCapabilities } from '../engine.ts';

export const DOCKER_CAPABILITIES: EngineCapabilities = {
  gpus: 'uuid',
  // Devices are a part of the container, and its disk is too.
  gpusAtStart: false,
  disk: { keptOverStop: true, limit: 'some' },
  limits: { memory: true, cpu: true, processes: true },
  globalNetworking: true,
  ports: { protocols: ['http', 'tcp', 'udp'], reach: 'machine' },
  mounts: { persistent: true, network: ['folder', 'name'], sizeLimit: 'some' },
  registries: true,
  healthChecks: true,
  kubernetes: null,
};
