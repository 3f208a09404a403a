// Endpoints of RunPod's REST API, before the endpoints of Millrace's own. There, a template has the container of the
// workers; here, the endpoint has it. So each endpoint that this API creates or changes is bound to a template of its own.
import { z } from 'zod';
import type { Catalog } from '../../../control/endpoints/catalog.ts';
import type { Endpoints } from '../../../control/endpoints/endpoints.ts';
import type { LiveTemplate, Templates } from '../../../control/endpoints/templates.ts';
import { hideVariables } from '../../../control/keys/rights.ts';
import { chooseCpu } from '../../../control/scaling/worker-starter.ts';
import { ProblemError } from '../../../wire/problem.ts';
import {
  type EndpointRecord,
  type EndpointScaler,
  type EndpointUpdate,
  endpointCreation,
} from '../../../wire/resources/endpoint.ts';
import { creationShape, updateShape } from '../../../wire/resources/field-schemas.ts';
import {
  ENDPOINT_TYPES,
  JOB_FIELDS,
  SCALER_FIELDS,
  WORKER_FIELDS,
} from '../../../wire/resources/fields.ts';
import { LB_BASE, RESOURCES } from '../../../wire/routes/routes.ts';
import { check } from '../../body/body.ts';
import {
  type Container,
  containerShape,
  cudaShape,
  deriveTemplate,
  pickContainer,
  readBase,
  readNotes,
} from './containers.ts';
import {
  breakRule,
  MANAGEMENT_BASE,
  type ManagedCall,
  type ManagedResource,
  refuse,
} from './managed-resource.ts';

const workers = updateShape(WORKER_FIELDS);
const id = z.string().min(1).max(200);

const gpuShape = {
  ...cudaShape,
  count: z.literal(1, 'must be 1: a worker has one GPU').exactOptional(),
  excludedTypes: z.array(id.trim().pipe(id)).max(100).exactOptional(),
};
const pools = z.array(id).min(1).max(100);
const cpuChoice = z.strictObject({ id, vcpuCount: z.int().min(2) });

const scaling = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('QUEUE_DELAY'), queueDelay: z.number().min(0.5).max(3_600) }),
  z.strictObject({
    type: z.literal('REQUEST_COUNT'),
    requestCount: creationShape(SCALER_FIELDS).perWorker,
  }),
]);
type Scaling = z.infer<typeof scaling>;

const FLASH_BOOTS = ['OFF', 'FLASHBOOT', 'PRIORITY_FLASHBOOT'] as const;

const common = {
  ...containerShape,
  cpu: z.array(cpuChoice).min(1).max(100).exactOptional(),
  dataCenterIds: z.array(id).max(100).exactOptional(),
  flashboot: z.enum(FLASH_BOOTS).exactOptional(),
  networkVolumes: z.array(id).max(1).exactOptional(),
  templateId: id.exactOptional(),
  timeout: updateShape(JOB_FIELDS).executionTimeout,
  workers: z
    .strictObject({
      min: workers.workersMin,
      max: workers.workersMax,
      idleTimeout: z.int().min(1).max(3_600).exactOptional(),
    })
    .exactOptional(),
};

const creation = z.strictObject({
  ...common,
  name: creationShape(WORKER_FIELDS).name,
  type: z.enum(ENDPOINT_TYPES),
  gpu: z.strictObject({ ...gpuShape, pools }).exactOptional(),
  scaling,
});
const update = z.strictObject({
  ...common,
  name: workers.name,
  gpu: z.strictObject({ ...gpuShape, pools: pools.exactOptional() }).exactOptional(),
  scaling: scaling.exactOptional(),
});
type Update = z.infer<typeof update>;

/** As RunPod documents them. */
const DEFAULTS = { timeout: 300_000, flashboot: 'OFF', workers: { min: 0, max: 3 } } as const;
const DEFAULT_IDLE_SECONDS = 10;

