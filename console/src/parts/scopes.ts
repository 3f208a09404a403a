// The scopes of keys in words.
import type { Scope } from '../../../src/wire/routes/route.ts';

export const SCOPE_TEXTS: Readonly<Record<Scope, string>> = {
  'jobs:read': 'Read jobs, streams, logs, counts and schedules',
  'jobs:write': 'Submit, cancel, retry and purge jobs, and set schedules',
  'endpoints:read':
    'Read endpoints, versions, templates, the catalog, the bill, budgets and shared limits',
  'endpoints:write':
    'Create, change and delete endpoints, versions, templates, budgets and shared limits',
  'pods:read': 'Read pods, their logs, network volumes and registries',
  'pods:write': 'Create, change and delete pods, network volumes and registries',
  'keys:read': 'Read the list of keys',
  'keys:write': 'Create, rotate and revoke keys',
  worker: 'Take jobs as a worker',
  admin: 'Everything',
};
