// `millrace keys`: manages API keys.
import { connectKeys } from '../../client/platform-client.ts';
import { post } from '../../client/resource-calls.ts';
import { KEY_FIELDS } from '../../wire/resources/fields.ts';
import type { IssuedKeyRecord, KeyRecord } from '../../wire/resources/key.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import type { CommandGroup } from '../command.ts';
import { integer, type OptionTable, text } from '../options.ts';
import {
  type ApiRequest,
  defineApiVerb,
  defineBodyVerb,
  formatItems,
  type ListKind,
  pageOptions,
  showList,
  showRecord,
} from './resource-command.ts';

const listOptions = {
  ...pageOptions,
  user: text({
    placeholder: 'USER',
    help: "keys of this user; needs the operator's admin key",
  }),
};

const rotateOptions = {
  graceSeconds: integer({
    min: 0,
    max: 604_800,
    default: 0,
    placeholder: 'S',
    help: 'time for which the old key stays valid, s',
  }),
};

const kind: ListKind<KeyRecord> = {
  plural: 'keys',
  columns: {
    ID: ({ id }) => id,
    USER: ({ userId }) => userId,
    NAME: ({ name }) => name,
    SCOPES: ({ scopes }) => scopes.join(','),
    EXPIRES: ({ expiresAt }) => expiresAt ?? 'never',
  },
};

const PRINTED_ONCE =
  'The platform stores only a hash of the new key, so the key is never shown again.';

export const keysCommands: CommandGroup = {
  name: 'millrace keys',
  description: ['An API key acts for one user, within its scopes.'],
  verbs: {
    list: defineApiVerb({
      summary: 'lists your keys, newest first',
      options: listOptions,
      examples: ['millrace keys list', 'millrace keys list --user ada --limit 10'],
      act: listKeys,
    }),
    create: defineBodyVerb({
      verb: 'create',
      fields: KEY_FIELDS,
      summary: 'creates one key and prints it',
      description: [`${PRINTED_ONCE} The new key cannot have more scopes than the key in --key.`],
      body: {
        examples: [
          'millrace keys create --name ci --scope jobs:write:echo --scope jobs:read:echo',
          'millrace keys create --name ada --user ada --scope admin --expires-at 2030-01-01T00:00:00Z',
        ],
      },
      act: async (body, request) =>
        showIssued(await post(request.caller, RESOURCES.keys.path, { body }), request),
    }),
    show: defineApiVerb({
      summary: 'prints one key with its scopes, without its secret',
      id: 'key ID or name',
      options: {},
      examples: ['millrace keys show key_01912f4e-…'],
      act: async ({ caller, id, json }) => showRecord(await connectKeys(caller).get(id), json),
    }),
    rotate: defineApiVerb({
      summary: 'replaces a key by a new one with the same scopes',
      description: [PRINTED_ONCE],
      id: 'key ID or name',
      options: rotateOptions,
      examples: ['millrace keys rotate key_01912f4e-… --grace-seconds 3600 --json | jq -r .key'],
      act: rotateKey,
    }),
    revoke: defineApiVerb({
      summary: 'revokes a key at once',
      description: [
        'A key in the --key-file of the platform becomes valid again at its next start; replace it in the file first.',
      ],
      id: 'key ID or name',
      options: {},
      examples: ['millrace keys revoke key_01912f4e-…'],
      act: revokeKey,
    }),
  },
  examples: [
    'millrace keys create --name ci --scope jobs:write:echo --scope jobs:read:echo',
    'millrace keys rotate key_01912f4e-… --grace-seconds 3600 --json | jq -r .key',
    'millrace keys revoke key_01912f4e-…',
  ],
};

async function listKeys(request: ApiRequest<typeof listOptions>): Promise<string> {
  const keys = connectKeys(request.caller);
  const { user } = request.values;
  return showList(user === undefined ? keys : keys.ofUser(user), kind, request);
}

async function rotateKey(request: ApiRequest<typeof rotateOptions>): Promise<string> {
  const { caller, id, values } = request;
  const { graceSeconds } = values;
  return showIssued(await connectKeys(caller).rotate(id, { graceSeconds }), request);
}

async function revokeKey({ caller, id, json }: ApiRequest<OptionTable>): Promise<string> {
  await connectKeys(caller).delete(id);
  return json ? JSON.stringify({ id, revoked: true }) : `${id}  revoked`;
}

function showIssued(
  issued: IssuedKeyRecord,
  { json, width }: Pick<ApiRequest<OptionTable>, 'json' | 'width'>,
): string {
  if (json) return JSON.stringify(issued);
  return `${formatItems([issued], kind, width)}\nThis key is shown only once:\n${issued.key}`;
}
