// Finds the command of a group that the arguments name. Options may precede it.
import type { Command, CommandGroup, Verb } from './command.ts';
import { findFirstWord } from './option-parser.ts';
import { type OptionTable, UnknownWordError, UsageError } from './options.ts';

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
