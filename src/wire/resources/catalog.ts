// Schemas of the catalog: GPU types and CPU flavors with their prices, and data centers with what their engine can do for
// a pod.
import { z } from 'zod';
import { kubernetesLimits } from '../engine/kubernetes.ts';
import { answerJson, describeOperations, PAGE_PARAMETERS } from '../operations/operation.ts';
import { describePage } from '../operations/resource.ts';
import { CATALOG_ROUTES } from '../routes/routes.ts';

export const engineCapabilities = z.object({
  gpus: z
    .enum(['uuid', 'type'])
    .describe('`uuid`: the platform chooses the GPUs of a pod; `type`: the engine does'),
  gpusAtStart: z
    .boolean()
    .describe(
      'Whether a stopped pod starts again with any free GPUs of its type; otherwise it needs those of its first start',
    ),
  disk: z.object({
    keptOverStop: z
      .boolean()
      .describe(
        'Whether a stopped pod keeps its disk; otherwise only pods with a mount, and workers, can be stopped',
      ),
    limit: z
      .enum(['always', 'some', 'never'])
      .describe('Whether `disk` is a limit; `some`: if the storage of the machine can enforce it'),
  }),
  limits: z.object({
    memory: z.boolean().describe('Whether `cpu.memory` is enforced'),
    cpu: z.boolean().describe('Whether `cpu.vcpuCount` is enforced'),
    processes: z.boolean().describe('Whether the number of processes of a pod is limited'),
  }),
  globalNetworking: z.boolean().describe('Whether pods of one user can share a network'),
  ports: z.object({
    protocols: z.array(z.enum(['http', 'tcp', 'udp'])),
    reach: z
      .enum(['machine', 'cluster'])
      .describe('From where ports can be reached: the machine of the engine, or only its cluster'),
  }),
  mounts: z.object({
    persistent: z.boolean(),
    sizeLimit: z
      .enum(['always', 'some', 'never'])
      .describe(
        'Whether the size of a network volume or a persistent mount is a limit; `some`: if its storage can enforce it',
      ),
    network: z
      .array(z.enum(['folder', 'name']))
      .describe('What a declared network volume may be: a folder of the machine, or a name'),
  }),
  registries: z.boolean().describe('Whether images are pulled, with logins of registries'),
  healthChecks: z.boolean().describe("Whether the engine runs an image's health check"),
  kubernetes: kubernetesLimits
    .nullable()
    .default(null)
    .describe(
      'What `kubernetes` of pods and templates may contain; null: the engine is not Kubernetes',
    ),
});
export type EngineCapabilitiesRecord = z.infer<typeof engineCapabilities>;

export const gpuType = z.object({
  id: z.string(),
  name: z.string(),
  memory: z.number().describe('GB of each GPU'),
  price: z.number().describe('USD per hour for one GPU'),
  total: z.int().describe('Number of these GPUs that the engine has'),
  available: z.int().describe('Number of these GPUs that no pod holds now'),
});
export type GpuType = z.infer<typeof gpuType>;

export const cpuFlavor = z.object({
  id: z.string(),
  name: z.string(),
  vcpuCounts: z.array(z.int()).describe('Allowed numbers of vCPUs'),
  maxMemory: z.int().describe('Maximum memory of one pod, GB'),
  vcpuPrice: z.number().describe('USD per hour for one vCPU'),
  memoryPrice: z.number().describe('USD per hour for one GB of memory'),
});
export type CpuFlavor = z.infer<typeof cpuFlavor>;

export const dataCenter = z.object({
  id: z.string(),
  name: z.string(),
  default: z.boolean().describe('Pods that name no data center and mount no volume run here'),
  engine: z
    .string()
    .nullable()
    .describe('What runs the containers: `process`, `docker`, …; null: pods cannot run'),
  capabilities: engineCapabilities
    .nullable()
    .describe('What the engine can do for a pod; null: pods cannot run'),
  gpuTypes: z.array(z.string()).describe('IDs of the GPU types that have a GPU here'),
  networkVolumes: z.boolean().describe('Whether network volumes can be created and mounted here'),
  networkVolumePrice: z
    .number()
    .describe('USD for one GB of a network volume in a month of 730 hours'),
});
export type DataCenter = z.infer<typeof dataCenter>;

export const gpuTypeList = describePage('gpus', gpuType);
export const cpuFlavorList = describePage('cpus', cpuFlavor);
export const dataCenterList = describePage('dataCenters', dataCenter);

/** Of the example. */
const DOCKER: EngineCapabilitiesRecord = {
  gpus: 'uuid',
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

export const CATALOG_OPERATIONS = describeOperations('catalog', CATALOG_ROUTES, {
  listGpuTypes: {
    summary: 'List GPU types with their price and how many are free',
    query: PAGE_PARAMETERS,
    answers: answerJson(gpuTypeList, 'One page.', {
      gpus: [
        {
          id: 'NVIDIA H200',
          name: 'H200',
          memory: 141,
          price: 3.59,
          total: 8,
          available: 5,
        },
      ],
    }),
  },
  listCpuFlavors: {
    summary: 'List CPU flavors with their prices',
    query: PAGE_PARAMETERS,
    answers: answerJson(cpuFlavorList, 'One page.', {
      cpus: [
        {
          id: 'cpu',
          name: 'General purpose',
          vcpuCounts: [2, 4, 8],
          maxMemory: 64,
          vcpuPrice: 0.02,
          memoryPrice: 0.005,
        },
      ],
    }),
  },
  listDataCenters: {
    summary: 'List data centers, and what pods can use in each',
    query: PAGE_PARAMETERS,
    answers: answerJson(dataCenterList, 'One page.', {
      dataCenters: [
        {
          id: 'north',
          name: 'North hall',
          default: true,
          engine: 'docker',
          capabilities: DOCKER,
          gpuTypes: ['NVIDIA H200'],
          networkVolumes: true,
          networkVolumePrice: 0.07,
        },
      ],
    }),
  },
});
