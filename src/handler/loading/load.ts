// Loads a handler module. Converts its two forms, a function with named exports and a definition
// object, into one, and finds the JSON Schema of its input. invoke.ts runs it; load-errors.ts words the errors.
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { findRetryFault, isRetryPolicy } from '../../wire/job/retry-policy.ts';
import { isPlainObject, stringifyJson } from '../../wire/json.ts';
import { findSchemaFault } from '../../wire/message-bounds.ts';
import type { AttemptContext } from '../attempt/context.ts';
import { type BatchSettings, readBatch } from '../batch/settings.ts';
import type {
  BatchFunction,
  BatchProduced,
  HandlerConfig,
  HandlerResult,
  Job,
  Schema,
  SetupContext,
} from '../define.ts';
import { describeThrown } from '../thrown.ts';
import { noteHandlerFile } from './handler-file.ts';
import { followAliases } from './path-aliases.ts';

/** The handler's config; for a batch handler with its batch settings. */
export interface LoadedConfig extends HandlerConfig {
  batch?: BatchSettings;
  /** Set by the executor when it starts; of threads, by the first ones. */
  describedInput?: DescribedInput;
}

/** The functions of a batch handler, which an executor turns into `run` for single jobs. */
interface LoadedBatch {
  readonly settings: BatchSettings;
  readonly key: ((input: unknown) => unknown) | undefined;
  readonly run: BatchFunction;
}

/** A validated handler module in one form. */
export interface LoadedHandler {
  /** Runs one job. A batch handler's throws until `bindBatches` has replaced it. */
  readonly run: (job: Job, ctx: AttemptContext) => HandlerResult;
  readonly batch: LoadedBatch | undefined;
  readonly input: Schema | undefined;
  /** What the author says about the input, in JSON Schema. */
  readonly inputSchema: object | undefined;
  readonly output: Schema | undefined;
  readonly setup: ((ctx: SetupContext) => unknown) | undefined;
  readonly teardown: (() => unknown) | undefined;
  readonly config: LoadedConfig;
  /** Absolute path; undefined if the handler does not come from a file. */
  readonly file: string | undefined;
}

/** The module cannot be used as a handler. The message names the file and the problem. */
export class HandlerLoadError extends Error {
  override readonly name = 'HandlerLoadError';
}

type AnyFunction = (...parameters: unknown[]) => unknown;

const DEFINITION_MEMBERS = [
  'run',
  'input',
  'inputSchema',
  'output',
  'setup',
  'teardown',
  'config',
  'batch',
];

const METHODS = ['run', 'setup', 'teardown'];

/** Settings that are true or false. */
const SWITCHES = ['refreshWorker', 'failOnReturnedError'] as const;
type Switch = (typeof SWITCHES)[number];
/** Validated without zod, which would cost about 25 MB in every handler thread. */
type NumberKey = Exclude<keyof HandlerConfig, 'isolation' | 'retry' | Switch>;
const CONFIG_RANGES: Readonly<Record<NumberKey, { min: number; max: number }>> = {
  timeoutMs: { min: 1, max: 604_800_000 },
  concurrency: { min: 1, max: 1_000 },
  setupTimeoutMs: { min: 1, max: 86_400_000 },
};

/** Imports the file; TypeScript too. @throws HandlerLoadError */
export async function loadHandler(path: string): Promise<LoadedHandler> {
  const file = resolve(path);
  const stats = statSync(file, { throwIfNoEntry: false });
  if (stats === undefined) throw new HandlerLoadError(`${file}: file not found`);
  if (!stats.isFile()) throw new HandlerLoadError(`${file}: is not a file`);
  noteHandlerFile(file);
  followAliases(file);
  const exported: unknown = await import(pathToFileURL(file).href).catch(async (error: unknown) => {
    const { explainLoadError } = await import('./load-errors.ts');
    throw new HandlerLoadError(explainLoadError(error, file), { cause: error });
  });
  return { ...readHandler(exported, file), file };
}

/**
 * Reads the handler from a module's exports, a definition or a function. `name` is its name in
 * errors. @throws HandlerLoadError
 */
