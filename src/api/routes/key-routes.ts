// Lists, creates, shows, revokes and rotates API keys. control/keys checks what the caller may do.
import type { UserKeys } from '../../control/keys/user-keys.ts';
import { KEY_OPERATIONS, keyRotation, keys } from '../../wire/resources/key.ts';
import { check } from '../body/body.ts';
import { readResourceBody, readText, requireHolder } from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';
import { bindFixedResource, sendCreated } from './resource-routes.ts';

export function bindKeys(userKeys: UserKeys): BoundOperation[] {
  const verbs = bindFixedResource(keys, {
    list: (caller, page, query) =>
      userKeys.list(caller, { userId: readText(query, 'userId'), ...page }),
    create: (caller, creation) => userKeys.issue(caller, creation),
    get: (caller, id) => userKeys.find(caller, id),
    remove: (caller, id) => userKeys.revoke(caller, id),
  });
  const rotation = bindOperations(KEY_OPERATIONS, {
    rotateKey: async (request, reply) => {
      const { body, params } = request;
      const { graceSeconds } = body?.length
        ? readResourceBody(body, keyRotation)
        : check({}, keyRotation);
      const created = await userKeys.rotate(requireHolder(request), params.key, graceSeconds);
      const operation = KEY_OPERATIONS.rotateKey;
      return sendCreated(reply, { operation, outline: keys.outline, created });
    },
  });
  return [...verbs, ...rotation];
}
