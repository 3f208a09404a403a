// Records that have no names, for tests that give IDs only.
import type { NamedRecords } from '../../src/control/name-index.ts';

export const NO_NAMES: NamedRecords = { resolve: (_userId, idOrName) => idOrName };
