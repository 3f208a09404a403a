// `millrace keys`: API keys from the command line.
import { connectKeys } from '../../client/keys.ts';
import type { IssuedKeyRecord, KeyRecord } from '../../wire/resources/key.ts';
import type { Command } from '../command.ts';
import { integer, list, type OptionValues, text, UsageError } from '../options.ts';
import { connectCaller } from './client-options.ts';
import {
  describeActions,
  listOptions,
  type ResourceActions,
  type ResourceRequest,
  runAction,
  showRecord,
} from './resource-command.ts';

const options = {
  ...listOptions,
  name: text({ placeholder: 'NAME', help: 'create: name of the key, 1 to 200 characters' }),
  scope: list({
    placeholder: 'SCOPE',
    help: 'create: scope, such as jobs:write, or jobs:write:echo for one endpoint',
  }),
  user: text({
    placeholder: 'USER',
    help: "create, list: act for this user; needs the operator's admin key",
  }),
  expiresAt: text({
    placeholder: 'TIME',
    help: 'create: expiry, ISO 8601; default: the expiry of the key in --key',
  }),
  graceSeconds: integer({
    min: 0,
    max: 604_800,
    default: 0,
    placeholder: 'S',
    help: 'rotate: time for which the old key stays valid, s',
  }),
} as const;

type Values = OptionValues<typeof options>;

type Request = ResourceRequest<Values>;

const actions: ResourceActions<Values> = {
  list: { takes: 'nothing', help: 'list your keys, newest first', act: listKeys },
  create: { takes: 'nothing', help: 'create a key with --name and --scope', act: createKey },
  show: { takes: 'id', help: 'print one key with its scopes', act: showKey },
  rotate: {
    ...{ takes: 'id', help: 'replace a key by a new one with the same scopes' },
    act: rotateKey,
  },
  revoke: { takes: 'id', help: 'revoke a key at once', act: revokeKey },
};

const { exitCodes, lines, positionals } = describeActions(actions, 'key');

export const keysCommand: Command = {
  name: 'millrace keys',
  summary: 'create, list, rotate and revoke API keys',
  description: [
    'Calls a running platform. create and rotate print a new key once; the platform stores only its ' +
      'hash. A new key cannot have more scopes than the key in --key.',
    ...lines,
  ],
  positionals,
  options,
  examples: [
    'millrace keys create --name ci --scope jobs:write:echo --scope jobs:read:echo',
    'millrace keys create --name ada --user ada --scope admin --expires-at 2030-01-01T00:00:00Z',
    'millrace keys rotate key_01912f4e-… --grace-seconds 3600 --json | jq -r .key',
    'millrace keys revoke key_01912f4e-…',
  ],
  exitCodes,
  run: (args) => runAction({ options, actions, connect: connectCaller, args }),
};

async function listKeys({ caller, values }: Request): Promise<string> {
  const { cursor, json, limit, user } = values;
  const keys = connectKeys(caller);
  const listed = user === undefined ? keys : keys.ofUser(user);
  const { items, ...rest } = await listed.page({ cursor, limit });
  if (json) return JSON.stringify({ keys: items, ...rest });
  const next = rest.cursor === undefined ? [] : [`next page: --cursor ${rest.cursor}`];
  return [...items.map(describeKey), ...next].join('\n') || 'no keys';
}

async function createKey({ caller, values }: Request): Promise<string> {
  const { expiresAt, name, scope: scopes, user: userId } = values;
  if (name === undefined) throw new UsageError('create: --name NAME is missing');
  if (scopes.length === 0) throw new UsageError('create: --scope SCOPE is missing');
  const given = { ...(userId !== undefined && { userId }), ...(expiresAt && { expiresAt }) };
  return showIssued(values, await connectKeys(caller).create({ name, scopes, ...given }));
}

async function showKey({ caller, id, values }: Request): Promise<string> {
  return showRecord(await connectKeys(caller).get(id), values);
}

async function rotateKey({ caller, id, values }: Request): Promise<string> {
  const { graceSeconds } = values;
  return showIssued(values, await connectKeys(caller).rotate(id, { graceSeconds }));
}

async function revokeKey({ caller, id, values }: Request): Promise<string> {
  await connectKeys(caller).delete(id);
  return values.json ? JSON.stringify({ id, revoked: true }) : `${id}  revoked`;
}

function showIssued({ json }: Values, issued: IssuedKeyRecord): string {
  if (json) return JSON.stringify(issued);
  return `${describeKey(issued)}\nThis key is shown only once:\n${issued.key}`;
}

function describeKey({ expiresAt, id, name, scopes, userId }: KeyRecord): string {
  const end = expiresAt === null ? 'no expiry' : `until ${expiresAt}`;
  return `${id}  ${userId}  ${name}  ${scopes.join(',')}  ${end}`;
}
