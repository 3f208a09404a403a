// Defines commands that call a running platform and print its answer, and those that all resources share: list, create,
// show, update and delete. A person at a terminal is asked before a command deletes data; a program is not.
import { createInterface, type Interface } from 'node:readline';
import { escapeControls } from '../../base/text/printable.ts';
import type { ApiCaller } from '../../client/api-caller.ts';
import {
  connectResources,
  type Listed,
  type Page,
  type RecordOf,
  type ResourceName,
  type Resources,
} from '../../client/resource-calls.ts';
import type { Fields } from '../../wire/resources/field.ts';
import { spellName } from '../../wire/routes/route.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { type Command, CommandError, EXIT, type ExitMeanings, type Verb } from '../command.ts';
import { checkArguments, type Positional, parseSharedOptions } from '../option-parser.ts';
import { flag, integer, type OptionTable, type OptionValues, text } from '../options.ts';
import { formatTable, print, readTableWidth } from '../output.ts';
import { callPlatform, clientOptions, connectCaller } from './client-options.ts';
import { bodyFileOption, composeBody, fieldOptions, flagsOf, readFields } from './request-body.ts';

export const pageOptions = {
  limit: integer({
    min: 1,
    max: 1_000,
    default: 100,
    help: 'maximum number of records on one page',
  }),
  cursor: text({
    placeholder: 'CURSOR',
    help: 'cursor of the page to print; each page prints the cursor of the next one',
  }),
};

export const yesOption = flag({ help: 'do not ask; without a terminal, the command never asks' });

export interface ListKind<Item> {
  /** Plural name, also the member of the list's answer: `pods`. */
  plural: string;
  /** Why a list may be empty, and what to do. */
  emptyNote?: string;
  /** Maps column titles to cells. */
  columns: Readonly<Record<string, (item: Item) => string>>;
}

/** A command whose body comes from options and from --file. */
interface BodyCommand<Table extends OptionTable> {
  /** Options besides those of the fields. */
  options?: Table;
  /** The members of the body that they set. @throws UsageError */
  compose?: (values: OptionValues<Table>) => Record<string, unknown>;
  /** What the request changes besides the record. */
  effect?: string;
  examples: readonly string[];
}

interface ResourceCommand<
  Name extends ResourceName,
  Create extends OptionTable,
  Update extends OptionTable,
> {
  /** Plural name of the resource: `pods`. */
  name: Name;
  fields: Fields;
  /** Maps column titles to cells. */
  columns: ListKind<RecordOf<Name>>['columns'];
  create: BodyCommand<Create>;
  update: BodyCommand<Update>;
  /** Options that set members of another name, besides those of the fields: `{ secret: 'secretFile' }`. */
  flags?: Readonly<Record<string, string>>;
}

/** Defines list, create, show and update. */
export function defineResourceVerbs<
  Name extends ResourceName,
  Create extends OptionTable,
  Update extends OptionTable,
>(
  resource: ResourceCommand<Name, Create, Update>,
): Record<'list' | 'create' | 'show' | 'update', Verb> {
  const { columns, fields, flags, name } = resource;
  const { plural } = RESOURCES[name];
  const { command, one, several } = nameInTexts(name);
  const id = `${one} ID or name`;
  // The platform checks bodies; a command's options may compose an incomplete one.
  const connect = (caller: ApiCaller): Resources<RecordOf<Name>, object, object> =>
    connectResources(caller, name);
  return {
    list: defineApiVerb({
      summary: `lists your ${several}, newest first`,
      options: pageOptions,
      examples: [
        `millrace ${command} list`,
        `millrace ${command} list --json | jq .${plural}[].id`,
      ],
      act: (request) => showList(connect(request.caller), { plural, columns }, request),
    }),
    create: defineBodyVerb({
      ...{ verb: 'create', fields, flags },
      summary: `creates one ${one} and prints it`,
      body: resource.create,
      act: async (body, { caller, json }) => showRecord(await connect(caller).create(body), json),
    }),
    show: defineApiVerb({
      summary: `prints one ${one}`,
      id,
      options: {},
      examples: [`millrace ${command} show <id>`],
      act: async (request) =>
        showRecord(await connect(request.caller).get(request.id), request.json),
    }),
    update: defineBodyVerb({
      ...{ verb: 'update', fields, flags, id },
      summary: 'changes some fields, keeps the others',
      body: resource.update,
      act: async (body, { caller, id: given, json }) =>
        showRecord(await connect(caller).update(given, body), json),
    }),
  };
}