const NAMES = {
  executionTimeout: 'timeout',
  gpuTypeIds: 'gpu.pools',
  idleTimeout: 'workers.idleTimeout',
  networkVolumeId: 'networkVolumes',
  scaler: 'scaling',
  workersMax: 'workers.max',
  workersMin: 'workers.min',
};

export interface ServerlessParts {
  endpoints: Endpoints;
  templates: Templates;
  catalog: Catalog;
}

export function manageEndpoints(
  parts: ServerlessParts,
): ManagedResource<typeof creation, typeof update> {
  const { catalog, endpoints, templates } = parts;
  const show = (call: ManagedCall, endpoint: EndpointRecord) =>
    showEndpoint(call, endpoint, findTemplate(templates, call, endpoint), catalog);
  return {
    outline: RESOURCES.endpoints,
    path: 'serverless',
    creation,
    names: NAMES,
    update: {
      schema: update,
      async apply(call, endpointId, given) {
        const { userId } = call.caller;
        const before = endpoints.get(userId, endpointId);
        checkCompute(given, before.gpuTypeIds.length > 0 ? 'gpu' : 'cpu');
        const changes = translate(given, { ...parts, before });
        const old = findTemplate(templates, call, before);
        const needsOwn =
          given.templateId !== undefined || Object.keys(pickContainer(given)).length > 0;
        if (!needsOwn && given.dataCenterIds === undefined) {
          return show(call, await endpoints.update(userId, endpointId, changes));
        }
        const changed = await withOwnTemplate(
          { ...parts, given: { name: before.name, ...given }, userId, old },
          (templateId) => endpoints.update(userId, endpointId, { ...changes, templateId }),
        );
        await removeOwnTemplate(templates, userId, old);
        return show(call, changed);
      },
    },
    async list(call, page) {
      const { next, records } = endpoints.list({ ...page, userId: call.caller.userId });
      return { records: records.map((endpoint) => show(call, endpoint)), next };
    },
    async create(call, given) {
      const { userId } = call.caller;
      const { gpu, name, type } = given;
      checkCompute(given, gpu ? 'gpu' : 'cpu');
      const whole = { ...DEFAULTS, ...given, workers: { ...DEFAULTS.workers, ...given.workers } };
      const changes = translate(whole, { ...parts, before: { type, gpuTypeIds: [] } });
      const created = await withOwnTemplate(
        { ...parts, given, userId, old: undefined },
        (templateId) =>
          endpoints.create(
            userId,
            check(
              { idleTimeout: DEFAULT_IDLE_SECONDS, ...changes, name, type, templateId },
              endpointCreation,
            ),
          ),
      );
      return show(call, created);
    },
    get: async (call, endpointId) => show(call, endpoints.get(call.caller.userId, endpointId)),
    async remove(call, endpointId) {
      const { userId } = call.caller;
      const template = findTemplate(templates, call, endpoints.get(userId, endpointId));
      await endpoints.remove(userId, endpointId);
      await removeOwnTemplate(templates, userId, template);
    },
  };
}

function findTemplate(
  templates: Templates,
  { caller }: ManagedCall,
  { templateId }: Pick<EndpointRecord, 'templateId'>,
): LiveTemplate | undefined {
  return templateId === null ? undefined : templates.find(caller.userId, templateId);
}

/** The change of the endpoint stands: a template that something else uses meanwhile stays. */
async function removeOwnTemplate(
  templates: Templates,
  userId: string,
  template: LiveTemplate | undefined,
): Promise<void> {
  if (!template || !readNotes(template).isBound) return;
  try {
    await templates.remove(userId, template.id);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
  }
}

interface OwnTemplate {
  templates: Templates;
  catalog: Catalog;
  userId: string;
  given: Container & Pick<Update, 'dataCenterIds' | 'templateId'> & { name: string };
  /** Of the endpoint before the change. */
  old: LiveTemplate | undefined;
}

