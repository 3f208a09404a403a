// The operations on pods: the five verbs of a resource, actions and logs.
import { z } from 'zod';
import { answerJson, bodyJson, describeOperations } from '../operations/operation.ts';
import { describeResource } from '../operations/resource.ts';
import { POD_ROUTES, RESOURCES } from '../routes/routes.ts';
import { type PodRecord, podActionRequest, podCreation, podRecord, podUpdate } from './pod.ts';

/** Without an engine, every operation on pods is a conflict. */
const NO_ENGINE = [409];

/** Bytes of a pod's log in one answer. */
export const LOG_BYTES = { min: 1, max: 1_048_576, default: 65_536 };

const EXAMPLE: PodRecord = {
  id: 'pod_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d75',
  name: 'notebook',
  status: 'RUNNING',
  actions: ['stop', 'restart', 'terminate'],
  image: 'registry.example.com/notebook:3',
  args: '',
  disk: 20,
  ports: ['8888/http'],
  env: { LOG_LEVEL: 'info' },
  registry: null,
  mounts: {},
  gpu: { id: 'NVIDIA H200', count: 1 },
  cloud: 'SECURE',
  dataCenterId: null,
  template: null,
  cost: 3.59,
  locked: false,
  globalNetworking: { enabled: false },
  runtime: {
    uptime: 3_600,
    gpus: [{ util: 87, memoryUtil: 62 }],
    cpu: { util: 12 },
    memory: { util: 40 },
    ports: [{ private: 8_888, public: 20_001, type: 'http', ip: '203.0.113.7' }],
  },
  createdAt: '2026-01-15T09:30:00.000Z',
  startedAt: '2026-01-15T09:30:20.000Z',
  endpointId: null,
  node: null,
  reason: null,
};

export const pods = describeResource({
  outline: RESOURCES.pods,
  about: 'Containers, one by one.',
  record: podRecord,
  creation: podCreation,
  update: podUpdate,
  texts: {
    create: { summary: 'Create and start a pod' },
    update: {
      summary: 'Update a pod; omitted fields keep their value',
      description:
        'A change of `name`, `locked` or of the size of a persistent mount keeps the container. So does a ' +
        'larger `disk` on the process engine, and on Docker if the storage driver has no quotas. Any other ' +
        'change replaces the container: its disk is lost, its mounts are kept.',
    },
    delete: { summary: 'Terminate a pod' },
  },
  created: {
    201: {
      ...answerJson(podRecord, 'The pod is PROVISIONING.', {
        ...EXAMPLE,
        status: 'PROVISIONING',
        actions: ['terminate'],
        runtime: null,
        startedAt: null,
      })[200],
      headers: ['Location'],
    },
  },
  examples: {
    record: EXAMPLE,
    creation: {
      name: 'notebook',
      image: 'registry.example.com/notebook:3',
      ports: ['8888/http'],
      env: { LOG_LEVEL: 'info' },
      gpu: { id: 'NVIDIA H200', count: 1 },
    },
    update: { name: 'notebook of Ada', locked: true },
  },
  refusals: NO_ENGINE,
});

export const podList = pods.list;

export const POD_OPERATIONS = describeOperations('pods', POD_ROUTES, {
  actOnPod: {
    summary: 'Start, stop, restart or terminate a pod',
    description:
      '`actions` of the pod are those that its status and the engine allow. Another one is a 409, or a 422 if the engine lacks it.',
    body: bodyJson(podActionRequest, { action: 'restart' }),
    answers: {
      ...answerJson(podRecord, 'The pod.', EXAMPLE),
      204: { description: 'Terminated.' },
    },
    refusals: NO_ENGINE,
  },
  getPodLog: {
    summary: "Show the end of a pod's output",
    query: [
      {
        name: 'bytes',
        schema: z.int().min(LOG_BYTES.min).max(LOG_BYTES.max).default(LOG_BYTES.default),
        description: 'Maximum number of bytes, counted from the end',
      },
    ],
    answers: {
      200: {
        description:
          'Text, as it was printed. `Millrace-Truncated` says that output before it was left out; a character may be cut at the start.',
        headers: ['Millrace-Truncated'],
        content: { 'text/plain': { schema: z.string(), example: 'Listening on port 8888\n' } },
      },
    },
    refusals: NO_ENGINE,
  },
});
