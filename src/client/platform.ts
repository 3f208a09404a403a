// The typed client of everything on the platform but jobs: pods, endpoints, templates, catalogue, keys.
import type { z } from 'zod';
import type { CpuFlavor, cpuFlavorList, GpuType, gpuTypeList } from '../wire/resources/catalog.ts';
import type { TemplateRecord, templateList } from '../wire/resources/template.ts';
import { resourceRoutes } from '../wire/routes.ts';
import { ApiCaller, type ApiCallerOptions } from './api-caller.ts';
import { connectEndpoints, type Endpoints } from './endpoints.ts';
import { connectKeys, type Keys } from './keys.ts';
import { connectPods, type Pods } from './pods.ts';
import type { NewTemplate, TemplateChange } from './requests.ts';
import { connectList, connectResources, type Listed, type Resources } from './resources.ts';

/**
 * Every call rejects with ApiError when the service refuses it, and with UnreachableError when no
 * answer came. What reads or changes is repeated over short outages; what creates, acts or deletes is
 * repeated only after a refusal that says that nothing was done (429, 503).
 */
export interface Platform {
  readonly pods: Pods;
  readonly endpoints: Endpoints;
  readonly templates: Resources<TemplateRecord, NewTemplate, TemplateChange>;
  readonly catalog: { readonly gpus: Listed<GpuType>; readonly cpus: Listed<CpuFlavor> };
  readonly keys: Keys;
}

/** @throws TypeError if the URL is none, or neither http nor https. */
export function createPlatform(options: ApiCallerOptions): Platform {
  const caller = new ApiCaller(options);
  const { cpus, gpus, template: pathOf, templates } = resourceRoutes;
  const pick = (answer: z.infer<typeof templateList>) => answer.templates;
  return {
    pods: connectPods(caller),
    endpoints: connectEndpoints(caller),
    templates: connectResources({ caller, path: templates, pathOf, pick }),
    catalog: {
      gpus: connectList({
        ...{ caller, path: gpus },
        pick: (answer: z.infer<typeof gpuTypeList>) => answer.gpus,
      }),
      cpus: connectList({
        ...{ caller, path: cpus },
        pick: (answer: z.infer<typeof cpuFlavorList>) => answer.cpus,
      }),
    },
    keys: connectKeys(caller),
  };
}