function nameInTexts(name: ResourceName) {
  const { plural, singular } = RESOURCES[name];
  return {
    command: spellName(plural, '-'),
    one: spellName(singular),
    several: spellName(plural),
  };
}

/** `effect` says what else is deleted, or a condition: `; no endpoint may use it`. */
export function defineDeletion(name: ResourceName, effect: string): Verb {
  const { command, one } = nameInTexts(name);
  return defineApiVerb({
    summary: `deletes one ${one}${effect}`,
    id: `${one} ID or name`,
    options: { yes: yesOption },
    examples: [`millrace ${command} delete <id>`],
    act: async ({ caller, id, json, values }) => {
      await confirm(`Delete ${one} ${id}?`, values);
      await connectResources(caller, name).delete(id);
      return json ? JSON.stringify({ id, deleted: true }) : `${id}  deleted`;
    },
  });
}

interface BodyVerb<Table extends OptionTable> {
  verb: 'create' | 'update';
  fields: Fields;
  flags?: Readonly<Record<string, string>> | undefined;
  summary: string;
  description?: readonly string[];
  id?: string;
  body: BodyCommand<Table>;
  /** Sends the body. Returns the text to print. */
  act: (body: object, request: Omit<ApiRequest<OptionTable>, 'values'>) => Promise<string>;
}

/** Defines a command whose body comes from --file, from the options of the fields, and from further ones. */
export function defineBodyVerb<Table extends OptionTable>(command: BodyVerb<Table>): Verb {
  const { act, body, description = [], fields, flags, id, summary, verb } = command;
  const options = { ...fieldOptions(fields, verb), ...body.options, file: bodyFileOption };
  return defineApiVerb({
    summary,
    examples: body.examples,
    options,
    ...(id !== undefined && { id }),
    fields: { ...flagsOf(fields), ...flags },
    description: [
      ...description,
      ...(body.effect === undefined ? [] : [body.effect]),
      'For fields without an option, use --file; docs/openapi.json and GET /openapi.json list all fields.',
    ],
    act: ({ values, ...request }) => {
      // They were parsed with these options, among others.
      const more = body.compose?.(values as unknown as OptionValues<Table>);
      return act(composeBody(values.file, { ...readFields(fields, values), ...more }), request);
    },
  });
}

/** Prints one page of a list as a table, and how to get the next page. */
export async function showList<Item>(
  listed: Listed<Item>,
  kind: ListKind<Item>,
  request: Pick<ApiRequest<typeof pageOptions>, 'json' | 'values' | 'width'>,
): Promise<string> {
  const { json, values, width } = request;
  const { cursor, limit } = values;
  const page = await listed.page({ cursor, limit });
  return json ? formatPage(page, kind) : describePage(page, kind, width);
}

function formatPage<Item>({ items, ...rest }: Page<Item>, { plural }: ListKind<Item>): string {
  return JSON.stringify({ [plural]: items, ...rest });
}

function describePage<Item>(
  { cursor, items }: Page<Item>,
  kind: ListKind<Item>,
  width: number,
): string {
  if (items.length > 0) return addCursor(formatItems(items, kind, width), cursor);
  const { emptyNote, plural } = kind;
  const nouns = spellName(plural);
  return emptyNote === undefined ? `no ${nouns}` : `no ${nouns}: ${emptyNote}`;
}

/** Formats items as a table, one row each. */
export function formatItems<Item>(
  items: readonly Item[],
  { columns }: ListKind<Item>,
  width: number,
): string {
  const rows = items.map((item) => Object.values(columns).map((read) => read(item)));
  return formatTable(Object.keys(columns), rows, width);
}

