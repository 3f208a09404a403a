// The schema as a list of migrations. migrations.ts applies them.
import { firstSchema } from './first-schema.ts';

/**
 * Each migrates from the previous version to its own, counted from 1. Never change a released one.
 */
export const MIGRATIONS: readonly string[] = [firstSchema];
