// Schemas of a template, the container settings for pods and for workers of endpoints; its operations.
import { z } from 'zod';
import { podKubernetes } from '../engine/kubernetes.ts';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { creationShape, recordShape, updateShape } from './field-schemas.ts';
import { TEMPLATE_FIELDS } from './fields.ts';
import { podEnv, shownEnv } from './pod.ts';

/** Body of `POST /v1/templates`. */
export const templateCreation = z.strictObject({
  ...creationShape(TEMPLATE_FIELDS),
  env: podEnv.default({}),
  kubernetes: podKubernetes.exactOptional(),
});
export type TemplateCreation = z.infer<typeof templateCreation>;

/** Body of `PATCH /v1/templates/{id}`; omitted members stay unchanged. */
export const templateUpdate = z.strictObject({
  ...updateShape(TEMPLATE_FIELDS),
  env: podEnv.exactOptional(),
  kubernetes: podKubernetes.nullable().exactOptional(),
});
export type TemplateUpdate = z.infer<typeof templateUpdate>;

export const templateRecord = z.object({
  id: z.string(),
  ...recordShape(TEMPLATE_FIELDS),
  env: shownEnv('endpoints:write'),
  kubernetes: podKubernetes.exactOptional(),
  createdAt: z.iso.datetime(),
  version: z
    .int()
    .min(1)
    .describe(
      'Grows with every change except of the name; workers of an older version are replaced',
    ),
});
export type TemplateRecord = z.infer<typeof templateRecord>;

const EXAMPLE: TemplateRecord = {
  id: 'tpl_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
  name: 'echo',
  image: 'registry.example.com/echo:1.4',
  args: '',
  env: { LOG_LEVEL: 'info' },
  disk: 20,
  ports: ['8000/http'],
  registry: null,
  handler: null,
  createdAt: '2026-01-15T09:30:00.000Z',
  version: 1,
};

export const templates = describeResource({
  outline: RESOURCES.templates,
  about: 'Templates of pods and workers.',
  record: templateRecord,
  creation: templateCreation,
  update: templateUpdate,
  texts: {
    create: { summary: 'Create a template of pods and workers' },
    update: {
      summary: 'Update a template; omitted fields keep their value',
      description:
        'The platform replaces workers that were made from it, new ones ready first; pods stay.',
    },
    delete: { summary: 'Delete a template that no endpoint uses' },
  },
  examples: {
    record: EXAMPLE,
    creation: {
      name: 'echo',
      image: 'registry.example.com/echo:1.4',
      env: { LOG_LEVEL: 'info' },
      ports: ['8000/http'],
    },
    update: { image: 'registry.example.com/echo:1.5' },
  },
});

export const templateList = templates.list;
