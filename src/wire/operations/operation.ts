// The description of one operation: its route, texts, parameters, schemas, answers and examples. The API makes
// the route and the OpenAPI document from it.
import { z } from 'zod';
import { LIMITS } from '../job/job.ts';
import { jobTag } from '../job/job-schemas.ts';
import type { Route } from '../routes/route.ts';

export interface Parameter {
  name: string;
  /** With its default. */
  schema: z.ZodType;
  description: string;
  /** Default: `optional`. */
  presence?: 'required';
}

/** Headers of answers; api/openapi/openapi.ts describes each. */
export type HeaderName =
  | 'Location'
  | 'Set-Cookie'
  | 'Millrace-Next'
  | 'Millrace-Status'
  | 'Millrace-Reset'
  | 'Millrace-Entry'
  | 'Millrace-Truncated'
  | 'Millrace-Sha256'
  | 'Cache-Control';

export interface Content {
  schema: z.ZodType;
  /** An example that passes the schema; omitted if a caller or a handler decides the content. */
  example?: unknown;
}

export interface Answer {
  description: string;
  /** By media type. Default: no body. */
  content?: Readonly<Record<string, Content>>;
  headers?: readonly HeaderName[];
}

export interface RequestBody<S extends z.ZodType = z.ZodType> extends Content {
  schema: S;
  /** Default: JSON. */
  mediaType?: string;
  /** Default: required. */
  presence?: 'required' | 'optional';
  /** Default: RESOURCE_BODY_BYTES. */
  maxBytes?: number;
  /** The handler reads it piece by piece. Default: it is read before. */
  isStreamed?: true;
}

export type Answers = Readonly<Record<string, Answer>>;

/** The part of an operation's description beyond its route. */
export interface OperationText {
  summary: string;
  description?: string;
  query?: readonly Parameter[];
  headers?: readonly Parameter[];
  body?: RequestBody;
  /** Answers by status; `default` stands for any status. */
  answers: Answers;
  /** Statuses of problems, besides those that follow from the rest of the description. */
  refusals?: readonly number[];
  /** Form of all errors. Default: problems. */
  errors?: Content;
  /**
   * The answer may last as long as its key is valid, and reading it has an effect, so HEAD is not
   * offered.
   */
  isStream?: true;
  /** A stream that says nothing by its end: when its key becomes invalid, it ends instead of breaking off. */
  endsCleanly?: true;
}

export interface Operation<Path extends string = string> extends Route<Path>, OperationText {
  /** Unique: `runJob`. */
  id: string;
  /** Group in the OpenAPI document; of a resource its plural. */
  tag: string;
}

export type Operations = Readonly<Record<string, Operation>>;

type Described<Routes, Texts> = {
  readonly [Id in keyof Routes & keyof Texts]: Routes[Id] &
    Texts[Id] & { readonly id: Id; readonly tag: string };
};

/** Adds its description to each route; a missing one does not compile. */
export function describeOperations<
  Routes extends Readonly<Record<string, Route>>,
  Texts extends { readonly [Id in keyof Routes]: OperationText },
>(tag: string, routes: Routes, texts: Texts): Described<Routes, Texts> {
  const described = Object.entries(routes).map(
    ([id, route]) => [id, { id, tag, ...route, ...texts[id] }] as const,
  );
  // Each id has its own route and text.
  return Object.fromEntries(described) as Described<Routes, Texts>;
}

export const JSON_TYPE = 'application/json';
/** Media type of bodies that the platform forwards without reading them. */
export const ANY_TYPE = '*/*';

/** Far more than a template with a large environment needs, bytes. */
export const RESOURCE_BODY_BYTES = 1_048_576;

export const LIST_LIMIT = { min: 1, max: 1_000, default: 100 };

/** Of lists of jobs. */
export const TAGS_PARAMETER: Parameter = {
  name: 'tags',
  schema: z.array(jobTag).max(LIMITS.tagsOfJob).exactOptional(),
  description: 'only jobs with this tag; repeat the parameter for jobs with all of several',
};

/** The parameters of every list. */
export const PAGE_PARAMETERS: readonly Parameter[] = [
  {
    name: 'cursor',
    schema: z.string().exactOptional(),
    description: '`cursor` of an earlier answer; without it the first page, the newest first',
  },
  {
    name: 'limit',
    schema: z.int().min(LIST_LIMIT.min).max(LIST_LIMIT.max).default(LIST_LIMIT.default),
    description: 'records in one page, at most',
  },
];

export const pageCursor = z
  .string()
  .exactOptional()
  .describe('Cursor of the next page; absent on the last page');

export function bodyJson<S extends z.ZodType>(schema: S, example: z.input<S>) {
  return { schema, example };
}

/** 200 with a body of JSON. */
export function answerJson<S extends z.ZodType>(
  schema: S,
  description: string,
  example: z.output<S>,
) {
  return { 200: { description, content: { [JSON_TYPE]: { schema, example } } } };
}

export const ANSWER_NOTHING = { 204: { description: 'Done.' } };
