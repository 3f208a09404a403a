// Client of the operation that says who the caller is.
import type { SessionRecord } from '../wire/resources/session.ts';
import { SESSION_ROUTES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { ResourceOptions } from './resource-calls.ts';

export interface SessionClient {
  /** The key of this client with its scopes, and the platform that it calls. */
  get(options?: ResourceOptions): Promise<SessionRecord>;
}

export function connectSession(caller: ApiCaller): SessionClient {
  const { path } = SESSION_ROUTES.getSession;
  return { get: ({ signal } = {}) => caller.json<SessionRecord>({ path, signal }) };
}
