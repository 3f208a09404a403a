// /v2/pods: each user's own, made, listed, changed, acted on, deleted, and what they print.
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { PodState, Pods } from '../../control/pods/pods.ts';
import { ProblemError } from '../../wire/problem.ts';
import { podActionRequest, podCreation, podUpdate } from '../../wire/resources/pod.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { checkNoBody } from '../http/body.ts';
import { sendBytes } from '../http/byte-reply.ts';
import { describeNext, readPage } from '../http/paging.ts';
import { type QueryValues, readInteger } from '../http/query.ts';
import { RESOURCE_BODY_BYTES, readResource, readUser } from '../http/resource-requests.ts';
import { NO_BODY_BYTES, sendJson } from './job-routes.ts';

export const LOG_BYTES = { min: 1, max: 1_048_576, default: 65_536 };
const LOG_MEDIA_TYPE = 'text/plain; charset=utf-8';

interface PodsRoute {
  Querystring: QueryValues;
  Body: Buffer | undefined;
}

interface PodRoute extends PodsRoute {
  Params: { pod: string };
}

export interface PodRoutesOptions {
  /** Undefined: there is no engine to run them. */
  pods: Pods | undefined;
}

/** `app` has to give bodies as Buffers, of no other media type than application/json. */
export function addPodBodyRoutes(app: FastifyInstance, options: PodRoutesOptions): void {
  const route = { bodyLimit: RESOURCE_BODY_BYTES, config: { access: 'pods:write' } } as const;

  app.post<PodsRoute>(resourceRoutes.pods, route, async (request, reply) => {
    const pods = requirePods(options);
    const creation = readResource(request.body, podCreation);
    const pod = await pods.create(readUser(request), creation);
    reply.code(201).header('location', resourceRoutes.pod(pod.id));
    return sendPod(reply, pods, pod);
  });

  app.patch<PodRoute>(resourceRoutes.pod(':pod'), route, async (request, reply) => {
    const pods = requirePods(options);
    const update = readResource(request.body, podUpdate);
    const pod = await pods.update(readUser(request), request.params.pod, update);
    return sendPod(reply, pods, pod);
  });

  app.post<PodRoute>(resourceRoutes.podAction(':pod'), route, async (request, reply) => {
    const pods = requirePods(options);
    const { action } = readResource(request.body, podActionRequest);
    const pod = await pods.act(readUser(request), request.params.pod, action);
    return action === 'terminate' ? reply.code(204).send() : sendPod(reply, pods, pod);
  });
}

/** `app` has to give bodies as Buffers, of whatever media type. */
export function addPodRoutes(app: FastifyInstance, options: PodRoutesOptions): void {
  const reading = { config: { access: 'pods:read' } } as const;

  app.get<PodsRoute>(resourceRoutes.pods, reading, async (request, reply) => {
    const pods = requirePods(options);
    const listing = { userId: readUser(request), ...readPage(request) };
    const { next, pods: page } = await pods.list(listing);
    const records = await Promise.all(page.map((pod) => pods.show(pod)));
    return sendJson(reply, { pods: records, ...describeNext(next) });
  });

  app.get<PodRoute>(resourceRoutes.pod(':pod'), reading, async (request, reply) => {
    const pods = requirePods(options);
    return sendPod(reply, pods, await pods.find(readUser(request), request.params.pod));
  });

  app.get<PodRoute>(resourceRoutes.podLogs(':pod'), reading, async (request, reply) => {
    const pods = requirePods(options);
    const maxBytes = readInteger(request.query, 'bytes', LOG_BYTES) ?? LOG_BYTES.default;
    const log = await pods.readLog(readUser(request), request.params.pod, maxBytes);
    return sendBytes(reply, { mediaType: LOG_MEDIA_TYPE, pieces: [log] });
  });

  app.delete<PodRoute>(
    resourceRoutes.pod(':pod'),
    { bodyLimit: NO_BODY_BYTES, config: { access: 'pods:write' } },
    async (request, reply) => {
      const pods = requirePods(options);
      checkNoBody(request.body);
      const userId = readUser(request);
      const { status } = await pods.find(userId, request.params.pod);
      if (status !== 'TERMINATED') await pods.act(userId, request.params.pod, 'terminate');
      return reply.code(204).send();
    },
  );
}

async function sendPod(reply: FastifyReply, pods: Pods, pod: PodState): Promise<FastifyReply> {
  return sendJson(reply, await pods.show(pod));
}

/** @throws ProblemError `conflict` */
function requirePods({ pods }: PodRoutesOptions): Pods {
  if (pods) return pods;
  const remedy = 'start it with `millrace serve --engine process`';
  throw new ProblemError('conflict', `this platform runs without an engine; ${remedy}`);
}
