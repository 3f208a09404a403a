// Who is signed in, and what the session's key may do.

import type { Scope } from '../../../src/wire/routes/route.ts';
import { createStore } from '../parts/store.ts';

export interface Session {
  /** Null in `millrace dev`, which needs no key on its own machine. */
  key: { id: string; name: string } | null;
  userId: string;
  scopes: readonly string[];
  /** ISO 8601. */
  expiresAt: string | null;
  platform: { version: string; engine: string | null; nodes: number; isDev: boolean };
}

export type SessionState =
  | { kind: 'unknown' }
  /** `ended`: it expired, or its key was revoked. */
  | { kind: 'none'; why: 'new' | 'ended' | 'signedOut' }
  | { kind: 'open'; session: Session };

export const sessionState = createStore<SessionState>({ kind: 'unknown' });

export function endSession(why: 'ended' | 'signedOut'): void {
  // The sign-in page stays as it is.
  if (sessionState.read().kind === 'open') sessionState.write({ kind: 'none', why });
}

/** Whether the session's key has the scope: for every endpoint, or for the one named. */
export function may(scope: Scope, endpoint?: string): boolean {
  const scopes = readScopes();
  if (scopes.includes('admin') || scopes.includes(scope)) return true;
  if (endpoint === undefined) return false;
  return scopes.includes(`${scope}:${endpoint}`) || scopes.includes(`admin:${endpoint}`);
}

/** The user who owns the platform. */
export function isOperator(): boolean {
  const state = sessionState.read();
  return state.kind === 'open' && state.session.userId === 'owner';
}

/** Whether the key has the scope for at least one endpoint. */
export function mayAnywhere(scope: Scope): boolean {
  const isBound = (granted: string) =>
    granted.startsWith(`${scope}:`) || granted.startsWith('admin:');
  return may(scope) || readScopes().some(isBound);
}

/** IDs and names of the endpoints that the key's scopes are bound to. */
export function listBoundEndpoints(): string[] {
  const endpoints = readScopes().map(
    (granted) => /^(?:jobs:\w+|endpoints:\w+|admin):(.+)$/.exec(granted)?.[1],
  );
  return [...new Set(endpoints.filter((endpoint) => endpoint !== undefined))];
}

function readScopes(): readonly string[] {
  const state = sessionState.read();
  return state.kind === 'open' ? state.session.scopes : [];
}
