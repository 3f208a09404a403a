// Pods of RunPod's REST API, before the pods of Millrace's own, whose record is nearly the same.
import { randomBytes } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { Catalog } from '../../../control/endpoints/catalog.ts';
import type { Templates } from '../../../control/endpoints/templates.ts';
import { hideVariables, type Rights } from '../../../control/keys/rights.ts';
import type { PodState, Pods } from '../../../control/pods/pods.ts';
import { RESOURCE_BODY_BYTES } from '../../../wire/operations/operation.ts';
import type { CpuFlavor } from '../../../wire/resources/catalog.ts';
import { creationShape, updateShape } from '../../../wire/resources/field-schemas.ts';
import { POD_FIELDS } from '../../../wire/resources/fields.ts';
import {
  gpuConfig,
  type PodRecord,
  podActionRequest,
  podCreation,
  podMounts,
  podUpdate,
} from '../../../wire/resources/pod.ts';
import { RESOURCES } from '../../../wire/routes/routes.ts';
import { check } from '../../body/body.ts';
import { sendJson } from '../../http/byte-reply.ts';
import { readResourceBody } from '../../http/requests.ts';
import { readId, requirePods } from '../../routes/resource-routes.ts';
import { containerShape, cudaShape, pickContainer, readBase, readNotes } from './containers.ts';
import {
  breakRule,
  type ManagedResource,
  type ManagedRoute,
  placeManaged,
  readCall,
  refuse,
} from './managed-resource.ts';

const id = z.string().min(1).max(200);
const common = {
  ...containerShape,
  globalNetworking: z.boolean().exactOptional(),
  mounts: podMounts.exactOptional(),
  templateId: id.exactOptional(),
};
const creation = z.strictObject({
  ...common,
  name: creationShape(POD_FIELDS).name,
  cloud: z.enum(['SECURE', 'COMMUNITY']).exactOptional(),
  cpu: z.strictObject({ id, vcpuCount: z.int().min(2) }).exactOptional(),
  dataCenterIds: z.array(id).max(100).exactOptional(),
  gpu: gpuConfig.extend(cudaShape).exactOptional(),
  startJupyter: z.boolean().exactOptional(),
  startSsh: z.boolean().exactOptional(),
});
const update = z.strictObject({
  ...common,
  locked: updateShape(POD_FIELDS).locked,
  name: updateShape(POD_FIELDS).name,
});

export interface ManagedPods {
  pods: Pods | undefined;
  templates: Templates;
  catalog: Catalog;
}

export function managePods({
  catalog,
  pods: given,
  templates,
}: ManagedPods): ManagedResource<typeof creation, typeof update> {
  return {
    outline: RESOURCES.pods,
    path: 'pods',
    names: { cpu: 'cpu', template: 'templateId', dataCenterId: 'dataCenterIds' },
    creation,
    update: {
      schema: update,
      async apply({ caller }, podId, { templateId, ...changes }) {
        const pods = requirePods(given);
        const { userId } = caller;
        const base =
          templateId === undefined
            ? undefined
            : readBase(templates, { templateId, userId, isServerless: false });
        const { globalNetworking, ...rest } = changes;
        const before = await show(pods, caller, await pods.find(userId, podId));
        if (
          globalNetworking !== undefined &&
          globalNetworking !== before.globalNetworking.enabled
        ) {
          throw refuse('globalNetworking: cannot be changed here; create another pod');
        }
        const container = base && { ...pickContainer(base), env: { ...base.env, ...rest.env } };
        const whole = check(
          { ...container, ...rest, ...(container && { env: container.env }) },
          podUpdate,
        );
        return show(pods, caller, await pods.update(userId, podId, whole));
      },
    },
    async list({ caller }, page) {
      const pods = requirePods(given);
      const { next, pods: found } = await pods.list({ ...page, userId: caller.userId });
      const own = found.filter(
        ({ endpointId, status }) => endpointId === null && status !== 'TERMINATED',
      );
      return { records: await Promise.all(own.map((pod) => show(pods, caller, pod))), next };
    },
    async create({ caller }, body) {
      const pods = requirePods(given);
      const { userId } = caller;
      const { cpu, dataCenterIds = [], env, gpu, startJupyter, startSsh: _ssh, templateId } = body;
      if ((cpu === undefined) === (gpu === undefined)) {
        throw breakRule('gpu: exactly one of gpu and cpu must be given');
      }
      if (dataCenterIds.length > 1)
        throw refuse('dataCenterIds: must have at most one data center');
      const base =
        templateId === undefined
          ? undefined
          : readBase(templates, { templateId, userId, isServerless: false });
      const notes = base && readNotes(base);
      const mounts = body.mounts ?? (notes?.persistent && gpu && { persistent: notes.persistent });
      const variables = {
        ...((startJupyter ?? notes?.startJupyter) && {
          JUPYTER_PASSWORD: randomBytes(16).toString('hex'),
        }),
        ...base?.env,
        ...env,
      };
      const whole = check(
        {
          ...pickContainer(body),
          ...{ name: body.name, env: variables, dataCenterId: dataCenterIds[0] ?? null },
          ...(body.cloud && { cloud: body.cloud }),
          ...(cpu && { cpu: { ...cpu, memory: memoryOf(cpu, catalog) } }),
          ...(gpu && { gpu: { id: gpu.id, count: gpu.count } }),
          ...(mounts && { mounts }),
          ...(body.globalNetworking !== undefined && { globalNetworking: body.globalNetworking }),
          ...(base && { template: base.id }),
        },
        podCreation,
      );
      return show(pods, caller, await pods.create(userId, whole));
    },
    async get({ caller }, podId) {
      const pods = requirePods(given);
      return show(pods, caller, await pods.find(caller.userId, podId));
    },
    async remove({ caller }, podId) {
      const pods = requirePods(given);
      const { status } = await pods.find(caller.userId, podId);
      if (status !== 'TERMINATED') await pods.act(caller.userId, podId, 'terminate');
    },
  };
}