export function readHandler(exported: unknown, name: string): LoadedHandler {
  const members = selectMembers(exported, name);
  const { run, input, output, setup, teardown } = members;
  if (!isFunction(run)) {
    throw new HandlerLoadError(`${name}: 'run' must be a function, got ${describe(run)}`);
  }
  if (isClass(run)) {
    const className = run.name === 'default' || run.name === '' ? 'Handler' : run.name;
    throw new HandlerLoadError(
      `${name}: the handler is a class, which cannot be called; export a function: ` +
        `\`const handler = new ${className}(); export default (job, ctx) => handler.run(job, ctx)\``,
    );
  }
  const refuse = (problem: string): never => {
    throw new HandlerLoadError(`${name}: ${problem}`);
  };
  const config = readConfig(members['config'], name);
  const batch = readBatch(members['batch'], config, refuse);
  return {
    run: batch ? () => Promise.reject(new Error('the batch handler is not bound')) : run,
    // The author's types say so; its results are checked.
    batch: batch && { ...batch, run: (jobs, ctx) => run(jobs, ctx) as BatchProduced<unknown> },
    input: readSchema(input, 'input', name),
    inputSchema: readInputSchema(members['inputSchema'], name),
    output: readSchema(output, 'output', name),
    setup: readFunction(setup, 'setup', name),
    teardown: readFunction(teardown, 'teardown', name),
    config: batch ? { ...config, batch: batch.settings } : config,
    file: undefined,
  };
}

function selectMembers(exported: unknown, name: string): Record<string, unknown> {
  if (isFunction(exported)) return { run: exported };
  if (!isRecord(exported)) {
    throw new HandlerLoadError(`${name}: must be a handler, got ${describe(exported)}`);
  }
  const main = exported['default'];
  // A CommonJS module compiled from `export default`.
  if (isRecord(main) && main['__esModule'] === true) return selectMembers({ ...main }, name);
  // Only a definition describes batches: an export of that name may be anything, and so may `inputSchema`.
  if (isFunction(main)) {
    const { inputSchema } = exported;
    const isJsonSchema = isPlainObject(inputSchema) && !('~standard' in inputSchema);
    const schema = isJsonSchema ? inputSchema : undefined;
    return { ...exported, run: main, batch: undefined, inputSchema: schema };
  }
  if (isRecord(main)) return readDefinition(main, name);
  if (main !== undefined) {
    const wanted = 'must be a function or defineHandler({ … })';
    throw new HandlerLoadError(`${name}: the default export ${wanted}, got ${describe(main)}`);
  }
  if ('run' in exported && !isModule(exported)) return readDefinition(exported, name);
  throw new HandlerLoadError(
    `${name}: no default export; write \`export default async function (job, ctx) { … }\``,
  );
}

function readDefinition(definition: Record<string, unknown>, name: string) {
  const unknown = Object.keys(definition).filter((key) => !DEFINITION_MEMBERS.includes(key));
  if (unknown.length > 0) {
    throw new HandlerLoadError(
      `${name}: unknown members of the handler: ${unknown.join(', ')}; ` +
        `use ${DEFINITION_MEMBERS.join(', ')}`,
    );
  }
  // Methods may use `this`.
  const bind = (key: string, member: unknown) =>
    METHODS.includes(key) && isFunction(member) && !isClass(member)
      ? member.bind(definition)
      : member;
  return Object.fromEntries(DEFINITION_MEMBERS.map((key) => [key, bind(key, definition[key])]));
}

function readSchema(value: unknown, member: string, name: string): Schema | undefined {
  if (value === undefined) return undefined;
  if (isSchema(value)) return value;
  throw new HandlerLoadError(
    `${name}: '${member}' must be a Standard Schema (zod, valibot, arktype), ` +
      `an object with '~standard', got ${describe(value)}`,
  );
}

function readInputSchema(value: unknown, name: string): object | undefined {
  if (value === undefined || (isPlainObject(value) && !('~standard' in value))) return value;
  throw new HandlerLoadError(
    `${name}: 'inputSchema' must be a JSON Schema, a plain object such as { type: 'object' }, got ${describe(value)}; ` +
      "a schema of zod, valibot or arktype is an 'input'",
  );
}

function readFunction(value: unknown, member: string, name: string) {
  if (value === undefined || isFunction(value)) return value;
  throw new HandlerLoadError(`${name}: '${member}' must be a function, got ${describe(value)}`);
}

function readConfig(value: unknown, name: string): HandlerConfig {
  if (value === undefined) return {};
  if (!isRecord(value)) {
    throw new HandlerLoadError(`${name}: 'config' must be an object, got ${describe(value)}`);
  }
  const config: HandlerConfig = {};
  for (const [key, setting] of Object.entries(value)) readSetting(config, key, setting, name);
  if (config.isolation === 'job' && (config.concurrency ?? 1) > 1) {
    const wanted = "must be 1 with config.isolation 'job', which gives each job its own thread";
    throw new HandlerLoadError(`${name}: config.concurrency ${wanted}`);
  }
  return config;
}

