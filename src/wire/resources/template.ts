// Schemas of a template: the container settings for pods and for workers of endpoints.
import { z } from 'zod';
import { resourceName } from '../text.ts';
import { containerArgs, diskGb, imageReference, podEnv, podPorts, registryId } from './pod.ts';

/** Body of `POST /v1/templates`. */
export const templateCreation = z.strictObject({
  name: resourceName,
  /** Required on the process engine too, although that engine ignores it. */
  image: imageReference,
  args: containerArgs.default(''),
  env: podEnv.default({}),
  disk: diskGb.default(20),
  ports: podPorts.default([]),
  registry: registryId.nullable().default(null),
  handler: z
    .string()
    .min(1)
    .max(4_096)
    .nullable()
    .default(null)
    .describe("Process engine: path of the workers' handler module on the platform's machine"),
});
export type TemplateCreation = z.infer<typeof templateCreation>;

/** Body of `PATCH /v1/templates/{id}`; omitted members stay unchanged. */
export const templateUpdate = z.strictObject({
  name: resourceName.exactOptional(),
  image: imageReference.exactOptional(),
  args: containerArgs.exactOptional(),
  env: podEnv.exactOptional(),
  disk: diskGb.exactOptional(),
  ports: podPorts.exactOptional(),
  registry: registryId.nullable().exactOptional(),
  handler: z.string().min(1).max(4_096).nullable().exactOptional(),
});
export type TemplateUpdate = z.infer<typeof templateUpdate>;

export const templateRecord = z.object({
  id: z.string(),
  name: z.string(),
  image: z.string(),
  args: z.string(),
  env: z.record(z.string(), z.string()),
  disk: z.int(),
  ports: z.array(z.string()),
  registry: z.string().nullable(),
  handler: z.string().nullable(),
  createdAt: z.iso.datetime(),
  version: z
    .int()
    .min(1)
    .describe(
      'Grows with every change except of the name; workers of an older version are replaced',
    ),
});
export type TemplateRecord = z.infer<typeof templateRecord>;

export const templateList = z.object({
  templates: z.array(templateRecord),
  cursor: z.string().exactOptional(),
});
