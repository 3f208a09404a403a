// Defines commands that make one call to a running platform and print its answer.
import type { ApiCaller } from '../../client/api-caller.ts';
import { EXIT, type ExitCode, type Positional, type Verb } from '../command.ts';
import { checkArguments, parseSharedOptions } from '../option-parser.ts';
import { flag, type OptionTable, type OptionValues } from '../options.ts';
import { print, readTableWidth } from '../output.ts';
import { callPlatform, clientOptions, connectCaller } from './client-options.ts';

/** The options of every command that calls a platform. */
export const callOptions = {
  json: flag({ help: "print the platform's response as one line of JSON" }),
  wide: flag({ help: 'do not truncate table cells' }),
  ...clientOptions,
};

export const CALL_EXIT_CODES: readonly ExitCode[] = [
  { code: EXIT.ok, meaning: 'done' },
  { code: EXIT.failed, meaning: 'the platform rejected the request or did not respond' },
  { code: EXIT.usage, meaning: 'wrong usage' },
];

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
    ...{ summary, description, positionals, examples, exitCodes: CALL_EXIT_CODES },
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