/** Makes a template for one endpoint. Unless the endpoint gets it, it is removed again. */
async function withOwnTemplate<T>(
  { catalog, given, old, templates, userId }: OwnTemplate,
  use: (templateId: string) => Promise<T>,
): Promise<T> {
  const { dataCenterIds, env, name, templateId } = given;
  const base =
    templateId === undefined
      ? old
      : readBase(templates, { templateId, userId, isServerless: true });
  const merged = templateId === undefined ? env : { ...base?.env, ...env };
  const container = { ...pickContainer(given), ...(merged && { env: merged }) };
  const places = dataCenterIds ?? (old ? readNotes(old).dataCenterIds : []);
  for (const [index, place] of places.entries()) {
    if (!catalog.hasDataCenter(place)) {
      throw refuse(`dataCenterIds[${index}]: data center ${JSON.stringify(place)} not found`);
    }
  }
  const notes = { isBound: true, serverless: true, dataCenterIds: places };
  const made = await templates.create(userId, { ...deriveTemplate(base, container, name), notes });
  try {
    return await use(made.id);
  } catch (error) {
    await templates.remove(userId, made.id);
    throw error;
  }
}

/** @throws ProblemError `rule_broken` unless the request has at most the kind of compute that the endpoint has */
function checkCompute({ cpu, gpu }: Pick<Update, 'cpu' | 'gpu'>, kind: 'cpu' | 'gpu'): void {
  if (cpu && gpu) throw breakRule('gpu: exactly one of gpu and cpu must be given');
  const other = kind === 'gpu' ? cpu : gpu;
  if (other) throw breakRule(`${kind}: an endpoint keeps its kind of compute, which is ${kind}`);
}

interface TranslationParts {
  catalog: Catalog;
  before: Pick<EndpointRecord, 'type' | 'gpuTypeIds'> & { scaler?: EndpointScaler };
}

/** Members of this API as those of Millrace's own, without the container. @throws ProblemError `rule_broken`, `invalid` */
function translate(
  given: Omit<Update, 'name'> & { name?: string },
  { before, catalog }: TranslationParts,
): EndpointUpdate {
  const { cpu, flashboot, gpu, name, networkVolumes, timeout } = given;
  const { idleTimeout, max, min } = given.workers ?? {};
  const scaler = given.scaling && toScaler(given.scaling);
  const isByCount = (scaler ?? before.scaler)?.type === 'REQUEST_COUNT';
  if (idleTimeout !== undefined && isByCount && before.type === 'QUEUE') {
    throw breakRule('workers.idleTimeout: does not apply to a queue that scales on REQUEST_COUNT');
  }
  if (gpu?.excludedTypes && !gpu.pools) {
    throw refuse('gpu.excludedTypes: needs gpu.pools, from which it takes types');
  }
  if (cpu) checkCpu(cpu, catalog);
  return {
    ...(name !== undefined && { name }),
    ...(gpu?.pools && { gpuTypeIds: choosePools(gpu.pools, gpu.excludedTypes) }),
    ...(idleTimeout !== undefined && { idleTimeout }),
    ...(max !== undefined && { workersMax: max }),
    ...(min !== undefined && { workersMin: min }),
    ...(networkVolumes && { networkVolumeId: networkVolumes[0] ?? null }),
    ...(scaler && { scaler }),
    ...(timeout !== undefined && { executionTimeout: timeout }),
    ...(flashboot && BOOTS[flashboot]),
  };
}

/** Half seconds are rounded up: the scaler counts whole ones. */
function toScaler(given: Scaling): EndpointScaler {
  if (given.type === 'QUEUE_DELAY')
    return { type: given.type, seconds: Math.ceil(given.queueDelay) };
  return { type: given.type, perWorker: given.requestCount };
}

function toScaling(scaler: EndpointScaler): Scaling {
  if (scaler.type === 'QUEUE_DELAY') return { type: scaler.type, queueDelay: scaler.seconds };
  return { type: scaler.type, requestCount: scaler.perWorker };
}

