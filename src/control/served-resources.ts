// The resources that are stored only as JSON: opens them, and lists each beside its description, which is all that the
// API needs to serve it.
import type { z } from 'zod';
import type { Resource } from '../wire/operations/resource.ts';
import { budgets as budgetResource } from '../wire/resources/budget.ts';
import { networkVolumes as networkVolumeResource } from '../wire/resources/network-volume.ts';
import { registries as registryResource } from '../wire/resources/registry.ts';
import { sharedLimits as sharedLimitResource } from '../wire/resources/shared-limit.ts';
import { templates as templateResource } from '../wire/resources/template.ts';
import type { ResourceOutline } from '../wire/routes/route.ts';
import type { BudgetFindings } from './billing/budget-judge.ts';
import { type Budgets, CallerBudgets } from './billing/budgets.ts';
import { type Catalog, UserCatalog } from './endpoints/catalog.ts';
import { openTemplates, type Templates, type TemplatesOptions } from './endpoints/templates.ts';
import { hideVariables } from './keys/rights.ts';
import type { UseSource } from './limits/quotas.ts';
import { openSharedLimits, type SharedLimits, showSharedLimit } from './limits/shared-limits.ts';
import { Registries } from './registries/registries.ts';
import { SecretSealer } from './registries/sealed-secret.ts';
import { type CallerResources, forCallers, type NamedRecords } from './user-resources.ts';
import {
  CallerVolumes,
  findMountable,
  type NetworkVolumeService,
  type NetworkVolumesOptions,
  openNetworkVolumes,
  type VolumeUsers,
} from './volumes/network-volumes.ts';

/** Records of users by which endpoints and pods are described, and the catalog with them. */
export interface SpecResources {
  userCatalog: UserCatalog;
  templates: Templates;
  networkVolumes: NetworkVolumeService;
  registries: Registries;
  sharedLimits: SharedLimits;
}

export interface SpecResourcesOptions
  extends Omit<TemplatesOptions, 'catalog'>,
    Omit<NetworkVolumesOptions, 'catalog' | 'findObstacle'> {
  catalog: Catalog;
  findings: BudgetFindings;
  /** Default: no key, so that nobody can create a registry, and variables are stored in the clear. */
  sealer?: SecretSealer | undefined;
}

export async function openSpecResources(options: SpecResourcesOptions): Promise<SpecResources> {
  const { catalog, findings, sealer = new SecretSealer([]) } = options;
  const findObstacle = (userId: string) => findings.findObstacle(userId, null);
  const networkVolumes = await openNetworkVolumes({ ...options, findObstacle });
  const registries = await Registries.open({ ...options, sealer });
  const userCatalog = new UserCatalog(catalog, {
    volumeNames: networkVolumes,
    registryNames: registries,
    volume: (userId, id) => findMountable(networkVolumes, userId, id),
    hasRegistry: (userId, id) => registries.has(userId, id),
    registry: (userId, id) => registries.login(userId, id),
  });
  const templates = await openTemplates({ ...options, catalog: userCatalog, sealer });
  const sharedLimits = await openSharedLimits(options);
  return { userCatalog, templates, networkVolumes, registries, sharedLimits };
}

/** A described resource with its service, whatever its schemas are. */
export interface ServedResource {
  resource: Resource;
  service: NamedRecords &
    UseSource & {
      /** Reads the records again: another process may have changed them. */
      reload(): Promise<void>;
    };
  verbs: CallerResources<unknown, unknown>;
}

/** A new resource needs a line here. */
export function listServed(
  {
    budgets,
    networkVolumes,
    registries,
    sharedLimits,
    templates,
  }: Omit<SpecResources, 'userCatalog'> & { budgets: Budgets },
  users: VolumeUsers,
): ServedResource[] {
  return [
    serve(
      templateResource,
      templates,
      forCallers(templates, (caller, { notes: _notes, unopened: _unopened, ...template }) =>
        hideVariables(caller, 'endpoints:write', template),
      ),
    ),
    serve(networkVolumeResource, networkVolumes, new CallerVolumes(networkVolumes, users)),
    serve(registryResource, registries, forCallers(registries)),
    serve(sharedLimitResource, sharedLimits, forCallers(sharedLimits, showSharedLimit)),
    serve(budgetResource, budgets, new CallerBudgets(budgets)),
  ];
}

/** The verbs accept the parsed output of the description's schemas. */
function serve<C extends z.ZodType, U extends z.ZodType>(
  resource: Resource<ResourceOutline, z.ZodType, C, U>,
  service: ServedResource['service'],
  verbs: CallerResources<z.infer<C>, z.infer<U>>,
): ServedResource {
  return { resource, service, verbs };
}
