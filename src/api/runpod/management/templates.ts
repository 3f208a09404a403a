// Templates of RunPod's REST API, before the templates of Millrace's own.
import { z } from 'zod';
import type { LiveTemplate, Templates } from '../../../control/endpoints/templates.ts';
import { hideVariables, type Rights } from '../../../control/keys/rights.ts';
import { creationShape, updateShape } from '../../../wire/resources/field-schemas.ts';
import { TEMPLATE_FIELDS } from '../../../wire/resources/fields.ts';
import { persistentMount } from '../../../wire/resources/pod.ts';
import { RESOURCES } from '../../../wire/routes/routes.ts';
import {
  containerShape,
  cudaShape,
  deriveTemplate,
  pickContainer,
  readNotes,
  type TemplateNotes,
} from './containers.ts';
import { asRule, type ManagedResource } from './managed-resource.ts';

const ownShape = {
  allowedCudaVersions: cudaShape.allowedCudaVersions,
  category: z.enum(['CPU', 'NVIDIA', 'AMD']).exactOptional(),
  mounts: z.strictObject({ persistent: persistentMount.exactOptional() }).exactOptional(),
  public: z
    .literal(false, 'must be false: templates of this platform belong to one user')
    .exactOptional(),
  serverless: z.boolean().exactOptional(),
  startJupyter: z.boolean().exactOptional(),
  startSsh: z.boolean().exactOptional(),
};

const creation = z.strictObject({
  ...containerShape,
  ...ownShape,
  image: creationShape(TEMPLATE_FIELDS).image,
  name: creationShape(TEMPLATE_FIELDS).name,
});
const update = z.strictObject({
  ...containerShape,
  ...ownShape,
  name: updateShape(TEMPLATE_FIELDS).name,
});
type Update = z.infer<typeof update>;

/** Of a creation. */
const DEFAULT_NOTES: Partial<TemplateNotes> = {
  serverless: false,
  startJupyter: true,
  startSsh: true,
};

export function manageTemplates(
  templates: Templates,
): ManagedResource<typeof creation, typeof update> {
  const show = (caller: Rights, template: LiveTemplate) =>
    showTemplate(hideVariables(caller, 'endpoints:write', template));
  return {
    outline: RESOURCES.templates,
    path: 'templates',
    creation,
    update: {
      schema: update,
      async apply({ caller }, id, given) {
        const { userId } = caller;
        const before = templates.get(userId, id);
        const { name } = given;
        const changed = await templates.update(userId, id, {
          ...pickContainer(given),
          ...(name !== undefined && { name }),
          notes: { ...readNotes(before), ...pickNotes(given) },
        });
        return show(caller, changed);
      },
    },
    async list({ caller }, page) {
      const { next, records } = templates.list({ ...page, userId: caller.userId });
      const own = records.filter((template) => !readNotes(template).isBound);
      return { records: own.map((template) => show(caller, template)), next };
    },
    async create({ caller }, given) {
      const made = deriveTemplate(undefined, pickContainer(given), given.name);
      const notes = { ...DEFAULT_NOTES, ...pickNotes(given) };
      return show(caller, await templates.create(caller.userId, { ...made, notes }));
    },
    get: async ({ caller }, id) => show(caller, templates.get(caller.userId, id)),
    remove: ({ caller }, id) => asRule(templates.remove(caller.userId, id)),
  };
}

function pickNotes({ category, mounts, serverless, startJupyter, startSsh }: Update) {
  return {
    ...(category && { category }),
    ...(mounts?.persistent && { persistent: mounts.persistent }),
    ...(serverless !== undefined && { serverless }),
    ...(startJupyter !== undefined && { startJupyter }),
    ...(startSsh !== undefined && { startSsh }),
  };
}

function showTemplate(template: LiveTemplate) {
  const { category, persistent, serverless = true, startJupyter, startSsh } = readNotes(template);
  return {
    id: template.id,
    name: template.name,
    ...pickContainer(template),
    mounts: { ...(persistent && { persistent }) },
    public: false,
    ...{ serverless, category, startSsh, startJupyter },
    allowedCudaVersions: [],
  };
}
