// Schemas of an endpoint's settings, its deployment, the rollout of a version, and its API requests and responses; its operations.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { exampleOf } from './field.ts';
import {
  creationShape,
  recordShape,
  resourceName,
  storedShape,
  updateShape,
} from './field-schemas.ts';
import {
  ENDPOINT_FIELDS,
  ENDPOINT_ID,
  type EndpointType,
  type HandlerSource,
  isReserved,
  JOB_FIELDS,
  SCALER_FIELDS,
  WORKER_FIELDS,
} from './fields.ts';
import { pause } from './pause.ts';

export const endpointId = z
  .string()
  .regex(ENDPOINT_ID, 'must be 1 to 64 letters, digits, "-" or "_"')
  .refine((id) => !isReserved(id), 'is reserved');

const { executionTimeout, ...jobSettings } = creationShape(JOB_FIELDS);
/** Defaults of an endpoint's jobs, as they are stored and declared. */
export const endpointSettings = z.strictObject({
  ...jobSettings,
  executionTimeoutMs: executionTimeout,
  /** Display name of a declared endpoint; an endpoint with a deployment has its name there. */
  name: resourceName.exactOptional(),
});
export type EndpointSettings = z.infer<typeof endpointSettings>;

const scalerFields = creationShape(SCALER_FIELDS);
export const endpointScaler = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('QUEUE_DELAY'), seconds: scalerFields.seconds }),
  z.strictObject({ type: z.literal('REQUEST_COUNT'), perWorker: scalerFields.perWorker }),
]);
export type EndpointScaler = z.infer<typeof endpointScaler>;

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
    ...creationShape(ENDPOINT_FIELDS),
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
  ...updateShape(ENDPOINT_FIELDS),
  scaler: endpointScaler
    .exactOptional()
    .describe('must be REQUEST_COUNT for a load-balancing endpoint'),
});
export type EndpointUpdate = z.infer<typeof endpointUpdate>;

/** `CHECKING`: one worker has to load the version. `ROLLING`: the others are being replaced. */
export const ROLLOUT_STATES = ['CHECKING', 'ROLLING', 'DONE', 'FAILED'] as const;

/** The last deployment of a version. */
export const rollout = z.object({
  version: z.int().min(1),
  from: z.int().nullable().describe('Version that ran before; null: none, or the template'),
  state: z
    .enum(ROLLOUT_STATES)
    .describe(
      '`CHECKING`: one worker has to load the version; `ROLLING`: the other workers are being replaced; ' +
        '`FAILED`: the version did not load, or its workers crashed while the others were being replaced; the earlier ' +
        'version keeps running',
    ),
  reason: z
    .string()
    .nullable()
    .describe("Why it failed, with the worker's last output, or what it waits for"),
  workersReady: z.int().describe('Workers that run the version and have connected'),
  workersTotal: z.int().describe('All workers, also those of earlier versions'),
  startedAt: z.iso.datetime(),
  endedAt: z.iso.datetime().nullable(),
});
export type Rollout = z.infer<typeof rollout>;

export const storedRollout = z.strictObject({
  ...rollout.shape,
  /** When the check worker must have connected, Unix ms. */
  checkUntil: z.number(),
  /** What the workers ran before. */
  fromSource: z.enum(['TEMPLATE', 'VERSION']),
});
export type StoredRollout = z.infer<typeof storedRollout>;

/** How the platform runs an endpoint's workers. A declared endpoint has none. */
export const endpointDeployment = z.strictObject({
  ...storedShape(WORKER_FIELDS),
  scaler: endpointScaler,
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
  ...recordShape(ENDPOINT_FIELDS),
  templateId: z.string().nullable(),
  scaler: endpointScaler,
  version: z.int().nullable().describe('Version of the handler that runs; null: none'),
  rollout: rollout.nullable().describe('The last deployment of a version; null: none'),
  workersMinChanges: z
    .array(z.object({ at: z.iso.datetime(), workersMin: z.int() }))
    .describe('The next changes of the minimum by `workersSchedule`, at most 5'),
  createdAt: z.iso.datetime(),
});
export type EndpointRecord = z.infer<typeof endpointRecord>;

export const ENDPOINT_EXAMPLE: EndpointRecord = {
  id: 'ep_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d71',
  ...exampleOf(ENDPOINT_FIELDS),
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
  workersMinChanges: [{ at: '2026-01-16T07:00:00.000Z', workersMin: 2 }],
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
        'Another template, another network volume or other GPU types replace its workers; the new ones become ready first.',
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
export const inputSchemaRecord = z.object({
  schema: z
    .custom<Readonly<Record<string, unknown>>>()
    .meta({ type: 'object', additionalProperties: true })
    .nullable()
    .describe('JSON Schema, as a worker sent it, at most 64 KB; null: none is known'),
  version: z.int().nullable().describe('Deployed version of the handler; null without one'),
  updatedAt: z.int().nullable().describe('Unix ms; when the schema was last another one'),
});
export type InputSchemaRecord = z.infer<typeof inputSchemaRecord>;

const count = z.int().min(0);

/** The response of `GET /v2/<endpoint>/health`. */
export const endpointHealth = z.object({
  jobs: z.object({
    completed: count,
    failed: count,
    inProgress: count,
    inQueue: count,
    retried: count,
  }),
  workers: z.object({
    idle: count,
    running: count,
    parked: count.exactOptional().meta({
      description:
        'Workers that have left their GPUs, also those with suspended jobs; they are neither idle nor running. Absent: none',
    }),
  }),
  paused: pause.exactOptional().describe('The pause of the endpoint. Absent: it is not paused'),
  pausedGroups: count
    .exactOptional()
    .describe('Number of its groups that are paused. Absent: none'),
});
export type EndpointHealth = z.infer<typeof endpointHealth>;
