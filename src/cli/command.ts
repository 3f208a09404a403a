// Defines commands of the `millrace` program and their shared exit codes. A command is `millrace
// <command>`, or belongs to a group: `millrace <noun> <verb>`.
import { EXIT_HANDLER_NOT_LOADED, EXIT_REFUSED } from '../wire/link/worker-link.ts';
import {
  checkArguments,
  findFirstWord,
  type ParsedArguments,
  type Positional,
  parseOptions,
} from './option-parser.ts';
import { type OptionTable, UnknownWordError, UsageError } from './options.ts';

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  gaveUp: 3,
  unfit: 4,
  notLoaded: EXIT_HANDLER_NOT_LOADED,
  refused: EXIT_REFUSED,
  timedOut: 124,
  interrupted: 130,
  /** The reader of standard output has gone, such as `head`. Shells show the same code for SIGPIPE. */
  noReader: 141,
} as const;

/** The command failed for a known reason; the report needs no stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly exitCode: number = EXIT.failed;
}

/** The handler cannot be loaded: another process would fail in the same way. */
export class NotLoadedError extends CommandError {
  override readonly exitCode: number = EXIT.notLoaded;
}

/** The platform refuses the worker's key, or has no such endpoint. */
export class WorkerRefusedError extends CommandError {
  override readonly exitCode: number = EXIT.refused;
}

/** This machine cannot run the handler; another machine may. */
export class UnfitError extends CommandError {
  override readonly exitCode: number = EXIT.unfit;
}

/** What the exit codes of a command mean; `usage` is "wrong usage" by default. */
export type ExitMeanings = Readonly<Partial<Record<keyof typeof EXIT, string>>>;

export interface CommandHelp {
  /** The first words: `millrace serve`, `millrace pods list`. */
  name: string;
  /** Paragraphs, without line breaks. */
  description: readonly string[];
  positionals: readonly Positional[];
  options: OptionTable;
  examples: readonly string[];
  exitCodes: ExitMeanings;
}

export interface Command extends CommandHelp {
  /** Resolves with the exit code. @throws UsageError, CommandError */
  run(args: readonly string[]): Promise<number>;
}

/** A command of a group; the group adds the name. */
export interface Verb extends Omit<Command, 'name'> {
  /** One line for the group's list of commands, without a full stop. */
  summary: string;
}

interface Described<Table extends OptionTable> {
  /** Default: none. */
  description?: readonly string[];
  /** Default: none. */
  positionals?: readonly Positional[];
  options: Table;
  examples: readonly string[];
  exitCodes: ExitMeanings;
  run: (given: ParsedArguments<Table>) => Promise<number>;
}

/** Defines a command that runs with the values of its options. */
export function defineCommand<Table extends OptionTable>(
  command: Described<Table> & { name: string },
): Command {
  return { ...parseFirst(command), name: command.name };
}

export function defineVerb<Table extends OptionTable>(
  verb: Described<Table> & { summary: string },
): Verb {
  return { ...parseFirst(verb), summary: verb.summary };
}

function parseFirst<Table extends OptionTable>(described: Described<Table>): Omit<Command, 'name'> {
  const { description = [], examples, exitCodes, options, positionals = [], run } = described;
  return {
    description,
    positionals,
    options,
    examples,
    exitCodes,
    async run(args) {
      const given = parseOptions(options, args);
      checkArguments(positionals, given.positionals);
      return run(given);
    },
  };
}

/** Commands for one kind of resource: `millrace pods list`, `millrace pods create`, … */
export interface CommandGroup {
  /** `millrace pods`. */
  name: string;
  /** Paragraphs, without line breaks. */
  description: readonly string[];
  verbs: Readonly<Record<string, Verb>>;
  examples: readonly string[];
}

interface ChosenVerb {
  /** Undefined if the arguments name no command. */
  command: Command | undefined;
  /** The arguments without the command's name. */
  args: readonly string[];
}

/** @throws UnknownWordError */
export function chooseVerb(group: CommandGroup, args: readonly string[]): ChosenVerb {
  const at = findFirstWord(mergeOptions(group), args);
  const word = args[at];
  if (word === undefined) return { command: undefined, args };
  const verb = Object.hasOwn(group.verbs, word) ? group.verbs[word] : undefined;
  if (!verb) throw new UnknownWordError('command', word, Object.keys(group.verbs));
  return { command: nameVerb(group, word, verb), args: args.toSpliced(at, 1) };
}

/** Returns the group's commands with their full names. */
export function listCommands(group: CommandGroup): Command[] {
  return Object.entries(group.verbs).map(([word, verb]) => nameVerb(group, word, verb));
}

export function noVerb({ verbs }: CommandGroup): UsageError {
  return new UsageError(`a command is missing; give one of ${Object.keys(verbs).join(', ')}`);
}

function nameVerb(group: CommandGroup, word: string, verb: Verb): Command {
  const description = [`${capitalize(verb.summary)}.`, ...verb.description];
  return { ...verb, name: `${group.name} ${word}`, description };
}

/** Merges the options of all commands, to distinguish options with and without a value. */
function mergeOptions({ verbs }: CommandGroup): OptionTable {
  return Object.assign({}, ...Object.values(verbs).map(({ options }) => options));
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
