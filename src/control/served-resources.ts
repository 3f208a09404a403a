// Opens the resources that are stored only as JSON, each beside its description: the API serves
// them from this list.
import type { z } from 'zod';
import type { Resource } from '../wire/operations/resource.ts';
import { budgets as budgetResource } from '../wire/resources/budget.ts';
import { networkVolumes as networkVolumeResource } from '../wire/resources/network-volume.ts';
import { registries as registryResource } from '../wire/resources/registry.ts';
import { templates as templateResource } from '../wire/resources/template.ts';
import type { ResourceOutline } from '../wire/routes/route.ts';
import { Budgets, type BudgetsOptions, CallerBudgets } from './billing/budgets.ts';
import type { VolumeMeters } from './billing/volume-meters.ts';
import type { Catalog } from './endpoints/catalog.ts';
import { openTemplates, type Templates, type TemplatesOptions } from './endpoints/templates.ts';
import { hideVariables } from './keys/rights.ts';
import type { UseSource } from './limits/quotas.ts';
import type { NamedRecords } from './name-index.ts';
import type { PodUse } from './pods/pod-state.ts';
import { Registries } from './registries/registries.ts';
import { SecretSealer } from './registries/sealed-secret.ts';
import { type CallerResources, forCallers } from './user-resources.ts';
import {
  CallerVolumes,
  findMountable,
  type NetworkVolumeService,
  openNetworkVolumes,
  type VolumeUsers,
} from './volumes/network-volumes.ts';

/** A described resource with its service, whatever its schemas are. */
export interface ServedResource {
  resource: Resource;
  service: NamedRecords & UseSource;
  verbs: CallerResources<unknown, unknown>;
}

export interface OpenResources {
  templates: Templates;
  networkVolumes: NetworkVolumeService;
  registries: Registries;
  budgets: Budgets;
  /** All of them. */
  served: readonly ServedResource[];
}

export interface ResourcesOptions extends Omit<TemplatesOptions, 'catalog'>, BudgetsOptions {
  catalog: Catalog;
  /** Default: no key, so that nobody can create a registry, and variables are stored in the clear. */
  sealer?: SecretSealer | undefined;
  /** Pods of all users that still exist, those that are being created included. Default: none. */
  listPods?: (() => readonly PodUse[]) | undefined;
  /** Endpoints of all users. Default: none. */
  listEndpoints?: VolumeUsers['listEndpoints'] | undefined;
  /** Measures network volumes. Default: they are not billed. */
  meters?: Pick<VolumeMeters, 'follow'> | undefined;
  /** Called when a network volume has grown. Default: nothing happens. */
  onVolumeGrown?: ((source: string, sizeGb: number) => void) | undefined;
  /** Called when a network volume has been deleted. Default: nothing happens. */
  onVolumeRemoved?: (() => void) | undefined;
}

export async function openResources(options: ResourcesOptions): Promise<OpenResources> {
  const { catalog, sealer = new SecretSealer([]) } = options;
  const { onVolumeGrown: onGrown, onVolumeRemoved: onRemoved } = options;
  const budgets = await Budgets.open(options);
  const findObstacle = (userId: string) => budgets.findObstacle(userId, null);
  const volumeOptions = { ...options, findObstacle, onGrown, onRemoved };
  const networkVolumes = await openNetworkVolumes(volumeOptions);
  const registries = await Registries.open({ ...options, sealer });
  catalog.attach({
    volumeNames: networkVolumes,
    registryNames: registries,
    volume: (userId, id) => findMountable(networkVolumes, userId, id),
    hasRegistry: (userId, id) => registries.has(userId, id),
    registry: (userId, id) => registries.login(userId, id),
  });
  const templates = await openTemplates({ ...options, sealer });
  const { listEndpoints = () => [], listPods = () => [] } = options;
  const users = { listEndpoints, listPods };
  return {
    templates,
    networkVolumes,
    registries,
    budgets,
    served: [
      serve(
        templateResource,
        templates,
        forCallers(templates, (caller, { unopened: _unopened, ...template }) =>
          hideVariables(caller, 'endpoints:write', template),
        ),
      ),
      serve(networkVolumeResource, networkVolumes, new CallerVolumes(networkVolumes, users)),
      serve(registryResource, registries, forCallers(registries)),
      serve(budgetResource, budgets, new CallerBudgets(budgets)),
    ],
  };
}

/** The verbs accept the parsed output of the description's schemas. */
function serve<C extends z.ZodType, U extends z.ZodType>(
  resource: Resource<ResourceOutline, z.ZodType, C, U>,
  service: NamedRecords & UseSource,
  verbs: CallerResources<z.infer<C>, z.infer<U>>,
): ServedResource {
  return { resource, service, verbs };
}
