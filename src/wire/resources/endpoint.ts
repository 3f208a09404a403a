// Schemas of an endpoint's settings, its deployment and its API requests and responses; its operations.
import { z } from 'zod';
import { executionTimeoutMs } from '../job/job-schemas.ts';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { resourceName } from '../text.ts';
import { mountPath } from './pod.ts';
import { rollout, storedRollout } from './rollout.ts';

/** Where RunPod mounts the volume of an endpoint, so that its images find their files. */
export const DEFAULT_VOLUME_PATH = '/runpod-volume';

const volumeFields = {
  networkVolumeId: z
    .string()
    .min(1)
    .max(200)
    .nullable()
    .describe('ID or name of the network volume that all workers mount; null: none'),
  networkVolumePath: mountPath.describe(
    'Where workers mount it; on the process engine below the folder in which they start',
  ),
};

/** Path segments that the pod API uses below `/v2/`. */
const RESERVED_ENDPOINT_IDS = ['pods', 'catalog'];

export const endpointId = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'must be 1 to 64 letters, digits, "-" or "_"')
  .refine((id) => !isReserved(id), 'is reserved');

/** No endpoint is found by it, neither as an ID nor as a name. */
export function isReserved(idOrName: string): boolean {
  return RESERVED_ENDPOINT_IDS.includes(idOrName);
}

/** As many jobs as a platform could lease at once. */
export const MAX_GROUP_CONCURRENCY = 1_000_000;
const groupConcurrency = z.int().min(1).max(MAX_GROUP_CONCURRENCY);

export const endpointSettings = z.strictObject({
  /** Display name of a declared endpoint; an endpoint with a deployment has its name there. */
  name: resourceName.exactOptional(),
  /** Default execution timeout of its jobs, ms. */
  executionTimeoutMs: executionTimeoutMs.default(600_000),
  /** Failures after which a job is FAILED. */
  maxAttempts: z.int().min(1).max(100).default(3),
  /** Maximum number of waiting jobs, delayed ones included; run and runsync reject more. */
  maxQueued: z.int().min(1).default(100_000),
  /** Most jobs of one group that workers run at once; default: any number. */
  groupConcurrency: groupConcurrency.exactOptional(),
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
      .describe('Seconds; if a job waits longer, the platform adds workers'),
  }),
  z.strictObject({
    type: z.literal('REQUEST_COUNT'),
    perWorker: z.int().min(1).max(100_000).describe('Jobs or open requests for one worker'),
  }),
]);
export type EndpointScaler = z.infer<typeof endpointScaler>;

/** After an attempt that ran out of GPU memory: the workers on which the next one may run. */
export const OUT_OF_MEMORY_RETRIES = ['ANY_GPU_TYPE', 'NEXT_GPU_TYPE'] as const;
const retryOutOfMemoryOn = z.enum(OUT_OF_MEMORY_RETRIES);

const workerCount = z.int().min(0).max(1_000);
const deploymentFields = {
  name: resourceName.refine(
    (name) => !isReserved(name),
    'is a path of the API; choose another name',
  ),
  templateId: z
    .string()
    .min(1)
    .max(200)
    .describe(
      'ID or name of one of your templates; for a load-balancing endpoint with an http port; on the process engine ' +
        'with args or a handler',
    ),
  gpuTypeIds: z
    .array(z.string().min(1).max(200))
    .max(100)
    .refine((ids) => new Set(ids).size === ids.length, 'must name each GPU type once')
    .describe('IDs of GPU types, the preferred one first; empty for workers without a GPU'),
  workersMin: workerCount.describe('Minimum number of workers, even without load'),
  workersMax: workerCount.describe('Maximum number of workers; 0 switches the endpoint off'),
  idleTimeout: z.int().min(1).max(86_400).describe('Seconds after which an idle worker is stopped'),
  executionTimeout: executionTimeoutMs.describe(
    'Default execution timeout of a job, or of the response headers of a load-balanced request, in milliseconds',
  ),
  maxAttempts: z.int().min(1).max(100).describe('Failed attempts after which a job is FAILED'),
  maxQueued: z.int().min(1).describe('Maximum number of waiting jobs; run and runsync reject more'),
  groupConcurrency: groupConcurrency
    .nullable()
    .describe('Most jobs of one `policy.group` that workers run at once; null: any number'),
  retryOutOfMemoryOn: retryOutOfMemoryOn.describe(
    'After an attempt that ran out of GPU memory: `NEXT_GPU_TYPE` lets only workers of a later type in `gpuTypeIds` take ' +
      'the job, and starts one; the attempt counts. After the last type, or with `ANY_GPU_TYPE`, any worker may take it',
  ),
  ...volumeFields,
  scaler: endpointScaler,
};

