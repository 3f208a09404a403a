// The typed client of everything on the platform but jobs: pods, endpoints, templates, catalogue, keys.
import type { CpuFlavor, GpuType } from '../wire/resources/catalog.ts';
import type { TemplateRecord } from '../wire/resources/template.ts';
import { CATALOG_ROUTES } from '../wire/routes.ts';
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
  const { listCpuFlavors, listGpuTypes } = CATALOG_ROUTES;
  return {
    pods: connectPods(caller),
    endpoints: connectEndpoints(caller),
    templates: connectResources(caller, 'templates'),
    catalog: {
      gpus: connectList({ caller, path: listGpuTypes.path, member: 'gpus' }),
      cpus: connectList({ caller, path: listCpuFlavors.path, member: 'cpus' }),
    },
    keys: connectKeys(caller),
  };
}
