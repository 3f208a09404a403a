// Converts the zod schemas of bodies to JSON Schema.
import { z } from 'zod';
import { kubernetesLimits, podKubernetes } from '../../wire/engine/kubernetes.ts';
import {
  chunkPage,
  jobList,
  jobRecord,
  jobReference,
  problem,
  purgeAnswer,
  submittedJobs,
} from '../../wire/job/job-records.ts';
import { runJobsRequest, runRequest } from '../../wire/job/job-schemas.ts';
import { DESCRIBED_RESOURCES, platformState } from '../../wire/operations/operations.ts';
import type { FixedResource, Resource } from '../../wire/operations/resource.ts';
import {
  cpuFlavor,
  cpuFlavorList,
  dataCenter,
  dataCenterList,
  engineCapabilities,
  gpuType,
  gpuTypeList,
} from '../../wire/resources/catalog.ts';
import { endpointHealth, inputSchemaRecord } from '../../wire/resources/endpoint.ts';
import { issuedKey, keyRotation } from '../../wire/resources/key.ts';
import { persistentMount, podActionRequest } from '../../wire/resources/pod.ts';
import { decisionList, decisionRecord } from '../../wire/resources/scaling.ts';

export type JsonSchema = Record<string, unknown>;

type Schemas = Readonly<Record<string, z.ZodType>>;

/** Bodies as callers send them: members with a default are optional. */
const REQUESTS: Schemas = {
  RunRequest: runRequest,
  RunJobsRequest: runJobsRequest,
  ...nameSchemas(listRequests),
  PodActionRequest: podActionRequest,
  PersistentMount: persistentMount,
  PodKubernetes: podKubernetes,
  KeyRotation: keyRotation,
};

const ANSWERS: Schemas = {
  Problem: problem,
  PlatformState: platformState,
  JobReference: jobReference,
  SubmittedJobs: submittedJobs,
  JobRecord: jobRecord,
  JobList: jobList,
  ChunkPage: chunkPage,
  PurgeAnswer: purgeAnswer,
  EndpointHealth: endpointHealth,
  InputSchemaRecord: inputSchemaRecord,
  ...nameSchemas(({ list, record }) => ({ '': record, List: list })),
  ScalerDecision: decisionRecord,
  ScalerDecisionList: decisionList,
  GpuType: gpuType,
  GpuTypeList: gpuTypeList,
  CpuFlavor: cpuFlavor,
  CpuFlavorList: cpuFlavorList,
  EngineCapabilities: engineCapabilities,
  KubernetesLimits: kubernetesLimits,
  DataCenter: dataCenter,
  DataCenterList: dataCenterList,
  IssuedKey: issuedKey,
};

/** Schemas of every resource, named by the resource and the suffix that `list` returns: `PodCreation`. */
function nameSchemas(list: (resource: FixedResource | Resource) => Schemas): Schemas {
  const named = Object.values(DESCRIBED_RESOURCES).flatMap((resource) => {
    const { singular } = resource.outline;
    const name = singular.charAt(0).toUpperCase() + singular.slice(1);
    return Object.entries(list(resource)).map(([end, schema]) => [name + end, schema] as const);
  });
  return Object.fromEntries(named);
}

function listRequests({ operations }: FixedResource | Resource): Schemas {
  return {
    Creation: operations.create.body.schema,
    ...('update' in operations && { Update: operations.update.body.schema }),
  };
}

const NAMES = new Map(
  [...Object.entries(REQUESTS), ...Object.entries(ANSWERS)].map(([name, schema]) => [schema, name]),
);

/** Returns every named schema. */
export function describeSchemas(): Record<string, JsonSchema> {
  return { ...convert(REQUESTS, 'input'), ...convert(ANSWERS, 'output') };
}

/** Returns a reference to a named schema, or an unnamed schema itself. */
export function describeSchema(schema: z.ZodType): JsonSchema {
  const name = NAMES.get(schema);
  if (name !== undefined) return { $ref: refer(name) };
  return strip(z.toJSONSchema(schema, { ...CONVERSION, io: 'input' }));
}

/** Returns the schema of a request's members, without references to named schemas. */
export function describeRequest(schema: z.ZodType): JsonSchema {
  return strip(z.toJSONSchema(schema, { ...CONVERSION, override: refineRequest, io: 'input' }));
}

export function refer(name: string): string {
  return `#/components/schemas/${name}`;
}

type Override = NonNullable<NonNullable<Parameters<typeof z.toJSONSchema>[1]>['override']>;

const CONVERSION = { target: 'draft-2020-12', unrepresentable: 'any', override: refine } as const;

function convert(
  schemas: Readonly<Record<string, z.ZodType>>,
  io: 'input' | 'output',
): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas)) registry.add(schema, { id });
  const override = io === 'input' ? refineRequest : refineAnswer;
  const converted = z.toJSONSchema(registry, { ...CONVERSION, override, io, uri: refer });
  return Object.fromEntries(
    Object.entries(converted.schemas).map(([name, schema]) => [name, strip(schema)]),
  );
}

/** Removes members that would be the same in every schema. */
function strip({ $id: _id, $schema: _schema, ...rest }: JsonSchema): JsonSchema {
  return rest;
}

/** Removes rules that matter only in JavaScript, and describes rules that JSON Schema cannot express. */
function refine({ jsonSchema, zodSchema }: Parameters<Override>[0]): void {
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.format === 'date-time') delete jsonSchema.pattern;
  const rules = listRules(zodSchema);
  if (rules.length === 0) return;
  const { description } = jsonSchema;
  jsonSchema.description = [...(description ? [description] : []), ...rules].join('; ');
}

/** Moves defaults into descriptions: client generators treat members with a `default` as required. */
function refineRequest(context: Parameters<Override>[0]): void {
  refine(context);
  const { jsonSchema } = context;
  if (jsonSchema.default === undefined) return;
  const note = `Default: ${JSON.stringify(jsonSchema.default)}`;
  delete jsonSchema.default;
  const { description } = jsonSchema;
  jsonSchema.description = description ? `${description}; ${note}` : note;
}

/** Allows further members, which later versions may add, unless the zod schema is strict. */
function refineAnswer(context: Parameters<Override>[0]): void {
  refine(context);
  const { def } = context.zodSchema._zod;
  const isStrict = def.type !== 'object' || ('catchall' in def && def.catchall !== undefined);
  if (!isStrict) delete context.jsonSchema.additionalProperties;
}

/** A placeholder without a value: our messages state the rule, not the invalid value. */
const NO_ISSUE = { code: 'custom', path: [] };

/** Returns the error messages of the schema's custom rules. */
function listRules(schema: z.core.$ZodType): string[] {
  const { checks = [] } = schema._zod.def;
  return checks.flatMap((check) => {
    const { def } = check._zod;
    if (def.check !== 'custom' || !def.error) return [];
    const message: unknown = Reflect.apply(def.error, undefined, [NO_ISSUE]);
    const path = 'path' in def && Array.isArray(def.path) ? `${def.path.join('.')}: ` : '';
    return typeof message === 'string' ? [path + message] : [];
  });
}
