// Creates the pods of an endpoint's workers: on which hardware, with which version of the handler. A worker gets the
// first GPU type of the endpoint's list with a free device, without those for which a cluster has no capacity.
import type { CpuFlavor } from '../../wire/resources/catalog.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type { PodCreation } from '../../wire/resources/pod.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';
import { listMounts } from '../endpoints/endpoint-records.ts';
import { spareParked } from '../limits/capacity.ts';
import { DEFAULT_DISK_GB } from '../pods/pod-spec.ts';
import type { PodSpec, PodState } from '../pods/pod-state.ts';
import type { Pods } from '../pods/pods.ts';
import { candidateOf } from '../versions/rollout.ts';
import type { DeployedEndpoint } from './workforce.ts';

/** Memory for each vCPU of a worker without a GPU, GB. */
const MEMORY_PER_VCPU = 2;

export interface WorkerStarterOptions {
  pods: Pick<Pods, 'all' | 'create' | 'headroomFor'>;
  catalog: WorkerCatalog;
}

/** The hardware on which workers can be created. */
export interface WorkerCatalog {
  /** UUIDs of all devices of the type. */
  gpuDevices(typeId: string): readonly string[];
  /** Bytes of all GPUs of a pod; Infinity if that is not known. */
  gpuMemoryOf(spec: Pick<PodSpec, 'gpu'>): number;
  listCpus(page: { before: number | undefined; limit: number }): { cpus: readonly CpuFlavor[] };
  /** USD per hour. */
  priceOf(spec: PodSpec): number;
}

export interface StartedWorker {
  pod: string;
  gpu: string | null;
}

export class WorkerStarter {
  readonly #options: WorkerStarterOptions;

  constructor(options: WorkerStarterOptions) {
    this.#options = options;
  }

