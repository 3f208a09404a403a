// Every operation that the OpenAPI document tells of. Left out: what workers say to the platform, and
// the paths that have another service's shapes.
import { JOB_OPERATIONS } from './job-operations.ts';
import type { Operation } from './operation.ts';
import { RESOURCE_OPERATIONS } from './resource-operations.ts';
import { SYSTEM_OPERATIONS } from './system-operations.ts';

export const OPERATIONS: readonly Operation[] = [
  ...JOB_OPERATIONS,
  ...RESOURCE_OPERATIONS,
  ...SYSTEM_OPERATIONS,
];
