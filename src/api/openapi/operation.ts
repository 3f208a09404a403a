// An operation of the service as the OpenAPI document tells of it, and the parts that many share. The
// routes themselves are elsewhere; a test holds the two against each other.
import { z } from 'zod';
import type { RouteAccess } from '../http/auth.ts';
import { LIST_LIMIT } from '../http/paging.ts';

export type OperationTag =
  | 'jobs'
  | 'pods'
  | 'endpoints'
  | 'templates'
  | 'catalog'
  | 'keys'
  | 'load balancing'
  | 'platform';

/** Other paths have the shapes of other services, or are asked by probes and scrapers. */
export const OWN_PATHS = /^\/v[12]\//;

export interface Parameter {
  name: string;
  /** With its default. */
  schema: z.ZodType;
  description: string;
}

/** Headers of answers, by the names that HEADERS of openapi-answers.ts describes. */
export type HeaderName =
  | 'Location'
  | 'Millrace-Next'
  | 'Millrace-Status'
  | 'Millrace-Reset'
  | 'Cache-Control';

export interface Answer {
  description: string;
  /** Media type: what is in the body. Default: none. */
  content?: Readonly<Record<string, z.ZodType>>;
  headers?: readonly HeaderName[];
}

export interface Operation {
  id: string;
  tag: OperationTag;
  method: string;
  /** As the route has it: `/v2/pods/:pod`. */
  path: string;
  access: RouteAccess;
  summary: string;
  description?: string;
  query?: readonly Parameter[];
  headers?: readonly Parameter[];
  body?: {
    schema: z.ZodType;
    /** Default: JSON. */
    mediaType?: string;
    /** Default: it has to be there. */
    presence?: 'required' | 'optional';
  };
  /** By status; `default`: where any may come. */
  answers: Readonly<Record<string, Answer>>;
  /** Statuses of problems beyond those that follow from the rest. */
  refusals?: readonly number[];
}

export const JSON_TYPE = 'application/json';
/** Of bodies that the platform passes on unread. */
export const ANY_TYPE = '*/*';

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

/** 200 with a body of JSON. */
export function answerJson(schema: z.ZodType, description: string): Operation['answers'] {
  return { 200: { description, content: { [JSON_TYPE]: schema } } };
}

/** 201 with the new resource and where it is. */
export function answerCreated(schema: z.ZodType, description: string): Operation['answers'] {
  return { 201: { description, content: { [JSON_TYPE]: schema }, headers: ['Location'] } };
}

export const ANSWER_NOTHING: Operation['answers'] = { 204: { description: 'Done.' } };
