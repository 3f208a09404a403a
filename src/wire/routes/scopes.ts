// The scopes that a key can have, and the access that a route requires.

export const SCOPES = [
  'jobs:read',
  'jobs:write',
  'endpoints:read',
  'endpoints:write',
  'pods:read',
  'pods:write',
  'keys:read',
  'keys:write',
  'worker',
  'admin',
] as const;
export type Scope = (typeof SCOPES)[number];

/** What a caller of a route needs: a scope, any valid key (`key`), or nothing (`open`). */
export type RouteAccess = Scope | 'key' | 'open';
