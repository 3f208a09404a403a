// What a Kubernetes cluster can do for a pod, whatever the cluster.
import type { EngineCapabilities } from '../engine.ts';

export const KUBERNETES_CAPABILITIES: EngineCapabilities = {
  gpus: 'type',
  gpusAtStart: true,
  // The kubelet evicts a Pod that uses more.
  disk: { keptOverStop: false, limit: 'always' },
  // The number of processes is a setting of the kubelet.
  limits: { memory: true, cpu: true, processes: false },
  globalNetworking: false,
  ports: { protocols: ['http', 'tcp', 'udp'], reach: 'cluster' },
  // The storage class decides.
  mounts: { persistent: true, network: ['name'], sizeLimit: 'some' },
  registries: true,
  healthChecks: false,
};
