// What a Kubernetes cluster can do for a pod, whatever the cluster, within the limits of the operator.
import type { EngineCapabilities } from '../engine.ts';
import type { KubernetesSettings } from './settings.ts';

const CAPABILITIES: Omit<EngineCapabilities, 'kubernetes'> = {
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

export function describeCapabilities({
  templates,
}: Pick<KubernetesSettings, 'templates'>): EngineCapabilities {
  return { ...CAPABILITIES, kubernetes: templates };
}
