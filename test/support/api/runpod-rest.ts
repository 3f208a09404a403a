// The answers of RunPod's REST API as its document describes them, in our own words: required members, types and bounds.
import { z } from 'zod';

const uri = z.url();
const count = z.int().min(0);

const container = {
  args: z.string(),
  disk: z.int().min(1),
  env: z.record(z.string(), z.string()),
  image: z.string(),
  ports: z.array(z.string()),
  registry: z.string().nullable(),
};

const persistent = z.strictObject({ size: z.int().min(10), path: z.string() });

const queueUrls = z.strictObject({
  ...{ run: uri, runSync: uri, status: uri, stream: uri },
  ...{ cancel: uri, retry: uri, purgeQueue: uri, health: uri },
});

export const restEndpoint = z.strictObject({
  id: z.string(),
  name: z.string(),
  type: z.enum(['QUEUE', 'LOAD_BALANCER']),
  requestUrls: z.union([queueUrls, z.strictObject({ base: uri, health: uri })]),
  ...z.object(container).partial().shape,
  gpu: z
    .strictObject({
      pools: z.array(z.string()).min(1),
      count: z.int().min(1),
      allowedCudaVersions: z.array(z.string()),
      minCudaVersion: z.string().nullable(),
    })
    .optional(),
  cpu: z
    .array(z.strictObject({ id: z.string(), vcpuCount: z.int().min(2), memory: z.int().min(1) }))
    .min(1)
    .optional(),
  workers: z.strictObject({
    min: count,
    max: count,
    idleTimeout: z.int().min(1).max(3_600).optional(),
  }),
  scaling: z.union([
    z.strictObject({ type: z.literal('QUEUE_DELAY'), queueDelay: z.number().min(0.5) }),
    z.strictObject({ type: z.literal('REQUEST_COUNT'), requestCount: z.int().min(1) }),
  ]),
  dataCenterIds: z.array(z.string()),
  networkVolumes: z.array(z.string()),
  timeout: z.int(),
  flashboot: z.enum(['OFF', 'FLASHBOOT', 'PRIORITY_FLASHBOOT']),
  createdAt: z.iso.datetime(),
});

export const restTemplate = z.strictObject({
  id: z.string(),
  name: z.string(),
  ...container,
  mounts: z.strictObject({ persistent: persistent.optional() }),
  serverless: z.boolean(),
  public: z.boolean(),
  category: z.enum(['CPU', 'NVIDIA', 'AMD']),
  startSsh: z.boolean(),
  startJupyter: z.boolean(),
  allowedCudaVersions: z.array(z.string()),
});

export const restVolume = z.strictObject({
  ...{ id: z.string(), name: z.string(), dataCenter: z.string() },
  size: z.int().min(10).max(4_096),
  type: z.enum(['STANDARD', 'HIGH_PERFORMANCE']),
});

export const restRegistry = z.strictObject({ id: z.string(), name: z.string() });

const sshEndpoint = z.strictObject({
  ...{ host: z.string(), port: z.int(), username: z.string(), command: z.string() },
});

export const restPod = z.strictObject({
  ...{ id: z.string(), name: z.string(), ...container },
  status: z.enum(['PROVISIONING', 'STARTING', 'RUNNING', 'EXITED', 'ERROR', 'TERMINATED']),
  actions: z.array(z.enum(['start', 'stop', 'restart', 'terminate'])),
  mounts: z.strictObject({
    persistent: persistent.optional(),
    network: z
      .array(z.strictObject({ volumeId: z.string(), path: z.string() }))
      .max(1)
      .optional(),
  }),
  gpu: z.strictObject({ id: z.string(), count: z.int().min(1) }).optional(),
  cpu: z
    .strictObject({ id: z.string(), vcpuCount: z.int().min(2), memory: z.int().min(1) })
    .optional(),
  cloud: z.enum(['SECURE', 'COMMUNITY']),
  dataCenterId: z.string().nullable(),
  cudaVersion: z.string().nullable(),
  ssh: z.strictObject({ proxy: sshEndpoint.nullable(), direct: sshEndpoint.nullable() }),
  template: z.string().nullable(),
  cost: z.number(),
  locked: z.boolean(),
  globalNetworking: z.looseObject({ enabled: z.boolean() }),
  runtime: z.looseObject({ uptime: z.int().optional() }).nullable(),
  createdAt: z.iso.datetime(),
  startedAt: z.iso.datetime().nullable(),
});

const level = z.enum(['NONE', 'LOW', 'MEDIUM', 'HIGH']);
const offered = z.strictObject({ id: z.string(), name: z.string(), availability: level });

export const restGpu = z.strictObject({
  ...{ id: z.string(), name: z.string(), pool: z.string().nullable() },
  manufacturer: z.enum(['NVIDIA', 'AMD', 'UNKNOWN']),
  memory: z.int(),
  ...{ secure: z.boolean(), community: z.boolean() },
  price: z.strictObject({ secure: z.number(), community: z.number(), serverless: z.number() }),
  maxCount: z.strictObject({ secure: z.int(), community: z.int() }),
  availability: level.optional(),
  dataCenters: z.array(offered).optional(),
  cudaVersions: z.array(z.unknown()).max(0).optional(),
});

export const restCpu = z.strictObject({
  ...{ id: z.string(), name: z.string(), group: z.string() },
  vcpu: z.strictObject({ min: z.int(), max: z.int() }),
  ramGbPerVcpu: z.number(),
  price: z.strictObject({ securePerVcpu: z.number(), serverlessPerVcpu: z.number() }),
  availability: level.optional(),
  dataCenters: z.array(offered).optional(),
});

export const restDataCenter = z.strictObject({
  ...{ id: z.string(), name: z.string(), region: z.literal('UNKNOWN') },
  globalNetwork: z.boolean(),
  networkVolumeTypes: z.array(z.literal('STANDARD')),
  compliance: z.array(z.unknown()).max(0),
  gpuAvailability: z.array(offered).optional(),
  cpuAvailability: z.array(offered).optional(),
});
