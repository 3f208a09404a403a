// Renders help texts from the tables that also parse the arguments.
import { type CommandGroup, type CommandHelp, EXIT, type ExitMeanings } from './command.ts';
import { flagName, type HelpSection, type Option, type OptionTable } from './options.ts';

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
