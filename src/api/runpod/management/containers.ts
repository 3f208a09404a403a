// What templates, endpoints and pods of RunPod's REST API have in common: the settings of a container, and the limits that
// this platform sets to their hardware.
import { z } from 'zod';
import type { LiveTemplate, Templates } from '../../../control/endpoints/templates.ts';
import { ProblemError } from '../../../wire/problem.ts';
import { updateShape } from '../../../wire/resources/field-schemas.ts';
import { TEMPLATE_FIELDS } from '../../../wire/resources/fields.ts';
import { persistentMount, podEnv } from '../../../wire/resources/pod.ts';
import type { TemplateCreation } from '../../../wire/resources/template.ts';

const { args, disk, image, ports, registry } = updateShape(TEMPLATE_FIELDS);
export const containerShape = {
  ...{ args, disk, image, ports, registry },
  env: podEnv.exactOptional(),
};
const container = z.strictObject(containerShape);
export type Container = z.infer<typeof container>;

/** What a template has in RunPod's API only. */
const templateNotes = z.object({
  /** Made for one endpoint, and gone with it. */
  isBound: z.boolean().default(false),
  /** Undefined: for pods and for endpoints. */
  serverless: z.boolean().exactOptional(),
  category: z.enum(['CPU', 'NVIDIA', 'AMD']).default('NVIDIA'),
  startSsh: z.boolean().default(false),
  startJupyter: z.boolean().default(false),
  persistent: persistentMount.exactOptional(),
  dataCenterIds: z.array(z.string()).default([]),
});
export type TemplateNotes = z.infer<typeof templateNotes>;

export function readNotes({ notes = {} }: Pick<LiveTemplate, 'notes'>): TemplateNotes {
  return templateNotes.parse(notes);
}

/** Only the members that are given. */
export function pickContainer(given: Container): Container {
  const { args, disk, env, image, ports, registry } = given;
  return {
    ...(args !== undefined && { args }),
    ...(disk !== undefined && { disk }),
    ...(env !== undefined && { env }),
    ...(image !== undefined && { image }),
    ...(ports !== undefined && { ports }),
    ...(registry !== undefined && { registry }),
  };
}

/** @throws ProblemError `not_found`, `conflict`, `invalid` for a template of the other kind */
export function readBase(
  templates: Templates,
  {
    isServerless,
    templateId,
    userId,
  }: { templateId: string; userId: string; isServerless: boolean },
): LiveTemplate {
  const base = templates.get(userId, templates.resolve(userId, templateId));
  const { serverless = isServerless } = readNotes(base);
  if (serverless === isServerless) return base;
  const detail = `templateId: template ${base.id} is for ${serverless ? 'endpoints' : 'pods'}`;
  throw new ProblemError('invalid', detail, { errors: [detail] });
}

/** Settings of a template, changed by those of a request. @throws ProblemError `conflict` if its variables cannot be read */
export function deriveTemplate(
  base: LiveTemplate | undefined,
  { env, image, ...given }: Container,
  name: string,
): TemplateCreation {
  const chosen = image ?? base?.image;
  if (chosen === undefined) {
    const fault = 'image: is required without a templateId';
    throw new ProblemError('invalid', fault, { errors: [fault] });
  }
  if (base?.unopened && env === undefined) {
    const detail = `the variables of the template ${base.id} cannot be decrypted: ${base.unopened.why}`;
    throw new ProblemError('conflict', detail);
  }
  const {
    args = '',
    disk = 20,
    handler = null,
    kubernetes,
    ports = [],
    registry = null,
  } = base ?? {};
  return {
    ...{ name, args, disk, handler, ports, registry, image: chosen, env: env ?? base?.env ?? {} },
    ...(kubernetes && { kubernetes }),
    ...given,
  };
}

/** No machine is chosen by its CUDA version, so only requests without such a wish are met. */
export const cudaShape = {
  allowedCudaVersions: z
    .array(z.string())
    .max(0, 'must be empty: this platform chooses no machine by its CUDA version')
    .exactOptional(),
  minCudaVersion: z
    .literal('', 'must be left out: this platform chooses no machine by its CUDA version')
    .exactOptional(),
};
