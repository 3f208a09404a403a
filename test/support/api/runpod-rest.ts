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
