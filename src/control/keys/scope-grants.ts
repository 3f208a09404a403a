// Defines the scopes of keys and decides what a scope allows.
import { z } from 'zod';
import { endpointId } from '../../wire/resources/endpoint.ts';
import { HIDDEN_VALUE } from '../../wire/resources/pod.ts';
import { SCOPES, type Scope } from '../../wire/routes/route.ts';

export interface Grant {
  scope: Scope;
  /** The endpoint that it is bound to; undefined: not bound. */
  endpoint: string | undefined;
}

/** A scope, optionally bound to one endpoint: `jobs:write:<endpoint>`. */
export const scopeGrant = z
  .string()
  .refine(
    (text) => readGrant(text) !== undefined,
    `must be one of ${SCOPES.join(', ')}, optionally followed by :<endpoint>`,
  );

/** Undefined for an invalid grant. */
export function readGrant(text: string): Grant | undefined {
  const scope = SCOPES.find((known) => text === known || text.startsWith(`${known}:`));
  if (!scope || text === scope) return scope && { scope, endpoint: undefined };
  const endpoint = endpointId.safeParse(text.slice(scope.length + 1));
  return endpoint.success ? { scope, endpoint: endpoint.data } : undefined;
}

/**
 * Whether the grants include the scope, for the endpoint if one is named. Only `admin` implies
 * other scopes: all of them, on its endpoint if it is bound to one.
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

/** Whether a holder of these grants may do everything that another grant allows. */
export function implies(holder: { scopes: ReadonlySet<string> }, text: string): boolean {
  const grant = readGrant(text);
  return grant !== undefined && allows(holder, grant.scope, grant.endpoint);
}

/** Values of variables may be secrets, so only keys that may write them see them. */
export function hideVariables<R extends { env: Readonly<Record<string, string>> }>(
  holder: { scopes: ReadonlySet<string> },
  scope: 'endpoints:write' | 'pods:write',
  record: R,
): R {
  if (allows(holder, scope)) return record;
  const hidden = Object.keys(record.env).map((name) => [name, HIDDEN_VALUE]);
  return { ...record, env: Object.fromEntries(hidden) };
}
