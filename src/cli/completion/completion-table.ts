// The words that can follow each command, from the tables that also parse the arguments. Pure.
import type { Command, CommandGroup } from '../command.ts';
import { flagName, type OptionTable } from '../options.ts';

export interface CompletedWord {
  word: string;
  /** One line. */
  help: string;
}

interface CompletedOption extends CompletedWord {
  /** The option takes a value. */
  isValued: boolean;
  /** All values, if they are known; else a value may be a file. */
  choices: readonly string[];
}

export interface CompletionContext {
  /** Words of the command: empty, `jobs`, `jobs list`. */
  path: string;
  commands: readonly CompletedWord[];
  options: readonly CompletedOption[];
  /** The command takes arguments, which may be files. */
  takesFiles: boolean;
}

export type CompletionTable = readonly CompletionContext[];

interface LoadedCommand {
  word: string;
  summary: string;
  command: Command | CommandGroup;
}

const HELP: CompletedOption = {
  ...{ word: '--help', help: 'show the help', isValued: false, choices: [] },
};

export function composeTable(all: readonly LoadedCommand[]): CompletionTable {
  const top: CompletionContext = {
    path: '',
    commands: all.map(({ summary, word }) => ({ word, help: summary })),
    options: [HELP, { ...HELP, word: '--version', help: 'show the version' }],
    takesFiles: false,
  };
  return [top, ...all.flatMap(({ command, word }) => describe(word, command))];
}

function describe(path: string, command: Command | CommandGroup): CompletionContext[] {
  if (!('verbs' in command)) return [describeOne(path, command)];
  const verbs = Object.entries(command.verbs);
  const group: CompletionContext = {
    path,
    commands: verbs.map(([word, { summary }]) => ({ word, help: summary })),
    ...{ options: [HELP], takesFiles: false },
  };
  return [group, ...verbs.map(([word, verb]) => describeOne(`${path} ${word}`, verb))];
}

function describeOne(
  path: string,
  { options, positionals }: Pick<Command, 'options' | 'positionals'>,
): CompletionContext {
  const takesFiles = positionals.some(({ name }) => !/^[<[](id|name|shell)/.test(name));
  return { path, commands: [], options: [...listOptions(options), HELP], takesFiles };
}

function listOptions(options: OptionTable): CompletedOption[] {
  return Object.entries(options)
    .filter(([, { section }]) => section !== 'internal')
    .map(([name, { choices = [], help, kind }]) => ({
      word: flagName(name),
      help: help.split(/[;:(]/, 1)[0]?.trim() ?? '',
      ...{ isValued: kind !== 'flag', choices },
    }));
}
