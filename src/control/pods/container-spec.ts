// Builds the engine's container spec from a pod.
import { hash } from 'node:crypto';
import {
  type Container,
  type ContainerMount,
  type ContainerPort,
  type ContainerSpec,
  EngineError,
  type StateVolume,
} from '../../engine/engine.ts';
import type { PodCatalog } from './pod-spec.ts';
import type { PodState } from './pod-state.ts';

/** Name of a pod's own volume; a pod has at most one. */
const OWN_VOLUME = 'persistent';
/** The URL at which a container's worker calls the platform: an engine does not show the environment. */
const URL_LABEL = 'millrace.url';

/** Undefined: the container is not a worker. */
export function findPlatformUrl({ labels }: Pick<Container, 'labels'>): string | undefined {
  return labels[URL_LABEL];
}

export interface ContainerSpecSource {
  pod: PodState;
  catalog: PodCatalog;
  /** Variables that are not stored; they override the pod's own. */
  environment: Readonly<Record<string, string>>;
  /** Default: none. */
  stateVolume?: StateVolume | undefined;
}

/**
 * @throws EngineError `refused` if something that it needs is no longer in the catalog, `unavailable` if its secrets cannot
 * be decrypted
 */
export function createContainerSpec({
  catalog,
  environment,
  pod,
  stateVolume,
}: ContainerSpecSource): ContainerSpec {
  const { endpointId, generation, gpus, id, spec, userId } = pod;
  const { args, cpu, disk, env, handler, image, kubernetes, ports, version } = spec;
  if (spec.unopened) {
    const detail = `the variables of the pod cannot be decrypted: ${spec.unopened.why}`;
    throw new EngineError('unavailable', detail);
  }
  const url = environment['MILLRACE_URL'];
  return {
    ...{ id, generation, image, args, handler, gpus },
    ...(version !== undefined && { runsVersion: true }),
    labels: {
      'millrace.user': userId,
      ...(endpointId === null ? {} : { 'millrace.endpoint': endpointId }),
      ...(url !== undefined && { [URL_LABEL]: url }),
    },
    env: { ...env, ...environment },
    ports: ports.map(readPort),
    diskGb: disk,
    registry: findRegistry(pod, catalog),
    mounts: listMounts(pod, catalog),
    ...(stateVolume && { stateVolume }),
    limits: cpu ? { vcpus: cpu.vcpuCount, memoryGb: cpu.memory } : null,
    network: spec.globalNetworking ? nameNetwork(userId) : null,
    ...(kubernetes && { kubernetes }),
  };
}

/** `<port>/<protocol>`, validated by the schema. */
function readPort(port: string): ContainerPort {
  const [number = '', name] = port.split('/');
  const protocol = name === 'http' || name === 'udp' ? name : 'tcp';
  return { private: Number(number), protocol };
}

/** Engines allow fewer characters in a name than the API. */
function nameNetwork(userId: string): string {
  return `user-${hash('sha256', userId, 'hex').slice(0, 16)}`;
}

function findRegistry({ spec, userId }: PodState, catalog: PodCatalog): ContainerSpec['registry'] {
  if (spec.registry === null) return null;
  const login = catalog.registry(userId, spec.registry);
  if (login) return login;
  throw new EngineError('refused', `the registry ${spec.registry} does not exist any more`);
}

function listMounts({ spec, userId }: PodState, catalog: PodCatalog): ContainerMount[] {
  const { network = [], persistent } = spec.mounts;
  const own: ContainerMount[] = persistent
    ? [{ kind: 'persistent', source: OWN_VOLUME, path: persistent.path, sizeGb: persistent.size }]
    : [];
  const shared = network.map(({ path, volumeId }): ContainerMount => {
    const volume = catalog.volume(userId, volumeId);
    if (volume) {
      const { sizeGb, source } = volume;
      return { kind: 'network', source, path, ...(sizeGb !== undefined && { sizeGb }) };
    }
    throw new EngineError('refused', `the network volume ${volumeId} does not exist any more`);
  });
  return [...own, ...shared];
}
