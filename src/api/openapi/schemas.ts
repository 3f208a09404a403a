// The shapes of bodies as JSON Schema, from the zod schemas that the requests are checked by.
import { z } from 'zod';
import {
  chunkPage,
  endpointHealth,
  jobList,
  jobRecord,
  jobReference,
  platformState,
  problem,
  purgeAnswer,
} from '../../wire/answers.ts';
import { runRequest } from '../../wire/job-schemas.ts';
import { DESCRIBED_RESOURCES } from '../../wire/operations/operations.ts';
import type { FixedResource, Resource } from '../../wire/operations/resource.ts';
import { cpuFlavor, cpuFlavorList, gpuType, gpuTypeList } from '../../wire/resources/catalog.ts';
import { decisionList, decisionRecord } from '../../wire/resources/decision.ts';
import { issuedKey, keyRotation } from '../../wire/resources/key.ts';
import { persistentMount, podActionRequest } from '../../wire/resources/pod.ts';

export type JsonSchema = Record<string, unknown>;

type Schemas = Readonly<Record<string, z.ZodType>>;

/** As callers send them: what has a default may be left out. */
const REQUESTS: Schemas = {
  RunRequest: runRequest,
  ...nameSchemas(listRequests),
  PodActionRequest: podActionRequest,
  PersistentMount: persistentMount,
  KeyRotation: keyRotation,
};

const ANSWERS: Schemas = {
  Problem: problem,
  PlatformState: platformState,
  JobReference: jobReference,
  JobRecord: jobRecord,
  JobList: jobList,
  ChunkPage: chunkPage,
  PurgeAnswer: purgeAnswer,
  EndpointHealth: endpointHealth,
  ...nameSchemas(({ list, record }) => ({ '': record, List: list })),
  ScalerDecision: decisionRecord,
  ScalerDecisionList: decisionList,
  GpuType: gpuType,
  GpuTypeList: gpuTypeList,
  CpuFlavor: cpuFlavor,
  CpuFlavorList: cpuFlavorList,
  IssuedKey: issuedKey,
};

/** Schemas of every resource, named by the resource and the name that `list` gives: `PodCreation`. */
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

/** Every shape that has a name. */
export function describeSchemas(): Record<string, JsonSchema> {
  return { ...convert(REQUESTS, 'input'), ...convert(ANSWERS, 'output') };
}

/** A reference to the schema if it has a name, else what it is. */
export function describeSchema(schema: z.ZodType): JsonSchema {
  const name = NAMES.get(schema);
  if (name !== undefined) return { $ref: refer(name) };
  return strip(z.toJSONSchema(schema, { ...CONVERSION, io: 'input' }));
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

/** What every schema would say of itself again. */
function strip({ $id: _id, $schema: _schema, ...rest }: JsonSchema): JsonSchema {
  return rest;
}

/** Leaves out what only JavaScript asks for, and names the rules that JSON Schema has no words for. */
function refine({ jsonSchema, zodSchema }: Parameters<Override>[0]): void {
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.format === 'date-time') delete jsonSchema.pattern;
  const rules = listRules(zodSchema);
  if (rules.length === 0) return;
  const { description } = jsonSchema;
  jsonSchema.description = [...(description ? [description] : []), ...rules].join('; ');
}

/** Names defaults in words: generators of clients make required members of those that have a `default`. */
function refineRequest(context: Parameters<Override>[0]): void {
  refine(context);
  const { jsonSchema } = context;
  if (jsonSchema.default === undefined) return;
  const said = `Default: ${JSON.stringify(jsonSchema.default)}`;
  delete jsonSchema.default;
  const { description } = jsonSchema;
  jsonSchema.description = description ? `${description}; ${said}` : said;
}

/** There may be more members in time, but where the rules say that there are no others. */
function refineAnswer(context: Parameters<Override>[0]): void {
  refine(context);
  const { def } = context.zodSchema._zod;
  const isStrict = def.type !== 'object' || ('catchall' in def && def.catchall !== undefined);
  if (!isStrict) delete context.jsonSchema.additionalProperties;
}

/** Of no value: our sentences are about the rule, not about what broke it. */
const NO_ISSUE = { code: 'custom', path: [] };

/** The sentences of the refinements, as a request that breaks them would be told. */
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
