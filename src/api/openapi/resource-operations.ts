// The operations on pods, endpoints, templates, the catalogue and keys, for the OpenAPI document.
import { z } from 'zod';
import { cpuFlavorList, gpuTypeList } from '../../wire/resources/catalog.ts';
import { decisionList } from '../../wire/resources/decision.ts';
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
import { resourceRoutes } from '../../wire/routes.ts';
import { LOG_BYTES } from '../routes/pod-routes.ts';
import {
  ANSWER_NOTHING,
  answerCreated,
  answerJson,
  JSON_TYPE,
  type Operation,
  PAGE_PARAMETERS,
} from './operation.ts';

export const RESOURCE_OPERATIONS: readonly Operation[] = [
  ...listPodOperations(),
  ...listEndpointOperations(),
  ...listTemplateOperations(),
  ...listCatalogOperations(),
  ...listKeyOperations(),
];

function listPodOperations(): Operation[] {
  const reading = { tag: 'pods', method: 'GET', access: 'pods:read' } as const;
  const writing = { tag: 'pods', access: 'pods:write' } as const;
  // Where the platform runs none at all, every operation on pods is a conflict.
  const refusals = [409];
  return [
    {
      ...{ ...reading, id: 'listPods', path: resourceRoutes.pods, refusals },
      summary: 'List pods, newest first',
      query: PAGE_PARAMETERS,
      answers: answerJson(podList, 'One page.'),
    },
    {
      ...{ ...writing, id: 'createPod', method: 'POST', path: resourceRoutes.pods, refusals },
      summary: 'Create and start a pod',
      body: { schema: podCreation },
      answers: answerCreated(podRecord, 'The pod is PROVISIONING.'),
    },
    {
      ...{ ...reading, id: 'getPod', path: resourceRoutes.pod(':pod'), refusals },
      summary: 'Show one pod',
      answers: answerJson(podRecord, 'The pod.'),
    },
    {
      ...{ ...writing, id: 'updatePod', method: 'PATCH', path: resourceRoutes.pod(':pod') },
      summary: 'Update a pod; omitted fields keep their value',
      description:
        'A change of `name`, `locked` or of the size of a persistent mount keeps the container. So does a ' +
        'larger `disk` on the process engine, and on Docker if the storage driver has no quotas. Any other ' +
        'change replaces the container: its disk is lost, its mounts are kept.',
      body: { schema: podUpdate },
      answers: answerJson(podRecord, 'The pod.'),
      refusals,
    },
    {
      ...{ ...writing, id: 'deletePod', method: 'DELETE', path: resourceRoutes.pod(':pod') },
      summary: 'Terminate a pod',
      answers: ANSWER_NOTHING,
      refusals,
    },
    {
      ...{ ...writing, id: 'actOnPod', method: 'POST', path: resourceRoutes.podAction(':pod') },
      summary: 'Start, stop, restart or terminate a pod',
      description: '`actions` of the pod are those that its status allows; any other is a 409.',
      body: { schema: podActionRequest },
      answers: { ...answerJson(podRecord, 'The pod.'), 204: { description: 'Terminated.' } },
      refusals,
    },
    {
      ...{ ...reading, id: 'getPodLog', path: resourceRoutes.podLogs(':pod'), refusals },
      summary: "Show the end of a pod's output",
      query: [
        {
          name: 'bytes',
          schema: z.int().min(LOG_BYTES.min).max(LOG_BYTES.max).default(LOG_BYTES.default),
          description: 'at most so many, from the end',
        },
      ],
      answers: {
        200: { description: 'Text, as it was printed.', content: { 'text/plain': z.string() } },
      },
    },
  ];
}

function listEndpointOperations(): Operation[] {
  const reading = { tag: 'endpoints', method: 'GET', access: 'endpoints:read' } as const;
  const writing = { tag: 'endpoints', access: 'endpoints:write' } as const;
  const one = resourceRoutes.endpoint(':endpoint');
  return [
    {
      ...{ ...reading, id: 'listEndpoints', path: resourceRoutes.endpoints },
      summary: 'List endpoints, newest first',
      query: PAGE_PARAMETERS,
      answers: answerJson(endpointList, 'One page.'),
    },
    {
      ...{ ...writing, id: 'createEndpoint', method: 'POST', path: resourceRoutes.endpoints },
      summary: 'Create an endpoint that scales its workers with the load',
      body: { schema: endpointCreation },
      answers: answerCreated(endpointRecord, 'The endpoint.'),
      refusals: [409],
    },
    {
      ...{ ...reading, id: 'getEndpoint', path: one },
      summary: 'Show one endpoint',
      answers: answerJson(endpointRecord, 'The endpoint.'),
    },
    {
      ...{ ...writing, id: 'updateEndpoint', method: 'PATCH', path: one },
      summary: 'Update an endpoint; omitted fields keep their value',
      description: 'Another template or other GPU types replace its workers, new ones ready first.',
      body: { schema: endpointUpdate },
      answers: answerJson(endpointRecord, 'The endpoint.'),
      refusals: [409],
    },
    {
      ...{ ...writing, id: 'deleteEndpoint', method: 'DELETE', path: one },
      summary: 'Delete an endpoint, its workers, jobs and logs',
      answers: ANSWER_NOTHING,
      refusals: [409],
    },
    {
      ...{ ...reading, id: 'listScalerDecisions', path: resourceRoutes.scaler(':endpoint') },
      summary: 'List the last scaling decisions of an endpoint',
      query: PAGE_PARAMETERS,
      answers: answerJson(decisionList, 'One page, the newest first.'),
    },
  ];
}

