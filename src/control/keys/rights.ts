// What the holder of a key may do: the scopes of keys and what each allows, and which keys a caller may create, see
// and revoke. Pure: callers pass in the existing keys.
import { z } from 'zod';
import { OWNER } from '../../store/store.ts';
import { describeIssues, ProblemError } from '../../wire/problem.ts';
import { endpointId } from '../../wire/resources/endpoint.ts';
import { HIDDEN_VALUE } from '../../wire/resources/fields.ts';
import { SCOPES, type Scope } from '../../wire/routes/route.ts';
import type { EngineKind } from '../endpoints/templates.ts';

interface Grant {
  scope: Scope;
  /** The endpoint that it is bound to; undefined: not bound. */
  endpoint: string | undefined;
}

/** A scope, optionally bound to one endpoint: `jobs:write:<endpoint>`. */
const scopeGrant = z
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

export interface KeyGrant {
  /** Display name. */
  name: string;
  scopes: string[];
  /** Default: the platform's owner. */
  userId?: string;
  /** Unix ms. Default: never. */
  expiresAt?: number;
  /** The pod of the worker that uses the key. Default: none. */
  podId?: string;
}

/** The part of a key that decides what its holder may do. */
export interface Rights {
  userId: string;
  scopes: ReadonlySet<string>;
  /** Unix ms. */
  expiresAt: number | null;
}

/** An existing key. */
export interface HeldGrant extends Rights {
  keyId: string;
}

const keyGrant = z.strictObject({
  name: z.string().min(1).max(200),
  scopes: z.array(scopeGrant).min(1),
  userId: z.string().min(1).max(200).exactOptional(),
  expiresAt: z.int().min(0).exactOptional(),
  podId: z.string().min(1).max(200).exactOptional(),
});

type CountedGrant = HeldGrant & { podId: string | null };

/** A user's keys that count against the quota: unexpired ones, without one for each worker's pod. */
export function countKeys(grants: readonly CountedGrant[], now: number): number {
  const good = grants.filter(({ expiresAt }) => expiresAt === null || expiresAt > now);
  const pods = new Set(good.flatMap(({ podId }) => podId ?? []));
  return good.length - pods.size;
}

/** Each scope once. @throws ProblemError `invalid` */
export function checkGrant(grant: KeyGrant): KeyGrant {
  const checked = keyGrant.safeParse(grant);
  if (checked.success) return { ...checked.data, scopes: [...new Set(checked.data.scopes)] };
  const errors = describeIssues(checked.error, 'key');
  throw new ProblemError('invalid', errors.join('; '), { errors });
}

/** The operator creates the keys of other users, and may see and revoke them. */
export function isOperator({ scopes, userId }: Rights): boolean {
  return userId === OWNER && scopes.has('admin');
}

export function maySee(caller: Rights, userId: string): boolean {
  return userId === caller.userId || isOperator(caller);
}

/** A key cannot create a key with more rights than its own. @throws ProblemError `forbidden` */
export function requireGivable(caller: Rights, grant: Omit<Rights, 'userId'>): void {
  const lacking = [...grant.scopes].filter((scope) => !implies(caller, scope));
  if (lacking.length > 0) {
    throw new ProblemError(
      'forbidden',
      `the API key cannot grant a scope that it lacks: ${lacking[0]}`,
    );
  }
  if (!lastsAsLong(caller, grant)) {
    const end = new Date(caller.expiresAt ?? 0).toISOString();
    throw new ProblemError(
      'forbidden',
      `the API key cannot create a key that outlasts it; it expires at ${end}`,
    );
  }
}

/**
 * Nobody revokes a key with more than their own: a scope that the caller lacks, or a later end. `admin`
 * of the same user may, whenever it ends itself. @throws ProblemError `forbidden`
 */
export function requireRevocable(caller: Rights, { expiresAt, scopes }: Rights): void {
  if (caller.scopes.has('admin')) return;
  const lacking = [...scopes].find((scope) => !implies(caller, scope));
  if (lacking !== undefined) {
    const detail = `the API key cannot revoke a key with a scope that it lacks: ${lacking}`;
    throw new ProblemError('forbidden', detail);
  }
  if (!lastsAsLong(caller, { expiresAt })) {
    throw new ProblemError(
      'forbidden',
      'the API key cannot revoke a key that expires later; use a key with admin',
    );
  }
}

/** Without this key nobody could create an operator's key, now or after the others have expired. */
export function isLastWayIn(key: HeldGrant, all: readonly HeldGrant[], now: number): boolean {
  const isExpired = key.expiresAt !== null && key.expiresAt <= now;
  if (isExpired || !isOperator(key)) return false;
  return !all.some(
    (other) => other.keyId !== key.keyId && isOperator(other) && lastsAsLong(other, key),
  );
}

type Lasting = Pick<Rights, 'expiresAt'>;

function lastsAsLong(one: Lasting, other: Lasting): boolean {
  if (one.expiresAt === null) return true;
  return other.expiresAt !== null && other.expiresAt <= one.expiresAt;
}

/** How code in pods is isolated from the platform. */
export interface CodeAccess {
  engine: EngineKind;
  /** The operator allows every key with a scope for code to run it as the platform's user. */
  trustKeys: boolean;
  /** The system user that pods run as. Default: the platform's own. */
  podUser?: string | undefined;
}

/** Scopes of operations that choose code. */
const CODE_SCOPES: ReadonlySet<Scope> = new Set(['pods:write', 'endpoints:write']);

/** Whether the scope needs `admin` in addition. */
function isGuarded(scope: Scope, { engine, podUser, trustKeys }: CodeAccess): boolean {
  return engine === 'process' && !trustKeys && podUser === undefined && CODE_SCOPES.has(scope);
}

/**
 * Checks that the holder may choose the code that pods and workers run: on the process engine it runs as the platform's
 * own user, so it can read every key that the platform can. `admin` of one endpoint is not enough. @throws ProblemError `forbidden`
 */
export function requireCodeAccess(
  holder: { scopes: ReadonlySet<string> } | undefined,
  scope: Scope,
  access: CodeAccess,
): void {
  if (!isGuarded(scope, access) || holder?.scopes.has('admin')) return;
  throw new ProblemError(
    'forbidden',
    `${scope} needs a key with the scope admin, because pods of this platform run as its own user and can read its keys. The operator can run pods as another user with --pod-user, or allow other keys with --trust-keys.`,
  );
}
