// Defines commands of the `millrace` program, with their exit codes, and renders their help from the tables that also
// parse the arguments. A command is `millrace <command>`, or belongs to a group: `millrace <noun> <verb>`.
import { EXIT_HANDLER_NOT_LOADED, EXIT_REFUSED } from '../wire/link/worker-link.ts';
import {
  checkArguments,
  findFirstWord,
  type ParsedArguments,
  type Positional,
  parseOptions,
} from './option-parser.ts';
import {
  flagName,
  type HelpSection,
  type Option,
  type OptionTable,
  UnknownWordError,
  UsageError,
} from './options.ts';

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

const WIDTH = 88;
const INDENT = '  ';

export function renderHelp(command: CommandHelp): string {
  const { name, positionals, description, options, examples, exitCodes } = command;
  const names = positionals.map((each) => each.name);
  const isLast = (argument: string) => argument.startsWith('[--');
  const own = names.filter((each) => !isLast(each));
  const usage = [name, ...own, '[options]', ...names.filter(isLast)].join(' ');
  const blocks = [
    `Usage: ${usage}`,
    ...description.map((paragraph) => wrap(paragraph, '')),
    renderBlock(
      'Arguments',
      positionals.map((each) => [each.name, each.help]),
    ),
    ...renderOptions(options, flagRow('-h, --help', 'show this help')),
    renderBlock('Advanced', optionRows(pick(options, 'advanced'))),
    examples.length > 0 && ['Examples:', ...examples.map((line) => INDENT + line)].join('\n'),
    renderBlock('Exit codes', listExitCodes(exitCodes)),
  ];
  return `${blocks.filter((block) => block !== false && block !== '').join('\n\n')}\n`;
}

/** Renders the `--help` of a group: the list of its commands. */
export function renderGroupHelp({ description, examples, name, verbs }: CommandGroup): string {
  const rows = Object.entries(verbs).map(([word, { positionals, summary }]) => {
    const usage = [word, ...positionals.map((each) => each.name)].join(' ');
    return [usage, summary] as const;
  });
  const blocks = [
    `Usage: ${name} <command> [options]`,
    ...description.map((paragraph) => wrap(paragraph, '')),
    renderBlock('Commands', rows),
    wrap(`\`${name} <command> --help\` shows the options of one command.`, ''),
    ['Examples:', ...examples.map((line) => INDENT + line)].join('\n'),
  ];
  return `${blocks.join('\n\n')}\n`;
}

function listExitCodes(meanings: ExitMeanings): [code: string, meaning: string][] {
  const shown: ExitMeanings = { usage: 'wrong usage', ...meanings };
  return Object.entries(EXIT).flatMap(([name, code]) => {
    const meaning = Object.entries(shown).find(([each]) => each === name)?.[1];
    return meaning === undefined ? [] : [[String(code), meaning]];
  });
}

/** Renders two columns under a title; an empty text without rows. */
export function renderBlock(title: string, rows: readonly (readonly [string, string])[]): string {
  if (rows.length === 0) return '';
  const left = Math.min(28, Math.max(...rows.map(([name]) => name.length))) + 2;
  const lines = rows.map(([name, help]) => {
    const head = name.length + 2 > left ? `${name}\n${' '.repeat(left + 2)}` : name.padEnd(left);
    return INDENT + head + wrap(help, ' '.repeat(left + INDENT.length)).trimStart();
  });
  return [`${title}:`, ...lines].join('\n');
}

/** Under headings if all have one: a command that shares a few options with `serve` shows them among its own. */
function renderOptions(options: OptionTable, help: [string, string]): string[] {
  const main = pick(options, 'main');
  const groups = new Set(main.map(([, { group }]) => group));
  if (groups.has(undefined)) return [renderBlock('Options', [...optionRows(main), help])];
  const blocks = [...groups].map((group) =>
    renderBlock(`${group}`, optionRows(main.filter(([, option]) => option.group === group))),
  );
  return [renderBlock('Options', [help]), ...blocks];
}

type NamedOptions = readonly [string, Option<unknown>][];

function pick(options: OptionTable, section: HelpSection): NamedOptions {
  return Object.entries(options).filter(([, option]) => option.section === section);
}

function optionRows(options: NamedOptions): [string, string][] {
  return options.map(([name, option]) =>
    flagRow(`${flagName(name)} ${option.placeholder}`, describe(option)),
  );
}

function flagRow(names: string, help: string): [string, string] {
  return [names.trimEnd(), help];
}

function describe({ help, defaultText, env, kind, rangeText, required }: Option<unknown>): string {
  const notes = [
    required && 'required',
    kind === 'list' && 'repeatable',
    rangeText !== undefined && rangeText,
    defaultText !== undefined && `default ${defaultText}`,
    env !== undefined && env,
  ].filter((note) => note !== false);
  return notes.length > 0 ? `${help} (${notes.join('; ')})` : help;
}

function wrap(text: string, indent: string): string {
  const lines: string[] = [];
  let line = indent;
  for (const word of text.split(' ')) {
    if (line.length + word.length + 1 > WIDTH && line.trim() !== '') {
      lines.push(line.trimEnd());
      line = indent;
    }
    line += `${word} `;
  }
  return [...lines, line.trimEnd()].join('\n');
}