function listTemplateOperations(): Operation[] {
  const reading = { tag: 'templates', method: 'GET', access: 'endpoints:read' } as const;
  const writing = { tag: 'templates', access: 'endpoints:write' } as const;
  const one = resourceRoutes.template(':template');
  return [
    {
      ...{ ...reading, id: 'listTemplates', path: resourceRoutes.templates },
      summary: 'List templates, newest first',
      query: PAGE_PARAMETERS,
      answers: answerJson(templateList, 'One page.'),
    },
    {
      ...{ ...writing, id: 'createTemplate', method: 'POST', path: resourceRoutes.templates },
      summary: 'Create a template of pods and workers',
      body: { schema: templateCreation },
      answers: answerCreated(templateRecord, 'The template.'),
      refusals: [409],
    },
    {
      ...{ ...reading, id: 'getTemplate', path: one },
      summary: 'Show one template',
      answers: answerJson(templateRecord, 'The template.'),
    },
    {
      ...{ ...writing, id: 'updateTemplate', method: 'PATCH', path: one },
      summary: 'Update a template; omitted fields keep their value',
      description:
        'Workers that were made from it are replaced, new ones ready first; pods are not.',
      body: { schema: templateUpdate },
      answers: answerJson(templateRecord, 'The template.'),
      refusals: [409],
    },
    {
      ...{ ...writing, id: 'deleteTemplate', method: 'DELETE', path: one },
      summary: 'Delete a template that no endpoint uses',
      answers: ANSWER_NOTHING,
      refusals: [409],
    },
  ];
}

function listCatalogOperations(): Operation[] {
  const reading = { tag: 'catalog', method: 'GET', access: 'endpoints:read' } as const;
  return [
    {
      ...{ ...reading, id: 'listGpuTypes', path: resourceRoutes.gpus },
      summary: 'List GPU types with their price and how many are free',
      query: PAGE_PARAMETERS,
      answers: answerJson(gpuTypeList, 'One page.'),
    },
    {
      ...{ ...reading, id: 'listCpuFlavors', path: resourceRoutes.cpus },
      summary: 'List CPU flavours with their prices',
      query: PAGE_PARAMETERS,
      answers: answerJson(cpuFlavorList, 'One page.'),
    },
  ];
}

function listKeyOperations(): Operation[] {
  const reading = { tag: 'keys', method: 'GET', access: 'keys:read' } as const;
  const writing = { tag: 'keys', access: 'keys:write' } as const;
  const issued: Operation['answers'] = {
    201: {
      description: 'The key: this is the only time that it is shown.',
      content: { [JSON_TYPE]: issuedKey },
      headers: ['Location', 'Cache-Control'],
    },
  };
  const user = {
    name: 'userId',
    schema: z.string().exactOptional(),
    description: 'keys of this user; for the operator of the platform only',
  };
  return [
    {
      ...{ ...reading, id: 'listKeys', path: resourceRoutes.keys },
      summary: 'List API keys, newest first',
      query: [user, ...PAGE_PARAMETERS],
      answers: answerJson(keyList, 'One page.'),
    },
    {
      ...{ ...writing, id: 'createKey', method: 'POST', path: resourceRoutes.keys },
      summary: 'Create an API key with at most the scopes of the calling key',
      body: { schema: keyCreation },
      answers: issued,
      refusals: [409],
    },
    {
      ...{ ...reading, id: 'getKey', path: resourceRoutes.key(':key') },
      summary: 'Show one API key',
      answers: answerJson(keyRecord, 'All but the key itself.'),
    },
    {
      ...{ ...writing, id: 'deleteKey', method: 'DELETE', path: resourceRoutes.key(':key') },
      summary: 'Revoke an API key',
      answers: ANSWER_NOTHING,
      refusals: [409],
    },
    {
      ...{ ...writing, id: 'rotateKey', method: 'POST', path: resourceRoutes.keyRotation(':key') },
      summary: 'Replace an API key by a new one with the same scopes',
      body: { schema: keyRotation, presence: 'optional' },
      answers: issued,
      refusals: [409],
    },
  ];
}
