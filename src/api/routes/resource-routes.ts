// Serves resources by their descriptions: the five verbs of each; API keys, which are issued once and rotated; pods
// with their actions and logs; and schedules with their ticks. control/ checks what the caller may do.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { hideVariables } from '../../control/keys/rights.ts';
import type { UserKeys } from '../../control/keys/user-keys.ts';
import type { Pods } from '../../control/pods/pods.ts';
import {
  type CallerResources,
  forCallers,
  type UserResources,
} from '../../control/user-resources.ts';
import type { Operation } from '../../wire/operations/operation.ts';
import type { FixedResource, Resource } from '../../wire/operations/resource.ts';
import { ProblemError } from '../../wire/problem.ts';
import { KEY_OPERATIONS, keyRotation, keys } from '../../wire/resources/key.ts';
import {
  LOG_BYTES,
  POD_OPERATIONS,
  type PodCreation,
  type PodRecord,
  type PodUpdate,
  podActionRequest,
  pods as podResource,
} from '../../wire/resources/pod.ts';
import {
  SCHEDULE_OPERATIONS,
  schedulePreview,
  schedules as scheduleResource,
} from '../../wire/resources/schedule.ts';
import { nameParameter, type ResourceOutline } from '../../wire/routes/route.ts';
import { LOG_CUT_HEADER } from '../../wire/routes/routes.ts';
import { check } from '../body/body.ts';
import { sendBytes, sendJson } from '../http/byte-reply.ts';
import { isRepeated } from '../http/forwarded.ts';
import {
  describeNext,
  type PageRequest,
  type QueryValues,
  readInteger,
  readPageRequest,
  readResourceBody,
  readText,
  readUser,
  requireHolder,
} from '../http/requests.ts';
import type { Schedules } from '../schedules.ts';
import { type BoundOperation, bindOperation, bindOperations } from './operation-routes.ts';

/** Carries out the verbs for the holder of a key. */
export interface FixedResourceService<Creation> {
  /** Newest first. `query`: all parameters, for those that only this list has. */
  list(caller: KeyHolder, page: PageRequest, query: QueryValues): ListPage | Promise<ListPage>;
  create(caller: KeyHolder, creation: Creation): Promise<{ id: string }>;
  /** @throws ProblemError `not_found` */
  get(caller: KeyHolder, id: string): object | Promise<object>;
  /** @throws ProblemError `not_found` */
  remove(caller: KeyHolder, id: string): Promise<void>;
}

export interface ResourceService<Creation, Update> extends FixedResourceService<Creation> {
  /** @throws ProblemError `not_found` */
  update(caller: KeyHolder, id: string, update: Update): Promise<object>;
}

interface ListPage {
  records: readonly object[];
  /** Position where the next page begins; undefined on the last page. */
  next?: number | undefined;
}

/** Binds list, create, get and delete. */
function bindFixedResource<O extends ResourceOutline, R extends z.ZodType, C extends z.ZodType>(
  { operations, outline }: FixedResource<O, R, C>,
  service: FixedResourceService<z.infer<C>>,
): BoundOperation[] {
  const { create, delete: remove, get, list } = operations;
  return [
    bindOperation(list, async (request, reply) => {
      const page = readPageRequest(request);
      const { next, records } = await service.list(requireHolder(request), page, request.query);
      return sendJson(reply, { [outline.plural]: records, ...describeNext(next) });
    }),
    bindOperation(create, async (request, reply) => {
      const creation = readResourceBody(request.body, create.body.schema);
      const created = await service.create(requireHolder(request), creation);
      return sendCreated(reply, { operation: create, outline, created });
    }),
    bindOperation(get, async (request, reply) =>
      sendJson(reply, await service.get(requireHolder(request), readId(request, outline))),
    ),
    bindOperation(remove, async (request, reply) => {
      return sendRemoved(reply, service.remove(requireHolder(request), readId(request, outline)));
    }),
  ];
}

/** Binds all five verbs. */
export function bindResource<
  O extends ResourceOutline,
  R extends z.ZodType,
  C extends z.ZodType,
  U extends z.ZodType,
>(
  resource: Resource<O, R, C, U>,
  service: ResourceService<z.infer<C>, z.infer<U>>,
): BoundOperation[] {
  const { update } = resource.operations;
  return [
    ...bindFixedResource(resource, service),
    bindOperation(update, async (request, reply) => {
      const change = readResourceBody(request.body, update.body.schema);
      const id = readId(request, resource.outline);
      return sendJson(reply, await service.update(requireHolder(request), id, change));
    }),
  ];
}

/** Adapts resources to requests. */
export function serveCallers<Creation, Update>(
  resources: CallerResources<Creation, Update>,
): ResourceService<Creation, Update> {
  return {
    list: (caller, page, query) =>
      resources.list(caller, { userId: readText(query, 'userId'), ...page }),
    create: (caller, creation) => resources.create(caller, creation),
    get: (caller, id) => resources.get(caller, id),
    update: (caller, id, update) => resources.update(caller, id, update),
    remove: (caller, id) => resources.remove(caller, id),
  };
}

