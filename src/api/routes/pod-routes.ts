// Serves pods: the five verbs, actions, and logs.

import { hideVariables } from '../../control/keys/rights.ts';
import type { Pods } from '../../control/pods/pods.ts';
import { forCallers, type UserResources } from '../../control/user-resources.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type PodCreation,
  type PodRecord,
  type PodUpdate,
  podActionRequest,
} from '../../wire/resources/pod.ts';
import {
  LOG_BYTES,
  POD_OPERATIONS,
  pods as podResource,
} from '../../wire/resources/pod-operations.ts';
import { LOG_CUT_HEADER } from '../../wire/routes/routes.ts';
import { sendBytes, sendJson } from '../http/byte-reply.ts';
import { readInteger, readResourceBody, readUser } from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';
import { bindResource, serveCallers } from './resource-routes.ts';

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
