// Records that have no names, for tests that give IDs only, and the volumes and registries of users who have created none.
import type { CreatedResources } from '../../src/control/endpoints/catalog.ts';
import type { NamedRecords } from '../../src/control/user-resources.ts';

export const NO_NAMES: NamedRecords = { resolve: (_userId, idOrName) => idOrName };

export const NOTHING_CREATED: CreatedResources = {
  volumeNames: NO_NAMES,
  registryNames: NO_NAMES,
  volume: () => undefined,
  hasRegistry: () => false,
  registry: () => undefined,
};
