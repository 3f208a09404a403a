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

/** The scope that a caller of the route needs; `open`: none, and no key. */
export type RouteAccess = Scope | 'open';
