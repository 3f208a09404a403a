// What a key may do: the words for it, and the one function that decides.
import { z } from 'zod';
import { endpointId } from '../wire/endpoint.ts';

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

/** A scope for everything, or bound to one endpoint: `jobs:write:<endpoint>`. */
export const scopeGrant = z.string().refine(
  (grant) => {
    return SCOPES.some((scope) => {
      if (grant === scope) return true;
      return (
        grant.startsWith(`${scope}:`) && endpointId.safeParse(grant.slice(scope.length + 1)).success
      );
    });
  },
  `must be one of ${SCOPES.join(', ')}, or one of them with ":<endpoint>" behind it`,
);

/**
 * Whether the grants hold the scope, for the endpoint if one is named. None implies another but
 * `admin`, which implies all, on its endpoint if it is bound to one.
 */
export function allows(
  { scopes }: { scopes: ReadonlySet<string> },
  scope: Scope,
  endpoint?: string,
): boolean {
  if (scopes.has('admin') || scopes.has(scope)) return true;
  if (endpoint === undefined) return false;
  return scopes.has(`${scope}:${endpoint}`) || scopes.has(`admin:${endpoint}`);
}