/** Each GPU type is a pool of its own. @throws ProblemError `rule_broken` */
function choosePools(pools: readonly string[], excluded: readonly string[] = []): string[] {
  for (const [index, type] of excluded.entries()) {
    if (pools.includes(type)) continue;
    throw breakRule(
      `gpu.excludedTypes[${index}]: ${JSON.stringify(type)} is not in one of the pools`,
    );
  }
  const left = [...new Set(pools)].filter((type) => !excluded.includes(type));
  if (left.length === 0) throw breakRule('gpu.excludedTypes: no type of the pools is left');
  return left;
}

/** @throws ProblemError `invalid` unless the choices have the CPUs that workers get here */
function checkCpu(choices: readonly z.infer<typeof cpuChoice>[], catalog: Catalog): void {
  const { id: flavor, vcpuCount } = chooseCpu(catalog);
  if (choices.some((choice) => choice.id === flavor && choice.vcpuCount === vcpuCount)) return;
  throw refuse(
    `cpu: workers without a GPU run here with ${vcpuCount} vCPUs of ${flavor}; add that`,
  );
}

/** A parked worker comes back fast; a spare one has started ahead of load. */
const BOOTS = {
  OFF: { parkSeconds: 0, spareWorkers: 0 },
  FLASHBOOT: { parkSeconds: WORKER_FIELDS.parkSeconds.default, spareWorkers: 0 },
  PRIORITY_FLASHBOOT: { parkSeconds: WORKER_FIELDS.parkSeconds.default, spareWorkers: 1 },
} as const satisfies Record<(typeof FLASH_BOOTS)[number], EndpointUpdate>;

function findBoot({ parkSeconds, spareWorkers }: EndpointRecord): (typeof FLASH_BOOTS)[number] {
  if (spareWorkers > 0) return 'PRIORITY_FLASHBOOT';
  return parkSeconds > 0 ? 'FLASHBOOT' : 'OFF';
}

/** Longest that the document allows. */
const MAX_IDLE_SECONDS = 3_600;

function showEndpoint(
  { caller, url }: ManagedCall,
  endpoint: EndpointRecord,
  template: LiveTemplate | undefined,
  catalog: Catalog,
) {
  const { gpuTypeIds, networkVolumeId, scaler, type, workersMax, workersMin } = endpoint;
  const idleTimeout = Math.min(endpoint.idleTimeout, MAX_IDLE_SECONDS);
  const hasIdleTimeout = type === 'LOAD_BALANCER' || scaler.type === 'QUEUE_DELAY';
  const shown = template && hideVariables(caller, 'endpoints:write', template);
  const compute =
    gpuTypeIds.length > 0
      ? { gpu: { pools: gpuTypeIds, count: 1, allowedCudaVersions: [], minCudaVersion: null } }
      : { cpu: [chooseCpu(catalog)] };
  return {
    ...{ id: endpoint.id, name: endpoint.name, type },
    requestUrls: listUrls(url, endpoint),
    ...(shown && pickContainer(shown)),
    ...(template && compute),
    workers: { min: workersMin, max: workersMax, ...(hasIdleTimeout && { idleTimeout }) },
    scaling: toScaling(scaler),
    dataCenterIds: template ? readNotes(template).dataCenterIds : [],
    networkVolumes: networkVolumeId === null ? [] : [networkVolumeId],
    timeout: endpoint.executionTimeout,
    flashboot: findBoot(endpoint),
    createdAt: endpoint.createdAt,
  };
}

function listUrls(url: string, { id: endpointId, type }: Pick<EndpointRecord, 'id' | 'type'>) {
  if (type === 'LOAD_BALANCER') {
    const base = `${url}${LB_BASE}/${endpointId}`;
    return { base, health: `${base}/ping` };
  }
  const base = `${url}${MANAGEMENT_BASE}/${endpointId}`;
  return {
    run: `${base}/run`,
    runSync: `${base}/runsync`,
    status: `${base}/status/{job_id}`,
    stream: `${base}/stream/{job_id}`,
    cancel: `${base}/cancel/{job_id}`,
    retry: `${base}/retry/{job_id}`,
    purgeQueue: `${base}/purge-queue`,
    health: `${base}/health`,
  };
}
