// Defines commands of the `millrace` program and their shared exit codes. A command is `millrace
// <command>`, or belongs to a group: `millrace <noun> <verb>`.
import { EXIT_HANDLER_NOT_LOADED, EXIT_REFUSED } from '../wire/link/worker-link.ts';
import { findFirstWord } from './option-parser.ts';
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

export interface Positional {
  /**
   * `<handler>` is required, `[folder]` optional; `<files…>` takes one or more; `[-- command…]`
   * follows the options.
   */
  name: string;
  help: string;
}

export interface ExitCode {
  code: number;
  meaning: string;
}

export interface CommandHelp {
  /** The first words: `millrace serve`, `millrace pods list`. */
  name: string;
  /** Paragraphs, without line breaks. */
  description: readonly string[];
  positionals: readonly Positional[];
  options: OptionTable;
  examples: readonly string[];
  exitCodes: readonly ExitCode[];
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