/** Appends how to get the next page, if one exists. */
export function addCursor(shown: string, cursor: string | undefined): string {
  return cursor === undefined ? shown : `${shown}\nnext page: --cursor ${cursor}`;
}

export function showRecord(record: object, json: boolean): string {
  return JSON.stringify(record, null, json ? 0 : 2);
}

/** The options of every command that calls a platform. */
export const callOptions = {
  json: flag({ help: "print the platform's response as one line of JSON" }),
  wide: flag({ help: 'do not truncate table cells' }),
  ...clientOptions,
};

export const CALL_EXIT_CODES: ExitMeanings = {
  ok: 'done',
  failed: 'the platform rejected the request or did not respond',
};

export interface ApiRequest<Table extends OptionTable> {
  caller: ApiCaller;
  /** Empty if the command takes no ID. */
  id: string;
  values: OptionValues<Table>;
  json: boolean;
  /** Width that tables have to fit. */
  width: number;
}

interface ApiVerb<Table extends OptionTable> {
  summary: string;
  description?: readonly string[];
  /** The kind of resource that the ID names, as in `pod ID`. Default: the command takes no ID. */
  id?: string;
  options: Table;
  examples: readonly string[];
  /** Options of members of the body that have another name: `{ templateId: 'template' }`. */
  fields?: Readonly<Record<string, string>>;
  /** Returns the text to print. */
  act: (request: ApiRequest<Table>) => Promise<string>;
}

export function defineApiVerb<Table extends OptionTable>(verb: ApiVerb<Table>): Verb {
  const { act, description = [], examples, fields, id: idHelp, options, summary } = verb;
  const positionals: readonly Positional[] =
    idHelp === undefined ? [] : [{ name: '<id>', help: idHelp }];
  return {
    summary,
    description,
    positionals,
    examples,
    exitCodes: CALL_EXIT_CODES,
    options: { ...options, ...callOptions },
    async run(args) {
      const { positionals: words, ...parsed } = parseSharedOptions(options, callOptions, args);
      checkArguments(positionals, words);
      const { shared, values } = parsed;
      const [id = ''] = words;
      const caller = connectCaller(shared);
      const request = { caller, id, values, json: shared.json, width: readTableWidth(shared) };
      const shown = await callPlatform(() => act(request), { options, fields });
      void print(`${shown}\n`);
      return EXIT.ok;
    },
  };
}

/** Defines a command that belongs to no group. */
export function defineApiCommand<Table extends OptionTable>({
  name,
  ...command
}: Omit<ApiVerb<Table>, 'summary'> & { name: string }): Command {
  const { summary: _, ...verb } = defineApiVerb({ ...command, summary: '' });
  return { ...verb, name };
}

interface Terminal {
  input: NodeJS.ReadableStream & { isTTY?: boolean };
  output: NodeJS.WritableStream & { isTTY?: boolean };
}

/** Asks only if `yes` is false and a person can read and answer. @throws CommandError unless the answer is yes */
export async function confirm(
  question: string,
  { yes }: { yes: boolean },
  { input, output }: Terminal = { input: process.stdin, output: process.stderr },
): Promise<void> {
  if (yes || !input.isTTY || !output.isTTY) return;
  const lines = createInterface({ input, output });
  const answer = await new Promise<string>((resolve, reject) => {
    rejectOnInterrupt(lines, reject);
    lines.question(escapeControls(`${question} [y/N] `), resolve);
    lines.once('close', () => resolve(''));
  }).finally(() => lines.close());
  if (!/^\s*y(es)?\s*$/i.test(answer)) throw new CommandError('nothing was changed');
}

export function rejectOnInterrupt(lines: Interface, reject: (error: Error) => void): void {
  lines.once('SIGINT', () => reject(new InterruptedError('interrupted')));
}

/** The person has pressed Ctrl-C. */
class InterruptedError extends CommandError {
  override readonly exitCode: number = EXIT.interrupted;
}
