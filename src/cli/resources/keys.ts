// `millrace keys`: API keys from the command line.
import type { ApiCaller } from '../../client/api-caller.ts';
import type { IssuedKeyRecord, KeyList, KeyRecord } from '../../wire/resources/key.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { type Command, EXIT } from '../command.ts';
import {
  flag,
  integer,
  list,
  type OptionValues,
  parseOptions,
  text,
  UsageError,
} from '../options.ts';
import { print } from '../output.ts';
import { callPlatform, clientOptions, connectCaller } from './client-options.ts';

const options = {
  ...clientOptions,
  json: flag({ help: "print the platform's response as one line of JSON" }),
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
  limit: integer({ min: 1, max: 1_000, default: 100, help: 'list: most keys of one page' }),
  cursor: text({
    placeholder: 'CURSOR',
    help: 'list: cursor of the page, printed with the page before',
  }),
};

type Values = OptionValues<typeof options>;

interface Request {
  caller: ApiCaller;
  values: Values;
  id: string;
}

interface Action {
  needsId: boolean;
  help: string;
  act: (request: Request) => Promise<string>;
}

const ACTIONS: Readonly<Record<string, Action>> = {
  list: { needsId: false, help: 'list your keys, newest first', act: listKeys },
  create: { needsId: false, help: 'create a key with --name and --scope', act: createKey },
  show: { needsId: true, help: 'print one key with its scopes', act: showKey },
  rotate: {
    needsId: true,
    help: 'replace a key by a new one with the same scopes',
    act: rotateKey,
  },
  revoke: { needsId: true, help: 'revoke a key at once', act: revokeKey },
};

export const keysCommand: Command = {
  name: 'millrace keys',
  summary: 'create, list, rotate and revoke API keys',
  description: [
    'Calls a running platform. create and rotate print a new key once; the platform stores only its ' +
      'hash. A new key cannot have more scopes than the key in --key.',
    ...Object.entries(ACTIONS).map(([name, { help }]) => `${name}: ${help}.`),
  ],
  positionals: [
    { name: '<action>', help: Object.keys(ACTIONS).join(', ') },
    { name: '[id]', help: 'key ID, for show, rotate and revoke' },
  ],
  options,
  examples: [
    'millrace keys create --name ci --scope jobs:write:echo --scope jobs:read:echo',
    'millrace keys create --name ada --user ada --scope admin --expires-at 2030-01-01T00:00:00Z',
    'millrace keys rotate key_01912f4e-… --grace-seconds 3600 --json | jq -r .key',
    'millrace keys revoke key_01912f4e-…',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'done' },
    { code: EXIT.failed, meaning: 'the platform refused the call or does not answer' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [word, id, ...rest] = positionals;
  const known = Object.keys(ACTIONS).join(', ');
  if (word === undefined) throw new UsageError(`<action> is missing; give one of ${known}`);
  const action = Object.hasOwn(ACTIONS, word) ? ACTIONS[word] : undefined;
  if (!action) throw new UsageError(`${word}: unknown action; give one of ${known}`);
  if (action.needsId && id === undefined)
    throw new UsageError(`${word}: [id] is missing; give a key ID`);
  const surplus = action.needsId ? rest[0] : id;
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
  const caller = connectCaller(values);
  const shown = await callPlatform(() => action.act({ caller, values, id: id ?? '' }));
  void print(`${shown}\n`);
  return EXIT.ok;
}

async function listKeys({ caller, values }: Request): Promise<string> {
  const { cursor, json, limit, user: userId } = values;
  const query = { cursor, limit, userId };
  const page = await caller.json<KeyList>({ path: resourceRoutes.keys, query });
  if (json) return JSON.stringify(page);
  const next = page.cursor === undefined ? [] : [`next page: --cursor ${page.cursor}`];
  return [...page.keys.map(describeKey), ...next].join('\n') || 'no keys';
}

async function createKey({ caller, values }: Request): Promise<string> {
  const { expiresAt, name, scope: scopes, user: userId } = values;
  if (name === undefined) throw new UsageError('create: --name NAME is missing');
  if (scopes.length === 0) throw new UsageError('create: --scope SCOPE is missing');
  const body = { name, scopes, userId, expiresAt };
  return showIssued(values, await post(caller, resourceRoutes.keys, body));
}

async function showKey({ caller, id, values }: Request): Promise<string> {
  const key = await caller.json<KeyRecord>({ path: pathOf(id) });
  return JSON.stringify(key, null, values.json ? 0 : 2);
}

async function rotateKey({ caller, id, values }: Request): Promise<string> {
  const path = resourceRoutes.keyRotation(encodeURIComponent(id));
  return showIssued(values, await post(caller, path, { graceSeconds: values.graceSeconds }));
}

async function revokeKey({ caller, id, values }: Request): Promise<string> {
  await caller.answer({ method: 'DELETE', path: pathOf(id), repeatable: false });
  return values.json ? JSON.stringify({ id, revoked: true }) : `${id}  revoked`;
}

/** Not repeated when no answer came: that could make a second key. */
function post(caller: ApiCaller, path: string, body: object): Promise<IssuedKeyRecord> {
  return caller.json<IssuedKeyRecord>({ method: 'POST', path, body, repeatable: false });
}

function showIssued({ json }: Values, issued: IssuedKeyRecord): string {
  if (json) return JSON.stringify(issued);
  return `${describeKey(issued)}\nThis key is shown only once:\n${issued.key}`;
}

function describeKey({ expiresAt, id, name, scopes, userId }: KeyRecord): string {
  const end = expiresAt === null ? 'no expiry' : `until ${expiresAt}`;
  return `${id}  ${userId}  ${name}  ${scopes.join(',')}  ${end}`;
}

function pathOf(id: string): string {
  return resourceRoutes.key(encodeURIComponent(id));
}
