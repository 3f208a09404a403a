// What an endpoint is, apart from the jobs in it.
import { z } from 'zod';
import { executionTimeoutMs } from '../job-schemas.ts';
import { resourceName } from '../text.ts';

/** Names that the pod API needs for itself below `/v2/`. */
const RESERVED_ENDPOINT_IDS = ['pods', 'catalog'];

export const endpointId = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'must be 1 to 64 letters, digits, "-" or "_"')
  .refine((id) => !RESERVED_ENDPOINT_IDS.includes(id), 'is reserved');

export const endpointSettings = z.strictObject({
  /** For people, of one that was declared by its id; one with a deployment has it there. */
  name: resourceName.exactOptional(),
  /** Default execution timeout of its jobs, ms. */
  executionTimeoutMs: executionTimeoutMs.default(600_000),
  /** Failures after which a job is FAILED. */
  maxAttempts: z.int().min(1).max(100).default(3),
  /** Jobs waiting, delayed ones included, above which run and runsync are refused. */
  maxQueued: z.int().min(1).default(100_000),
});

export type EndpointSettings = z.infer<typeof endpointSettings>;

export const ENDPOINT_TYPES = ['QUEUE', 'LOAD_BALANCER'] as const;
export type EndpointType = (typeof ENDPOINT_TYPES)[number];

export const endpointScaler = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('QUEUE_DELAY'),
    seconds: z
      .int()
      .min(1)
      .max(3_600)
      .default(4)
      .describe('Seconds; a job that waits longer calls for another worker'),
  }),
  z.strictObject({
    type: z.literal('REQUEST_COUNT'),
    perWorker: z
      .int()
      .min(1)
      .max(100_000)
      .describe('Jobs, or open requests, that one worker is to have'),
  }),
]);
export type EndpointScaler = z.infer<typeof endpointScaler>;

const workerCount = z.int().min(0).max(1_000);
const deploymentFields = {
  name: resourceName,
  templateId: z
    .string()
    .min(1)
    .max(200)
    .describe(
      'ID of a template of yours, with an http port for a load-balancing endpoint, and with args or a ' +
        'handler where pods are processes',
    ),
  gpuTypeIds: z
    .array(z.string().min(1).max(200))
    .max(100)
    .refine((ids) => new Set(ids).size === ids.length, 'must name each GPU type once')
    .describe('Ids of GPU types, the one wanted most first; none: workers without a GPU'),
  workersMin: workerCount.describe('Workers that are there without load'),
  workersMax: workerCount.describe('Workers at most'),
  idleTimeout: z
    .int()
    .min(1)
    .max(86_400)
    .describe('Seconds that a worker may have nothing to do before it is stopped'),
  executionTimeout: executionTimeoutMs.describe(
    "Default execution timeout of its jobs, or of a load-balanced request's headers, ms",
  ),
  maxAttempts: z.int().min(1).max(100).describe('Failures after which a job is FAILED'),
  maxQueued: z.int().min(1).describe('Jobs waiting above which run and runsync are refused'),
  scaler: endpointScaler,
};

/** Body of `POST /v1/endpoints`: the specification's six fields and ours. */
export const endpointCreation = z
  .strictObject({
    ...deploymentFields,
    type: z.enum(ENDPOINT_TYPES).default('QUEUE'),
    gpuTypeIds: deploymentFields.gpuTypeIds.default([]),
    workersMin: deploymentFields.workersMin.default(0),
    workersMax: deploymentFields.workersMax.default(3),
    idleTimeout: deploymentFields.idleTimeout.default(5),
    executionTimeout: deploymentFields.executionTimeout.default(600_000),
    maxAttempts: deploymentFields.maxAttempts.default(3),
    maxQueued: deploymentFields.maxQueued.default(100_000),
    scaler: endpointScaler
      .exactOptional()
      .describe(
        'Default: QUEUE_DELAY of 4 s; of a load-balancing endpoint REQUEST_COUNT of 4 a worker',
      ),
  })
  .refine(({ workersMax, workersMin }) => workersMin <= workersMax, {
    message: 'must not be more than workersMax',
    path: ['workersMin'],
  })
  .refine(({ scaler, type }) => type === 'QUEUE' || scaler?.type !== 'QUEUE_DELAY', {
    message: 'a load-balancing endpoint has no queue: it is scaled by REQUEST_COUNT',
    path: ['scaler', 'type'],
  });
export type EndpointCreation = z.infer<typeof endpointCreation>;

/** Body of `PATCH /v1/endpoints/{id}`: what is left out stays. The type is for good. */
export const endpointUpdate = z.strictObject({
  name: deploymentFields.name.exactOptional(),
  templateId: deploymentFields.templateId.exactOptional(),
  gpuTypeIds: deploymentFields.gpuTypeIds.exactOptional(),
  workersMin: deploymentFields.workersMin
    .exactOptional()
    .describe('Workers that are there without load; must not be more than workersMax'),
  workersMax: deploymentFields.workersMax.exactOptional(),
  idleTimeout: deploymentFields.idleTimeout.exactOptional(),
  executionTimeout: deploymentFields.executionTimeout.exactOptional(),
  maxAttempts: deploymentFields.maxAttempts.exactOptional(),
  maxQueued: deploymentFields.maxQueued.exactOptional(),
  scaler: endpointScaler
    .exactOptional()
    .describe('a load-balancing endpoint has no queue; it takes REQUEST_COUNT'),
});
export type EndpointUpdate = z.infer<typeof endpointUpdate>;

/** How an endpoint's workers are made and how many; one that was only declared by name has none. */
export const endpointDeployment = z.strictObject({
  name: z.string(),
  type: z.enum(ENDPOINT_TYPES),
  templateId: z.string(),
  gpuTypeIds: z.array(z.string()),
  workersMin: z.int(),
  workersMax: z.int(),
  idleTimeout: z.int(),
  scaler: endpointScaler,
});
export type EndpointDeployment = z.infer<typeof endpointDeployment>;

/** An endpoint as it is shown. Of one that was only declared by name: no template, no workers of its own. */
export const endpointRecord = z.object({
  id: z.string(),
  name: z.string(),
  type: z.enum(ENDPOINT_TYPES),
  templateId: z.string().nullable(),
  gpuTypeIds: z.array(z.string()),
  workersMin: z.int(),
  workersMax: z.int(),
  idleTimeout: z.int(),
  executionTimeout: z.int(),
  maxAttempts: z.int(),
  maxQueued: z.int(),
  scaler: endpointScaler,
  createdAt: z.iso.datetime(),
});
export type EndpointRecord = z.infer<typeof endpointRecord>;

export const endpointList = z.object({
  endpoints: z.array(endpointRecord),
  cursor: z.string().exactOptional(),
});

/** The answer of `GET /v2/<endpoint>/health`. */
export interface EndpointHealth {
  jobs: {
    completed: number;
    failed: number;
    inProgress: number;
    inQueue: number;
    retried: number;
  };
  workers: { idle: number; running: number };
}