/** Sends 201 with the new resource's path. If it is described with Cache-Control, forbids caching. */
function sendCreated(
  reply: FastifyReply,
  given: { operation: Operation; outline: ResourceOutline; created: { id: string } },
): Promise<FastifyReply> {
  const { created, operation, outline } = given;
  reply.code(201).header('location', `${outline.path}/${created.id}`);
  const isSecret = operation.answers[201]?.headers?.includes('Cache-Control');
  if (isSecret) reply.header('cache-control', 'no-store');
  return sendJson(reply, created);
}

export async function sendRemoved(
  reply: FastifyReply,
  removal: Promise<void>,
): Promise<FastifyReply> {
  await removal.catch((error: unknown) => {
    const isGone = error instanceof ProblemError && error.code === 'not_found';
    // An earlier attempt has removed it.
    if (!isGone || !isRepeated(reply.request.raw)) throw error;
  });
  return reply.code(204).send();
}

export function readId(
  { params }: Pick<FastifyRequest, 'params'>,
  outline: ResourceOutline,
): string {
  const parameter = nameParameter(outline);
  const id = new Map(Object.entries(Object(params))).get(parameter);
  if (typeof id === 'string') return id;
  throw new Error(`the path has no parameter ${parameter}`);
}

export function bindKeys(userKeys: UserKeys): BoundOperation[] {
  const verbs = bindFixedResource(keys, {
    list: (caller, page, query) =>
      userKeys.list(caller, { userId: readText(query, 'userId'), ...page }),
    create: (caller, creation) => userKeys.issue(caller, creation),
    get: (caller, id) => userKeys.find(caller, id),
    remove: (caller, id) => userKeys.revoke(caller, id),
  });
  const rotation = bindOperations(KEY_OPERATIONS, {
    rotateKey: async (request, reply) => {
      const { body, params } = request;
      const { graceSeconds } = body?.length
        ? readResourceBody(body, keyRotation)
        : check({}, keyRotation);
      const created = await userKeys.rotate(requireHolder(request), params.key, graceSeconds);
      const operation = KEY_OPERATIONS.rotateKey;
      return sendCreated(reply, { operation, outline: keys.outline, created });
    },
  });
  return [...verbs, ...rotation];
}

export function bindSchedules(schedules: Schedules): BoundOperation[] {
  return [
    ...bindResource(scheduleResource, serveCallers(forCallers(schedules))),
    ...bindOperations(SCHEDULE_OPERATIONS, {
      triggerSchedule: async (request, reply) => {
        const jobId = await schedules.trigger(readUser(request), request.params.schedule);
        return sendJson(reply, { jobId });
      },
      previewSchedule: async (request, reply) => {
        const timing = readResourceBody(request.body, schedulePreview);
        return sendJson(reply, { nextTicks: schedules.preview(timing) });
      },
    }),
  ];
}

const LOG_MEDIA_TYPE = 'text/plain; charset=utf-8';

/** `pods` is undefined if the platform has no engine. */
export function bindPods(pods: Pods | undefined): BoundOperation[] {
  return [...bindVerbs(pods), ...bindActions(pods)];
}

function bindVerbs(given: Pods | undefined): BoundOperation[] {
  const service: UserResources<PodCreation, PodUpdate, PodRecord> = {
    async list(listing) {
      const pods = requirePods(given);
      const { next, pods: page } = await pods.list(listing);
      return { records: await Promise.all(page.map((pod) => pods.show(pod))), next };
    },
    async create(userId, creation) {
      const pods = requirePods(given);
      return pods.show(await pods.create(userId, creation));
    },
    async get(userId, id) {
      const pods = requirePods(given);
      return pods.show(await pods.find(userId, id));
    },
    async update(userId, id, update) {
      const pods = requirePods(given);
      return pods.show(await pods.update(userId, id, update));
    },
    async remove(userId, id) {
      const pods = requirePods(given);
      const { status } = await pods.find(userId, id);
      if (status !== 'TERMINATED') await pods.act(userId, id, 'terminate');
    },
  };
  const callers = forCallers(service, (caller, pod) => hideVariables(caller, 'pods:write', pod));
  return bindResource(podResource, serveCallers(callers));
}

function bindActions(given: Pods | undefined): BoundOperation[] {
  return bindOperations(POD_OPERATIONS, {
    actOnPod: async (request, reply) => {
      const pods = requirePods(given);
      const { action } = readResourceBody(request.body, podActionRequest);
      const pod = await pods.act(readUser(request), request.params.pod, action);
      if (action === 'terminate') return reply.code(204).send();
      return sendJson(reply, await pods.show(pod));
    },
    getPodLog: async (request, reply) => {
      const pods = requirePods(given);
      const maxBytes = readInteger(request.query, 'bytes', LOG_BYTES) ?? LOG_BYTES.default;
      const { end, isCut } = await pods.readLog(readUser(request), request.params.pod, maxBytes);
      if (isCut) reply.header(LOG_CUT_HEADER, 'true');
      return sendBytes(reply, { mediaType: LOG_MEDIA_TYPE, pieces: [end] });
    },
  });
}

/** @throws ProblemError `conflict` */
export function requirePods(pods: Pods | undefined): Pods {
  if (pods) return pods;
  const remedy = 'start it with `millrace serve --engine process`';
  throw new ProblemError('conflict', `this platform runs without an engine; ${remedy}`);
}
