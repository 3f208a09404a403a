// Client of API keys.
import type { IssuedKeyRecord, KeyRecord } from '../wire/resources/key.ts';
import { fillPath, listResourceRoutes } from '../wire/routes/route.ts';
import { KEY_ROUTES, RESOURCES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { NewKey } from './requests.ts';
import { connectList, type Listed, post, type ResourceOptions, remove } from './resource-calls.ts';

export interface RotationOptions extends ResourceOptions {
  /** How long the old key stays valid, s; at most 604,800. Default 0. */
  graceSeconds?: number;
}

export interface KeysClient extends Listed<KeyRecord> {
  /** Lists the keys of another user; only for the operator's keys. */
  ofUser(userId: string): Listed<KeyRecord>;
  /** `key` of the answer cannot be read again. */
  create(creation: NewKey, options?: ResourceOptions): Promise<IssuedKeyRecord>;
  get(id: string, options?: ResourceOptions): Promise<KeyRecord>;
  /** Issues a new key with the same scopes; the old key expires. */
  rotate(id: string, options?: RotationOptions): Promise<IssuedKeyRecord>;
  /** Revokes the key at once. */
  delete(id: string, options?: ResourceOptions): Promise<void>;
}

export function connectKeys(caller: ApiCaller): KeysClient {
  const routes = listResourceRoutes(RESOURCES.keys);
  const { path } = routes.list;
  const pathOf = (key: string) => fillPath(routes.get, { key });
  const source = { caller, path, member: 'keys' };
  return {
    ...connectList(source),
    ofUser: (userId) => connectList({ ...source, query: { userId } }),
    create: (body, options) => post<IssuedKeyRecord>(caller, path, { ...options, body }),
    get: (id, { signal } = {}) => caller.json<KeyRecord>({ path: pathOf(id), signal }),
    rotate: (key, { graceSeconds = 0, signal } = {}) =>
      post<IssuedKeyRecord>(caller, fillPath(KEY_ROUTES.rotateKey, { key }), {
        body: { graceSeconds },
        signal,
      }),
    delete: (id, options) => remove(caller, pathOf(id), options),
  };
}
