// Creates the pods of an endpoint's workers: on which hardware, with which version of the handler.
import type { CpuFlavor } from '../../wire/resources/catalog.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type { PodCreation } from '../../wire/resources/pod.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';
import { listMounts } from '../endpoints/deployment.ts';
import { DEFAULT_DISK_GB } from '../pods/pod-spec.ts';
import type { PodSpec } from '../pods/pod-state.ts';
import type { Pods } from '../pods/pods.ts';
import { candidateOf } from '../versions/rollout.ts';
import { chooseGpuTypes, countFreeGpus } from './gpu-choice.ts';
import type { DeployedEndpoint } from './worker-reconcile.ts';

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
    place: { gpu: string | null; version?: number },
  ): Promise<StartedWorker> {
    const { gpu } = place;
    const creation: PodCreation = {
      name: `${deployment.name.slice(0, 190)} worker`,
      template: deployment.templateId,
      ...(gpu === null ? { cpu: this.#chooseCpu() } : { gpu: { id: gpu, count: 1 } }),
      mounts: listMounts(deployment),
      ...{ cloud: 'SECURE', dataCenterId: null },
      ...{ globalNetworking: false, locked: false },
    };
    const { version = deployment.version } = place;
    const pod = await this.#options.pods.create(userId, creation, {
      endpointId: id,
      handler: version === undefined ? (template?.handler ?? null) : null,
      version,
      templateVersion: template?.version ?? 0,
    });
    return { pod: pod.id, gpu };
  }

  /** Starts the check worker of a rollout. @throws ProblemError */
  async startCheck(
    endpoint: DeployedEndpoint,
    template: TemplateRecord | undefined,
  ): Promise<void> {
    const { gpuTypeIds } = endpoint.deployment;
    const version = candidateOf(endpoint.deployment);
    if (version === undefined) return;
    const [gpu = null] =
      gpuTypeIds.length === 0 ? [] : chooseGpuTypes(this.countFree(gpuTypeIds), 1);
    await this.start(endpoint, template, { gpu, version });
  }

  /** The smallest size of the first flavor: an endpoint cannot ask for a larger one without a GPU. */
  #chooseCpu(): NonNullable<PodCreation['cpu']> {
    const [flavor] = this.#options.catalog.listCpus({ before: undefined, limit: 1 }).cpus;
    if (!flavor) throw new Error('the catalog has no CPU flavor');
    const vcpuCount = Math.min(...flavor.vcpuCounts);
    const memory = Math.min(flavor.maxMemory, MEMORY_PER_VCPU * vcpuCount);
    return { id: flavor.id, vcpuCount, memory };
  }
}
