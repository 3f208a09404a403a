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
  json: flag({ help: "the service's answer as one line of JSON" }),
  name: text({ placeholder: 'NAME', help: 'create: what the key is for, in your words' }),
  scope: list({
    placeholder: 'SCOPE',
    help: 'create: what it may do, such as jobs:write or, at one endpoint alone, jobs:write:echo',
  }),
  user: text({
    placeholder: 'USER',
    help: "create, list: of another user; for the operator's admin key only",
  }),
  expiresAt: text({
    placeholder: 'TIME',
    help: 'create: ISO 8601; without it the key lasts as long as the one that makes it',
  }),
  graceSeconds: integer({
    min: 0,
    max: 604_800,
    default: 0,
    placeholder: 'S',
    help: 'rotate: how long the old key stays good',
  }),
  limit: integer({ min: 1, max: 1_000, default: 100, help: 'list: keys in one page' }),
  cursor: text({ placeholder: 'CURSOR', help: 'list: the next page, as the last one told' }),
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
  list: { needsId: false, help: 'your keys, the newest first', act: listKeys },
  create: { needsId: false, help: 'a new key with --name and --scope', act: createKey },
  show: { needsId: true, help: 'what a key may do', act: showKey },
  rotate: {
    needsId: true,
    help: 'a new key that may do the same; the old one ends',
    act: rotateKey,
  },
  revoke: { needsId: true, help: 'the key is refused from now on', act: revokeKey },
};

export const keysCommand: Command = {
  name: 'millrace keys',
  summary: 'make, list, rotate and revoke API keys',
  description: [
    'Talks to a running platform. A key is shown once, by create and rotate; the platform keeps its ' +
      'hash alone. Nobody makes a key that can do more than the one in --key.',
    ...Object.entries(ACTIONS).map(([name, { help }]) => `${name}: ${help}.`),
  ],
  positionals: [
    { name: '<action>', help: Object.keys(ACTIONS).join(', ') },
    { name: '[id]', help: 'id of the key, for show, rotate and revoke' },
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
    { code: EXIT.failed, meaning: 'refused, or the platform does not answer' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [word, id, ...rest] = positionals;
  const known = Object.keys(ACTIONS).join(', ');
  if (word === undefined) throw new UsageError(`<action> is missing: one of ${known}`);
  const action = Object.hasOwn(ACTIONS, word) ? ACTIONS[word] : undefined;
  if (!action) throw new UsageError(`${word}: there is no such action; known are ${known}`);
  if (action.needsId && id === undefined) throw new UsageError(`${word}: [id] is missing`);
  const surplus = action.needsId ? rest[0] : id;
  if (surplus !== undefined) throw new UsageError(`${surplus}: is one argument too many`);
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
  const next = page.cursor === undefined ? [] : [`more: --cursor ${page.cursor}`];
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
  return `${describeKey(issued)}\nThis key is shown only this once:\n${issued.key}`;
}

function describeKey({ expiresAt, id, name, scopes, userId }: KeyRecord): string {
  const end = expiresAt === null ? 'for good' : `until ${expiresAt}`;
  return `${id}  ${userId}  ${name}  ${scopes.join(',')}  ${end}`;
}

function pathOf(id: string): string {
  return resourceRoutes.key(encodeURIComponent(id));
}
