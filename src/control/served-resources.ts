// Opens the resources that are stored only as JSON, each beside its description: the API serves
// them from this list.
import type { z } from 'zod';
import type { Resource } from '../wire/operations/resource.ts';
import { templates as templateResource } from '../wire/resources/template.ts';
import type { ResourceOutline } from '../wire/route.ts';
import { openTemplates, type Templates, type TemplatesOptions } from './endpoints/templates.ts';
import type { UseSource } from './limits/use.ts';
import type { NamedRecords } from './name-index.ts';
import type { UserResources } from './user-resources.ts';

/** A described resource with its service, whatever its schemas are. */
export interface ServedResource {
  resource: Resource;
  service: UserResources<unknown, unknown> & NamedRecords & UseSource;
}

export interface OpenResources {
  templates: Templates;
  /** All of them. */
  served: readonly ServedResource[];
}

export async function openResources(options: TemplatesOptions): Promise<OpenResources> {
  const templates = await openTemplates(options);
  return { templates, served: [serve(templateResource, templates)] };
}

/** The service takes what the description's schemas give. */
function serve<C extends z.ZodType, U extends z.ZodType>(
  resource: Resource<ResourceOutline, z.ZodType, C, U>,
  service: UserResources<z.infer<C>, z.infer<U>> & NamedRecords & UseSource,
): ServedResource {
  return { resource, service };
}