  /** Undefined: as many workers fit as the endpoint may have. */
  findHeadroom({ gpuTypeIds, workersMax }: EndpointDeployment, template?: TemplateRecord) {
    const cpu = gpuTypeIds.length === 0 ? { cpu: this.#chooseCpu() } : {};
    const spec = { ...cpu, disk: template?.disk ?? DEFAULT_DISK_GB, mounts: {} };
    // One more than workersMax: a rolling replacement starts the new worker first.
    return this.#options.pods.headroomFor(spec, workersMax + 1);
  }

  /** Free GPUs by type. */
  countFree(types: readonly string[]): Map<string, number> {
    const { catalog, pods } = this.#options;
    return countFreeGpus(types, { devicesOf: (id) => catalog.gpuDevices(id), pods: pods.all() });
  }

  /** With the endpoint's version, unless `place` names another one. @throws ProblemError */
  async start(
    { deployment, id, userId }: DeployedEndpoint,
    template: TemplateRecord | undefined,
    place: { gpu: string | null; version?: number; isSpare?: boolean },
  ): Promise<StartedWorker> {
    const { gpu, isSpare = false } = place;
    const creation: PodCreation = {
      name: `${deployment.name.slice(0, 190)} worker`,
      template: deployment.templateId,
      ...(gpu === null ? { cpu: this.#chooseCpu() } : { gpu: { id: gpu, count: 1 } }),
      mounts: listMounts(deployment),
      cloud: 'SECURE',
      dataCenterId: null,
      globalNetworking: false,
      locked: false,
    };
    const { version = deployment.version } = place;
    const pod = await this.#options.pods.create(userId, creation, {
      endpointId: id,
      handler: version === undefined ? (template?.handler ?? null) : null,
      version,
      templateVersion: template?.version ?? 0,
      isSpare,
    });
    return { pod: pod.id, gpu };
  }

  /** Starts the check worker of a rollout. `free`: GPUs by type. @throws ProblemError */
  async startCheck(
    endpoint: DeployedEndpoint,
    template: TemplateRecord | undefined,
    free: ReadonlyMap<string, number>,
  ): Promise<void> {
    const version = candidateOf(endpoint.deployment);
    if (version === undefined) return;
    const [gpu = null] = chooseGpuTypes(free, 1);
    await this.start(endpoint, template, { gpu, version });
  }

  /** The smallest size of the first flavor: an endpoint cannot ask for a larger one without a GPU. */
  #chooseCpu(): NonNullable<PodCreation['cpu']> {
    return chooseCpu(this.#options.catalog);
  }
}

/** Of workers without a GPU. */
export function chooseCpu(
  catalog: Pick<WorkerCatalog, 'listCpus'>,
): NonNullable<PodCreation['cpu']> {
  const [flavor] = catalog.listCpus({ before: undefined, limit: 1 }).cpus;
  if (!flavor) throw new Error('the catalog has no CPU flavor');
  const vcpuCount = Math.min(...flavor.vcpuCounts);
  const memory = Math.min(flavor.maxMemory, MEMORY_PER_VCPU * vcpuCount);
  return { id: flavor.id, vcpuCount, memory };
}

interface GpuStock {
  /** UUIDs of all devices of a type. */
  devicesOf: (typeId: string) => readonly string[];
  pods: readonly PodState[];
}

/** Free devices of each type, without as many as pods wait for. Those that parked workers are bound to are the last. */
export function listFreeGpus(
  types: readonly string[],
  { devicesOf, pods }: GpuStock,
): Map<string, string[]> {
  const held = new Set(pods.flatMap(({ gpus }) => gpus));
  return new Map(
    types.map((type) => {
      const free = spareParked(devicesOf(type), pods).filter((device) => !held.has(device));
      return [type, free.slice(countAwaited(type, pods))];
    }),
  );
}

/** Number of free devices of each type that nobody waits for. */
export function countFreeGpus(types: readonly string[], stock: GpuStock): Map<string, number> {
  return new Map([...listFreeGpus(types, stock)].map(([type, free]) => [type, free.length]));
}

function countAwaited(type: string, pods: readonly PodState[]): number {
  const waiting = pods.filter(
    ({ desired, gpus, parked, spec }) =>
      desired === 'running' && gpus.length === 0 && !parked && spec.gpu?.id === type,
  );
  return waiting.reduce((sum, { spec }) => sum + (spec.gpu?.count ?? 0), 0);
}

/** Returns a type for each of at most `count` workers, `first` ones first; fewer if too few devices are free. */
export function chooseGpuTypes(
  free: ReadonlyMap<string, number>,
  count: number,
  first: readonly string[] = [],
): string[] {
  const offered = [...free].flatMap(([type, number]) => {
    const left = number - first.filter((each) => each === type).length;
    return new Array<string>(Math.max(0, left)).fill(type);
  });
  return [...first, ...offered].slice(0, count);
}

/** After that time the type is tried again, ms. A cluster that adds machines needs minutes for one. */
export const CROWDED_MS = 5 * 60_000;

/**
 * Remembers the GPU types for which a cluster has no capacity, so that an endpoint moves on to its next type at once.
 * Only in memory: a new platform process learns them again.
 */
export class CrowdedGpus {
  /** By GPU type, when it is tried again, Unix ms. */
  readonly #until = new Map<string, number>();

  /** A worker waits for capacity of this type. */
  note(gpuType: string, now: number): void {
    if (!this.has(gpuType, now)) this.#until.set(gpuType, now + CROWDED_MS);
  }

  has(gpuType: string, now: number): boolean {
    return (this.#until.get(gpuType) ?? 0) > now;
  }

  /** The free devices without those of crowded types. */
  withoutCrowded(free: ReadonlyMap<string, number>, now: number): Map<string, number> {
    return new Map([...free].map(([type, count]) => [type, this.has(type, now) ? 0 : count]));
  }

  /**
   * Of workers that wait for capacity, those that another type of the endpoint's list can replace: at most as many as it has
   * free devices. A worker of the last type stays, because the cluster may still add a machine for it.
   */
  findMovable(
    waiting: readonly PodState[],
    free: ReadonlyMap<string, number>,
    now: number,
  ): Set<string> {
    const left = this.withoutCrowded(free, now);
    const places = [...left.values()].reduce((sum, count) => sum + count, 0);
    return new Set(waiting.slice(0, places).map(({ id }) => id));
  }
}
