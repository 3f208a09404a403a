// Adds the five verbs of one resource of RunPod's REST API. What a service refuses is told with the names of that API.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { KeyHolder } from '../../../control/keys/keys.ts';
import type { ResourcePage } from '../../../control/user-resources.ts';
import { LIST_LIMIT, RESOURCE_BODY_BYTES } from '../../../wire/operations/operation.ts';
import { ProblemError } from '../../../wire/problem.ts';
import { listResourceRoutes, type ResourceOutline } from '../../../wire/routes/route.ts';
import { RUNPOD_BASE } from '../../../wire/routes/routes.ts';
import { sendJson } from '../../http/byte-reply.ts';
import {
  describeNext,
  type PageRequest,
  type QueryValues,
  readPageRequest,
  readResourceBody,
  requireHolder,
} from '../../http/requests.ts';
import { NO_BODY_BYTES, toFastifyRoute } from '../../routes/operation-routes.ts';
import { readId, sendRemoved } from '../../routes/resource-routes.ts';

export const MANAGEMENT_BASE = `${RUNPOD_BASE}/v2`;

export interface ManagedRoute {
  Params: Readonly<Record<string, string>>;
  Querystring: QueryValues;
  Body: Buffer | undefined;
}

/** Who calls, and the URL at which they reach the platform. */
export interface ManagedCall {
  caller: KeyHolder;
  url: string;
}

export interface ManagedResource<C extends z.ZodType, U extends z.ZodType> {
  /** Its `path` is that of Millrace's own API. */
  outline: ResourceOutline;
  /** Behind the base of the API. */
  path: string;
  creation: C;
  /** Undefined: it cannot be changed. */
  update?: { schema: U; apply(call: ManagedCall, id: string, update: z.infer<U>): Promise<object> };
  /** Names of members in this API, by their names in Millrace's own. */
  names?: Readonly<Record<string, string>>;
  list(call: ManagedCall, page: PageRequest): Promise<ResourcePage<object>>;
  create(call: ManagedCall, creation: z.infer<C>): Promise<{ id: string }>;
  get(call: ManagedCall, id: string): Promise<object>;
  remove(call: ManagedCall, id: string): Promise<void>;
}

/** The base of a resource's routes, with its scopes. */
export function placeManaged({
  outline,
  path,
}: Pick<ManagedResource<never, never>, 'outline' | 'path'>) {
  return { ...outline, path: `${MANAGEMENT_BASE}/${path}` };
}

export function addManaged<C extends z.ZodType, U extends z.ZodType>(
  app: FastifyInstance,
  resource: ManagedResource<C, U>,
): void {
  const { creation, names = {}, update } = resource;
  const outline = placeManaged(resource);
  const routes = listResourceRoutes(outline);
  const bodyLimit = RESOURCE_BODY_BYTES;

  app.route<ManagedRoute>({
    ...toFastifyRoute(routes.list),
    handler: async (request, reply) => {
      const { next, records } = await resource.list(readCall(request), readLongPage(request));
      return sendJson(reply, { [outline.plural]: records, ...describeNext(next) });
    },
  });
  app.route<ManagedRoute>({
    ...toFastifyRoute(routes.create),
    bodyLimit,
    handler: async (request, reply) => {
      const body = readResourceBody(request.body, creation);
      const created = await withNames(names, resource.create(readCall(request), body));
      return sendJson(reply.code(201).header('location', `${outline.path}/${created.id}`), created);
    },
  });
  app.route<ManagedRoute>({
    ...toFastifyRoute(routes.get),
    handler: async (request, reply) =>
      sendJson(reply, await resource.get(readCall(request), readId(request, outline))),
  });
  app.route<ManagedRoute>({
    ...toFastifyRoute(routes.delete),
    bodyLimit: NO_BODY_BYTES,
    handler: async (request, reply) =>
      sendRemoved(reply, resource.remove(readCall(request), readId(request, outline))),
  });
  if (!update) return;
  app.route<ManagedRoute>({
    ...toFastifyRoute(routes.update),
    bodyLimit,
    handler: async (request, reply) => {
      const body = readResourceBody(request.body, update.schema);
      const changing = update.apply(readCall(request), readId(request, outline), body);
      return sendJson(reply, await withNames(names, changing));
    },
  });
}

export function readCall(request: FastifyRequest<ManagedRoute>): ManagedCall {
  const { host = 'localhost', isSecure } = request.server.origins.ofRequest(request.raw);
  return { caller: requireHolder(request), url: `${isSecure ? 'https' : 'http'}://${host}` };
}

/** This API knows no pages: its clients get the longest one, and a `cursor` if there are more records. */
export function readLongPage(request: FastifyRequest<ManagedRoute>): PageRequest {
  return readPageRequest(request, { ...LIST_LIMIT, default: LIST_LIMIT.max });
}

/** Whatever names a member of Millrace's own API names the member of this API. */
export async function withNames<T>(
  names: Readonly<Record<string, string>>,
  doing: Promise<T>,
): Promise<T> {
  try {
    return await doing;
  } catch (error) {
    if (!(error instanceof ProblemError) || !error.errors) throw error;
    const errors = error.errors.map((fault) =>
      fault.replace(/^[A-Za-z]+/, (name) => names[name] ?? name),
    );
    throw new ProblemError(error.code, errors.join('; '), { errors });
  }
}

/** Uses that forbid a removal are a 400 in this API. */
export async function asRule<T>(doing: Promise<T>): Promise<T> {
  try {
    return await doing;
  } catch (error) {
    if (error instanceof ProblemError && error.code === 'conflict') throw breakRule(error.message);
    throw error;
  }
}

export function breakRule(fault: string): ProblemError {
  return new ProblemError('rule_broken', fault, { errors: [fault] });
}

export function refuse(fault: string): ProblemError {
  return new ProblemError('invalid', fault, { errors: [fault] });
}