const HANDLER_SOURCES = ['TEMPLATE', 'VERSION'] as const;
export type HandlerSource = (typeof HANDLER_SOURCES)[number];

interface DeploymentParts {
  type: EndpointType;
  source?: HandlerSource;
  workersMin: number;
  workersMax: number;
  /** Undefined: the default of the type. */
  scaler?: z.infer<typeof endpointScaler>;
}

interface DeploymentRule {
  path: string[];
  message: string;
  holds: (parts: DeploymentParts) => boolean;
}

const WORKERS_IN_ORDER: DeploymentRule = {
  path: ['workersMin'],
  message: 'must not be greater than workersMax',
  holds: ({ workersMax, workersMin }) => workersMin <= workersMax,
};
const SCALER_FITS_TYPE: DeploymentRule = {
  path: ['scaler', 'type'],
  message: 'must be REQUEST_COUNT for a load-balancing endpoint',
  holds: ({ scaler, type }) => type !== 'LOAD_BALANCER' || scaler?.type !== 'QUEUE_DELAY',
};

const SOURCE_FITS_TYPE: DeploymentRule = {
  path: ['source'],
  message: 'must be TEMPLATE for a load-balancing endpoint',
  holds: ({ source, type }) => type !== 'LOAD_BALANCER' || source !== 'VERSION',
};

/** Finds contradictions between the parts of a deployment. */
export function findDeploymentFaults(parts: DeploymentParts): DeploymentRule[] {
  return [WORKERS_IN_ORDER, SCALER_FITS_TYPE, SOURCE_FITS_TYPE].filter(
    ({ holds }) => !holds(parts),
  );
}

/** Body of `POST /v1/endpoints`. */
export const endpointCreation = z
  .strictObject({
    ...deploymentFields,
    type: z.enum(ENDPOINT_TYPES).default('QUEUE'),
    source: z
      .enum(HANDLER_SOURCES)
      .default('TEMPLATE')
      .describe(
        '`TEMPLATE`: workers run the handler, or the image and args, of the template. `VERSION`: they run the ' +
          'deployed version of the handler, so none starts before one is deployed. Deploying a version sets it',
      ),
    gpuTypeIds: deploymentFields.gpuTypeIds.default([]),
    workersMin: deploymentFields.workersMin.default(0),
    workersMax: deploymentFields.workersMax.default(3),
    idleTimeout: deploymentFields.idleTimeout.default(5),
    executionTimeout: deploymentFields.executionTimeout.default(600_000),
    maxAttempts: deploymentFields.maxAttempts.default(3),
    maxQueued: deploymentFields.maxQueued.default(100_000),
    groupConcurrency: deploymentFields.groupConcurrency.default(null),
    retryOutOfMemoryOn: deploymentFields.retryOutOfMemoryOn.default('ANY_GPU_TYPE'),
    networkVolumeId: deploymentFields.networkVolumeId.default(null),
    networkVolumePath: deploymentFields.networkVolumePath.default(DEFAULT_VOLUME_PATH),
    scaler: endpointScaler
      .exactOptional()
      .describe(
        'Default: QUEUE_DELAY of 4 s; for a load-balancing endpoint REQUEST_COUNT of 4 per worker',
      ),
  })
  // Copies, because zod changes its argument.
  .refine(WORKERS_IN_ORDER.holds, { ...WORKERS_IN_ORDER })
  .refine(SCALER_FITS_TYPE.holds, { ...SCALER_FITS_TYPE })
  .refine(SOURCE_FITS_TYPE.holds, { ...SOURCE_FITS_TYPE });
export type EndpointCreation = z.infer<typeof endpointCreation>;

/** Body of `PATCH /v1/endpoints/{id}`; omitted members stay unchanged. The type cannot change. */
const endpointUpdate = z.strictObject({
  name: deploymentFields.name.exactOptional(),
  templateId: deploymentFields.templateId.exactOptional(),
  gpuTypeIds: deploymentFields.gpuTypeIds.exactOptional(),
  workersMin: deploymentFields.workersMin
    .exactOptional()
    .describe('Minimum number of workers, even without load; must not be greater than workersMax'),
  workersMax: deploymentFields.workersMax.exactOptional(),
  idleTimeout: deploymentFields.idleTimeout.exactOptional(),
  executionTimeout: deploymentFields.executionTimeout.exactOptional(),
  maxAttempts: deploymentFields.maxAttempts.exactOptional(),
  maxQueued: deploymentFields.maxQueued.exactOptional(),
  groupConcurrency: deploymentFields.groupConcurrency.exactOptional(),
  retryOutOfMemoryOn: deploymentFields.retryOutOfMemoryOn.exactOptional(),
  networkVolumeId: deploymentFields.networkVolumeId.exactOptional(),
  networkVolumePath: deploymentFields.networkVolumePath.exactOptional(),
  scaler: endpointScaler
    .exactOptional()
    .describe('must be REQUEST_COUNT for a load-balancing endpoint'),
});
export type EndpointUpdate = z.infer<typeof endpointUpdate>;