function readSetting(config: HandlerConfig, key: string, setting: unknown, name: string): void {
  const refuse = (wanted: string): never => {
    const found = typeof setting === 'number' ? setting : describe(setting);
    throw new HandlerLoadError(`${name}: config.${key} must be ${wanted}, got ${found}`);
  };
  if (isSwitch(key)) {
    if (typeof setting === 'boolean') config[key] = setting;
    else if (setting !== undefined) refuse('true or false');
  } else if (key === 'isolation') {
    if (setting === 'job' || setting === 'thread') config.isolation = setting;
    else if (setting !== undefined) refuse("'thread' or 'job'");
  } else if (key === 'retry') {
    if (isRetryPolicy(setting)) config.retry = setting;
    else if (setting !== undefined) {
      throw new HandlerLoadError(`${name}: config.retry: ${findRetryFault(setting)}`);
    }
  } else if (!isNumberKey(key)) {
    const known = [...Object.keys(CONFIG_RANGES), 'isolation', 'retry', ...SWITCHES].join(', ');
    throw new HandlerLoadError(`${name}: config.${key} is unknown; use one of ${known}`);
  } else if (setting !== undefined) {
    const { min, max } = CONFIG_RANGES[key];
    const isInRange = Number.isInteger(setting) && Number(setting) >= min && Number(setting) <= max;
    if (!isInRange) refuse(`a whole number from ${min} to ${max}`);
    config[key] = Number(setting);
  }
}

function isSwitch(key: string): key is Switch {
  return SWITCHES.some((name) => name === key);
}

function isNumberKey(key: string): key is NumberKey {
  return Object.hasOwn(CONFIG_RANGES, key);
}

function isSchema(value: unknown): value is Schema {
  // arktype's schemas are functions.
  if (!isRecord(value) && !isFunction(value)) return false;
  const standard: unknown = Reflect.get(value, '~standard');
  return isRecord(standard) && isFunction(standard['validate']);
}

function isFunction(value: unknown): value is AnyFunction {
  return typeof value === 'function';
}

function isClass(value: AnyFunction): boolean {
  return /^class\b/.test(Function.prototype.toString.call(value));
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function isModule(value: object): boolean {
  return Object.prototype.toString.call(value) === '[object Module]';
}

function describe(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  if (value === undefined) return 'missing';
  if (typeof value === 'string') return `a string ('${value.slice(0, 40)}')`;
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** JSON text of the schema, or why there is none. */
export type DescribedInput =
  | { readonly kind: 'schema'; readonly text: string }
  | { readonly kind: 'none'; readonly reason: string };

interface DescribedHandler {
  readonly input: Schema | undefined;
  readonly inputSchema: object | undefined;
}

const TARGET = 'draft-2020-12';

/**
 * Finds the schema that the author wrote, or the one that the library of the `input` schema derives. Loads no library.
 * Never throws: a handler without a schema runs like any other.
 */
export function describeInput({ input, inputSchema }: DescribedHandler): DescribedInput {
  try {
    const schema = inputSchema ?? (input && derive(input));
    if (schema === undefined) return none(explainMissing(input));
    if (!isPlainObject(schema)) return none('its JSON Schema is not a plain object');
    const text = stringifyJson(schema, 'inputSchema');
    const fault = findSchemaFault(text);
    return fault === undefined ? { kind: 'schema', text } : none(`its JSON Schema ${fault}`);
  } catch (error) {
    return none(describeThrown(error).message);
  }
}

function none(reason: string): DescribedInput {
  return { kind: 'none', reason };
}

/** The input side: what a caller sends, before defaults and transformations. */
function derive(input: Schema): unknown {
  const { vendor } = input['~standard'];
  const standard = readMember(input['~standard'], 'jsonSchema');
  // zod refuses dates and other values that JSON Schema lacks, unless they may be anything.
  const libraryOptions = vendor === 'zod' ? { unrepresentable: 'any' } : undefined;
  if (standard) return call(standard, 'input', { target: TARGET, libraryOptions });
  if (vendor === 'zod') {
    return call(input, 'toJSONSchema', { target: TARGET, io: 'input', unrepresentable: 'any' });
  }
  return call(input, 'toJsonSchema', undefined);
}

function explainMissing(input: Schema | undefined): string {
  if (!input) return 'the handler has no `input` schema and no `inputSchema`';
  const { vendor } = input['~standard'];
  return `this version of ${vendor} derives no JSON Schema; set \`inputSchema\``;
}

function readMember(value: object, name: string): object | undefined {
  const member: unknown = Reflect.get(value, name);
  const isObject = typeof member === 'object' || typeof member === 'function';
  return isObject && member !== null ? member : undefined;
}

/** Undefined if the object has no such method. */
function call(owner: object, name: string, options: object | undefined): unknown {
  const method: unknown = Reflect.get(owner, name);
  return typeof method === 'function' ? method.call(owner, options) : undefined;
}
