// Commands on what the platform has: an action, often an id, and one call. What the actions on pods,
// endpoints and templates have in common is here too.
import type { ApiCaller } from '../../client/api-caller.ts';
import type { Page } from '../../client/resource-pages.ts';
import {
  connectResources,
  type Listed,
  type RecordOf,
  type ResourceName,
  type Resources,
} from '../../client/resources.ts';
import { RESOURCES } from '../../wire/routes.ts';
import { type CommandHelp, EXIT, type ExitCode } from '../command.ts';
import {
  flag,
  integer,
  type OptionTable,
  type OptionValues,
  parseOptions,
  text,
  UsageError,
} from '../options.ts';
import { print } from '../output.ts';
import { formatTable } from '../table.ts';
import { bodyFileOption, composeBody } from './body-file.ts';
import { callPlatform, clientOptions } from './client-options.ts';

export const listOptions = {
  ...clientOptions,
  json: flag({ help: "print the platform's response as one line of JSON" }),
  limit: integer({ min: 1, max: 1_000, default: 100, help: 'list: most records of one page' }),
  cursor: text({
    placeholder: 'CURSOR',
    help: 'list: cursor of the page, printed with the page before',
  }),
} as const;

export const resourceOptions = { ...listOptions, file: bodyFileOption } as const;

type ListValues = OptionValues<typeof listOptions>;
type ResourceValues = OptionValues<typeof resourceOptions>;

export interface ResourceRequest<Values> {
  caller: ApiCaller;
  values: Values;
  /** Empty where the action takes none. */
  id: string;
}

export interface ResourceAction<Values> {
  takes: 'id' | 'nothing';
  help: string;
  /** @returns what is printed */
  act: (request: ResourceRequest<Values>) => Promise<string>;
}

export type ResourceActions<Values> = Readonly<Record<string, ResourceAction<Values>>>;

export const RESOURCE_EXIT_CODES: readonly ExitCode[] = [
  { code: EXIT.ok, meaning: 'done' },
  { code: EXIT.failed, meaning: 'the platform refused the call or does not answer' },
  { code: EXIT.usage, meaning: 'wrong usage' },
];

/** The part of the help that the actions make. */
export function describeActions<Values>(
  actions: ResourceActions<Values>,
  thing: string,
): Pick<CommandHelp, 'positionals' | 'exitCodes'> & { lines: string[] } {
  const names = Object.keys(actions);
  const withId = names.filter((name) => actions[name]?.takes === 'id');
  const id = { name: '[id]', help: `${thing} ID, for ${withId.join(', ')}` };
  return {
    lines: Object.entries(actions).map(([name, { help }]) => `${name}: ${help}.`),
    positionals: [{ name: '<action>', help: names.join(', ') }, ...(withId.length > 0 ? [id] : [])],
    exitCodes: RESOURCE_EXIT_CODES,
  };
}

export interface ActionRun<Table extends OptionTable> {
  options: Table;
  actions: ResourceActions<OptionValues<Table>>;
  connect: (values: OptionValues<Table>) => ApiCaller;
  args: readonly string[];
}

/** Prints what came of it. @throws UsageError, CommandError */
export async function runAction<Table extends OptionTable>(run: ActionRun<Table>): Promise<number> {
  const { actions, args, connect, options } = run;
  const { values, positionals } = parseOptions(options, args);
  const [word, id, ...rest] = positionals;
  const known = Object.keys(actions).join(', ');
  if (word === undefined) throw new UsageError(`<action> is missing; give one of ${known}`);
  const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
  if (!action) throw new UsageError(`${word}: unknown action; give one of ${known}`);
  const takesId = action.takes === 'id';
  if (takesId && id === undefined) throw new UsageError(`${word}: [id] is missing; give an ID`);
  const surplus = takesId ? rest[0] : id;
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
  const caller = connect(values);
  const shown = await callPlatform(() => action.act({ caller, values, id: id ?? '' }));
  void print(`${shown}\n`);
  return EXIT.ok;
}

export interface ListKind<Item> {
  /** What they are called, as the list's answer has it: `pods`. */
  plural: string;
  /** Title → cell. */
  columns: Readonly<Record<string, (item: Item) => string>>;
}

export interface ResourceKind<Values, Name extends ResourceName> {
  /** Of the resource: `pods`. */
  name: Name;
  /** Title → cell. */
  columns: ListKind<RecordOf<Name>>['columns'];
  /** Of the body; what no flag was given for is undefined. */
  readFlags: (values: Values) => Readonly<Record<string, unknown>>;
  /** What deletion says and does beside the record: `; no endpoint may use it`. Default: no deletion. */
  deletion?: string;
}

/** A page of a list: a table, and how the next one is asked for. */
export async function showList<Item>(
  listed: Listed<Item>,
  kind: ListKind<Item>,
  { cursor, json, limit }: ListValues,
): Promise<string> {
  const page = await listed.page({ cursor, limit });
  return json ? formatPage(page, kind) : describePage(page, kind);
}

function formatPage<Item>({ items, ...rest }: Page<Item>, { plural }: ListKind<Item>): string {
  return JSON.stringify({ [plural]: items, ...rest });
}

function describePage<Item>(page: Page<Item>, { columns, plural }: ListKind<Item>): string {
  const { cursor, items } = page;
  if (items.length === 0) return `no ${plural}`;
  const rows = items.map((item) => Object.values(columns).map((read) => read(item)));
  const table = formatTable(Object.keys(columns), rows);
  return cursor === undefined ? table : `${table}\nnext page: --cursor ${cursor}`;
}

export function showRecord(record: object, { json }: { json: boolean }): string {
  return JSON.stringify(record, null, json ? 0 : 2);
}

/** list, create, show, update, and delete. */
export function createResourceActions<Values extends ResourceValues, Name extends ResourceName>(
  kind: ResourceKind<Values, Name>,
): ResourceActions<Values> {
  const { columns, deletion, name, readFlags } = kind;
  const { plural, singular } = RESOURCES[name];
  // The platform checks bodies; the flags of a command are no full request.
  const connect = (caller: ApiCaller): Resources<RecordOf<Name>, object, object> =>
    connectResources(caller, name);
  return {
    list: {
      ...{ takes: 'nothing', help: `list your ${plural}, newest first` },
      act: ({ caller, values }) => showList(connect(caller), { plural, columns }, values),
    },
    create: {
      ...{ takes: 'nothing', help: `create one ${singular} from flags or --file` },
      act: async ({ caller, values }) => {
        const body = composeBody(values.file, readFlags(values));
        return showRecord(await connect(caller).create(body), values);
      },
    },
    show: {
      ...{ takes: 'id', help: `print one ${singular}` },
      act: async ({ caller, id, values }) => showRecord(await connect(caller).get(id), values),
    },
    update: {
      ...{ takes: 'id', help: 'change the fields given by flags or --file; keep the others' },
      act: async ({ caller, id, values }) => {
        const body = composeBody(values.file, readFlags(values));
        return showRecord(await connect(caller).update(id, body), values);
      },
    },
    ...(deletion !== undefined && {
      delete: {
        takes: 'id',
        help: `delete one ${singular}${deletion}`,
        act: async ({ caller, id, values }) => {
          await connect(caller).delete(id);
          return values.json ? JSON.stringify({ id, deleted: true }) : `${id}  deleted`;
        },
      },
    }),
  };
}
