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
import { cpuFlavor, cpuFlavorList, gpuType, gpuTypeList } from '../../wire/resources/catalog.ts';
import { decisionList, decisionRecord } from '../../wire/resources/decision.ts';
import {
  endpointCreation,
  endpointList,
  endpointRecord,
  endpointUpdate,
} from '../../wire/resources/endpoint.ts';
import {
  issuedKey,
  keyCreation,
  keyList,
  keyRecord,
  keyRotation,
} from '../../wire/resources/key.ts';
import {
  persistentMount,
  podActionRequest,
  podCreation,
  podList,
  podRecord,
  podUpdate,
} from '../../wire/resources/pod.ts';
import {
  templateCreation,
  templateList,
  templateRecord,
  templateUpdate,
} from '../../wire/resources/template.ts';

export type JsonSchema = Record<string, unknown>;

/** As callers send them: what has a default may be left out. */
const REQUESTS: Readonly<Record<string, z.ZodType>> = {
  RunRequest: runRequest,
  PodCreation: podCreation,
  PodUpdate: podUpdate,
  PodActionRequest: podActionRequest,
  PersistentMount: persistentMount,
  EndpointCreation: endpointCreation,
  EndpointUpdate: endpointUpdate,
  TemplateCreation: templateCreation,
  TemplateUpdate: templateUpdate,
  KeyCreation: keyCreation,
  KeyRotation: keyRotation,
};

const ANSWERS: Readonly<Record<string, z.ZodType>> = {
  Problem: problem,
  PlatformState: platformState,
  JobReference: jobReference,
  JobRecord: jobRecord,
  JobList: jobList,
  ChunkPage: chunkPage,
  PurgeAnswer: purgeAnswer,
  EndpointHealth: endpointHealth,
  Pod: podRecord,
  PodList: podList,
  Endpoint: endpointRecord,
  EndpointList: endpointList,
  ScalerDecision: decisionRecord,
  ScalerDecisionList: decisionList,
  Template: templateRecord,
  TemplateList: templateList,
  GpuType: gpuType,
  GpuTypeList: gpuTypeList,
  CpuFlavor: cpuFlavor,
  CpuFlavorList: cpuFlavorList,
  Key: keyRecord,
  KeyList: keyList,
  IssuedKey: issuedKey,
};

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