/** How the platform runs an endpoint's workers. A declared endpoint has none. */
export const endpointDeployment = z.strictObject({
  name: z.string(),
  type: z.enum(ENDPOINT_TYPES),
  templateId: z.string(),
  gpuTypeIds: z.array(z.string()),
  workersMin: z.int(),
  workersMax: z.int(),
  idleTimeout: z.int(),
  retryOutOfMemoryOn,
  networkVolumeId: z.string().nullable(),
  networkVolumePath: z.string(),
  scaler: endpointScaler,
  source: z.enum(HANDLER_SOURCES),
  /** Number of the last upload; default: none. */
  lastVersion: z.int().min(1).exactOptional(),
  /** The running version; default: none. */
  version: z.int().min(1).exactOptional(),
  /** The last one; default: none. */
  rollout: storedRollout.exactOptional(),
});
export type EndpointDeployment = z.infer<typeof endpointDeployment>;

/** An endpoint as the API returns it. A declared endpoint has no template and no workers of its own. */
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
  groupConcurrency: z.int().nullable(),
  retryOutOfMemoryOn,
  networkVolumeId: z.string().nullable(),
  networkVolumePath: z.string(),
  scaler: endpointScaler,
  source: z.enum(HANDLER_SOURCES).describe('What the workers run'),
  version: z.int().nullable().describe('Version of the handler that runs; null: none'),
  rollout: rollout.nullable().describe('The last deployment of a version; null: none'),
  createdAt: z.iso.datetime(),
});
export type EndpointRecord = z.infer<typeof endpointRecord>;

export const ENDPOINT_EXAMPLE: EndpointRecord = {
  id: 'ep_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d71',
  name: 'echo',
  type: 'QUEUE',
  templateId: 'tpl_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
  gpuTypeIds: ['NVIDIA H200'],
  workersMin: 0,
  workersMax: 4,
  idleTimeout: 30,
  executionTimeout: 600_000,
  maxAttempts: 3,
  maxQueued: 100_000,
  groupConcurrency: null,
  retryOutOfMemoryOn: 'ANY_GPU_TYPE',
  networkVolumeId: 'vol_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
  networkVolumePath: DEFAULT_VOLUME_PATH,
  scaler: { type: 'QUEUE_DELAY', seconds: 4 },
  source: 'VERSION',
  version: 2,
  rollout: {
    version: 3,
    from: 2,
    state: 'CHECKING',
    reason: null,
    workersReady: 0,
    workersTotal: 2,
    startedAt: '2026-01-15T09:31:00.000Z',
    endedAt: null,
  },
  createdAt: '2026-01-15T09:30:00.000Z',
};

export const endpoints = describeResource({
  outline: RESOURCES.endpoints,
  about: 'Queues whose workers come and go with their load.',
  record: endpointRecord,
  creation: endpointCreation,
  update: endpointUpdate,
  texts: {
    create: { summary: 'Create an endpoint that scales its workers with the load' },
    update: {
      summary: 'Update an endpoint; omitted fields keep their value',
      description:
        'Another template, network volume or other GPU types replace its workers, new ones ready first.',
    },
    delete: { summary: 'Delete an endpoint, its workers, jobs and logs' },
  },
  examples: {
    record: ENDPOINT_EXAMPLE,
    creation: {
      name: 'echo',
      templateId: 'tpl_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
      gpuTypeIds: ['NVIDIA H200'],
      workersMax: 4,
      idleTimeout: 30,
    },
    update: { workersMin: 1, scaler: { type: 'REQUEST_COUNT', perWorker: 8 } },
  },
});

export const endpointList = endpoints.list;

/** What an endpoint's handler accepts. */
export interface InputSchemaRecord {
  /** JSON Schema, as a worker sent it; null: none is known. */
  schema: Readonly<Record<string, unknown>> | null;
  /** Deployed version of the handler; null without one. */
  version: number | null;
  /** When the schema was last another one, Unix ms. */
  updatedAt: number | null;
}

/** The response of `GET /v2/<endpoint>/health`. */
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
