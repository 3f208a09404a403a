// The typed client of everything on the platform but jobs: pods, endpoints, templates, catalogue, keys.
import type { CpuFlavor, GpuType } from '../wire/resources/catalog.ts';
import { CATALOG_ROUTES, RESOURCES } from '../wire/routes.ts';
import { ApiCaller, type ApiCallerOptions } from './api-caller.ts';
import { connectEndpoints, type Endpoints } from './endpoints.ts';
import { connectKeys, type Keys } from './keys.ts';
import { connectPods, type Pods } from './pods.ts';
import {
  connectList,
  connectResources,
  type Listed,
  type ResourceName,
  type ResourcesOf,
} from './resources.ts';

/** Resources with the five verbs and no other operation: templates. */
type PlainName = Exclude<ResourceName, 'pods' | 'endpoints'>;
type PlainResources = { readonly [Name in PlainName]: ResourcesOf<Name> };

/**
 * Every call rejects with ApiError when the service refuses it, and with UnreachableError when no
 * answer came. What reads or changes is repeated over short outages; what creates, acts or deletes is
 * repeated only after a refusal that says that nothing was done (429, 503).
 */
export interface Platform extends PlainResources {
  readonly pods: Pods;
  readonly endpoints: Endpoints;
  readonly catalog: { readonly gpus: Listed<GpuType>; readonly cpus: Listed<CpuFlavor> };
  readonly keys: Keys;
}

/** @throws TypeError if the URL is none, or neither http nor https. */
export function createPlatform(options: ApiCallerOptions): Platform {
  const caller = new ApiCaller(options);
  const { listCpuFlavors, listGpuTypes } = CATALOG_ROUTES;
  return {
    ...connectPlain(caller),
    pods: connectPods(caller),
    endpoints: connectEndpoints(caller),
    catalog: {
      gpus: connectList({ caller, path: listGpuTypes.path, member: 'gpus' }),
      cpus: connectList({ caller, path: listCpuFlavors.path, member: 'cpus' }),
    },
    keys: connectKeys(caller),
  };
}

function connectPlain(caller: ApiCaller): PlainResources {
  const names = Object.keys(RESOURCES).filter((name) => !OWN_CLIENTS.has(name));
  const connected = names.map((name) => [name, connectResources(caller, name as PlainName)]);
  // RESOURCES has these names and those of OWN_CLIENTS.
  return Object.fromEntries(connected) as PlainResources;
}

/** Resources with more operations, or others. */
const OWN_CLIENTS: ReadonlySet<string> = new Set(['pods', 'endpoints', 'keys']);