/** Adds the action of a pod. */
export function addPodAction(app: FastifyInstance, { pods: given }: ManagedPods): void {
  const outline = placeManaged({ outline: RESOURCES.pods, path: 'pods' });
  app.route<ManagedRoute>({
    method: 'POST',
    url: `${outline.path}/:pod/action`,
    config: { access: 'pods:write' },
    bodyLimit: RESOURCE_BODY_BYTES,
    handler: async (request, reply) => {
      const pods = requirePods(given);
      const { caller } = readCall(request);
      const { action } = readResourceBody(request.body, podActionRequest);
      const pod = await pods.act(caller.userId, readId(request, outline), action);
      if (action === 'terminate') return reply.code(204).send();
      return sendJson(reply, await show(pods, caller, pod));
    },
  });
}

/** GB of memory for each vCPU of a flavor: RunPod's pods have a fixed ratio. */
export function ratioOf({ maxMemory, vcpuCounts }: CpuFlavor): number {
  return maxMemory / Math.max(...vcpuCounts);
}

function memoryOf(
  { id: flavorId, vcpuCount }: { id: string; vcpuCount: number },
  catalog: Catalog,
) {
  const { cpus } = catalog.listCpus({ before: undefined, limit: Number.MAX_SAFE_INTEGER });
  const flavor = cpus.find((each) => each.id === flavorId);
  return flavor ? Math.max(1, Math.floor(ratioOf(flavor) * vcpuCount)) : 1;
}

async function show(pods: Pods, caller: Rights, pod: PodState) {
  const record = hideVariables(caller, 'pods:write', await pods.show(pod));
  const {
    actions,
    cloud,
    cost,
    cpu,
    createdAt,
    dataCenterId,
    globalNetworking,
    gpu,
    mounts,
    name,
    runtime,
  } = record;
  return {
    ...{ id: record.id, name, status: record.status, actions },
    ...pickContainer(record),
    ...{ mounts, cloud, dataCenterId, cost, globalNetworking, runtime, createdAt },
    ...(gpu && { gpu }),
    ...(cpu && { cpu }),
    cudaVersion: null,
    ssh: { proxy: null, direct: findSsh(record) },
    ...{ template: record.template, locked: record.locked, startedAt: record.startedAt },
  };
}

/** The mapping of 22/tcp, while the pod runs. */
function findSsh({ runtime }: Pick<PodRecord, 'runtime'>) {
  const mapped = runtime?.ports?.find((port) => port.private === 22 && port.type === 'tcp');
  if (!mapped || mapped.public === null || mapped.ip === null) return null;
  const { ip: host, public: port } = mapped;
  return { host, port, username: 'root', command: `ssh root@${host} -p ${port}` };
}
