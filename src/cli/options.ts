// Declares command-line options as tables and parses arguments with them. help.ts renders the help
// from the same tables.
import { parseArgs } from 'node:util';
import { readVariable } from './config.ts';

/** Wrong usage: reported without a stack, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A command or an option that does not exist; the report names a similar one of `known`. */
export class UnknownWordError extends UsageError {
  readonly word: string;
  readonly known: readonly string[];

  constructor(kind: 'command' | 'option', word: string, known: readonly string[]) {
    super(`${word}: unknown ${kind}`);
    this.word = word;
    this.known = known;
  }
}

/** Section of the help that shows the option; none shows an `internal` one. */
export type HelpSection = 'main' | 'advanced' | 'internal';

export interface Option<T> {
  readonly kind: 'flag' | 'value' | 'list';
  /** Placeholder of the value in the help: `PORT`, `MS`. */
  readonly placeholder: string;
  readonly help: string;
  readonly section: HelpSection;
  /** Environment variable that applies if the flag is not given. */
  readonly env: string | undefined;
  /** Default in the form that the help shows. */
  readonly defaultText: string | undefined;
  /** Allowed numbers in the form that the help shows. */
  readonly rangeText?: string;
  readonly required: boolean;
  /** Returns the value; an Error says what the value must be. */
  readonly parse: (texts: readonly string[]) => T;
  readonly fallback: T;
}

export type OptionTable = Readonly<Record<string, Option<unknown>>>;
export type OptionValues<Table extends OptionTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Option<infer T> ? T : never;
};

interface OptionDescription {
  help: string;
  env?: string;
  section?: HelpSection;
}

interface ValueOption extends OptionDescription {
  placeholder?: string;
}

function describeOption(options: OptionDescription) {
  return { help: options.help, env: options.env, section: options.section ?? 'main' };
}

/** An option without a value; true if given. */
export function flag(options: OptionDescription): Option<boolean> {
  return {
    ...describeOption(options),
    kind: 'flag',
    placeholder: '',
    defaultText: undefined,
    required: false,
    fallback: false,
    parse: (texts) => texts.at(-1) !== '0' && texts.at(-1) !== 'false',
  };
}

/** A text; optional if it has no default. */
export function text(options: ValueOption & { default: string }): Option<string>;
export function text(options: ValueOption): Option<string | undefined>;
export function text(options: ValueOption & { default?: string }): Option<string | undefined> {
  return {
    ...describeOption(options),
    kind: 'value',
    placeholder: options.placeholder ?? 'TEXT',
    defaultText: options.default,
    required: false,
    fallback: options.default,
    parse: (texts) => requireText(texts.at(-1)),
  };
}

/** A required text, from the flag or the variable. */
export function requiredText(options: OptionDescription & { placeholder: string }): Option<string> {
  return {
    ...describeOption(options),
    kind: 'value',
    placeholder: options.placeholder,
    defaultText: undefined,
    required: true,
    fallback: '',
    parse: (texts) => requireText(texts.at(-1)),
  };
}

/** An option that may be given several times. */
export function list(options: OptionDescription & { placeholder: string }): Option<string[]> {
  return {
    ...describeOption(options),
    kind: 'list',
    placeholder: options.placeholder,
    defaultText: undefined,
    required: false,
    fallback: [],
    parse: (texts) => texts.map(requireText),
  };
}

interface IntegerOption extends ValueOption {
  min: number;
  max: number;
}

/** A whole number from `min` to `max`; optional if it has no default. */
export function integer(options: IntegerOption & { default: number }): Option<number>;
export function integer(options: IntegerOption): Option<number | undefined>;
export function integer(options: IntegerOption & { default?: number }): Option<number | undefined> {
  const { min, max } = options;
  return {
    ...describeOption(options),
    kind: 'value',
    placeholder: options.placeholder ?? 'N',
    defaultText: options.default?.toString(),
    rangeText: `${min} to ${max}`,
    required: false,
    fallback: options.default,
    parse: (texts) => {
      const given = texts.at(-1) ?? '';
      const value = /^-?\d+$/.test(given) ? Number(given) : Number.NaN;
      if (value >= min && value <= max) return value;
      throw new UsageError(
        `must be a whole number from ${min} to ${max}, got ${JSON.stringify(given)}`,
      );
    },
  };
}

interface ChoiceOption<Word extends string> extends ValueOption {
  choices: readonly Word[];
}

/** One of a few words; without a default it may be left out. */
export function choice<Word extends string>(
  options: ChoiceOption<Word> & { default: NoInfer<Word> },
): Option<Word>;
export function choice<Word extends string>(options: ChoiceOption<Word>): Option<Word | undefined>;
export function choice<Word extends string>(
  options: ChoiceOption<Word> & { default?: NoInfer<Word> },
): Option<Word | undefined> {
  const { choices } = options;
  return {
    ...describeOption(options),
    kind: 'value',
    placeholder: options.placeholder ?? choices.join('|'),
    defaultText: options.default,
    required: false,
    fallback: options.default,
    parse: (texts) => {
      const found = choices.find((word) => word === texts.at(-1));
      if (found !== undefined) return found;
      const given = JSON.stringify(texts.at(-1) ?? '');
      throw new UsageError(`must be one of ${choices.join(', ')}, got ${given}`);
    },
  };
}

/** `leaseMs` → `--lease-ms`. */
export function flagName(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

export interface ParsedArguments<Table extends OptionTable> {
  values: OptionValues<Table>;
  positionals: string[];
}

/** `-h` and `--help` anywhere before a `--`. */
export function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  const own = end < 0 ? args : args.slice(0, end);
  return own.includes('--help') || own.includes('-h');
}

/** Returns the position of the first argument that is neither an option nor its value; -1 if none is. */
export function findFirstWord(table: OptionTable, args: readonly string[]): number {
  const first = readTokens(table, args).find(({ kind }) => kind !== 'option');
  return first?.kind === 'positional' ? first.index : -1;
}

/** Flags win over the environment, the environment over defaults. @throws UsageError */
export function parseOptions<Table extends OptionTable>(
  table: Table,
  args: readonly string[],
): ParsedArguments<Table> {
  const { shared: _, ...parsed } = parseSharedOptions(table, {}, args);
  return parsed;
}

export interface SharedArguments<Own extends OptionTable, Shared extends OptionTable>
  extends ParsedArguments<Own> {
  shared: OptionValues<Shared>;
}

/** Like `parseOptions`; returns the shared options of several commands separately. @throws UsageError */
export function parseSharedOptions<Own extends OptionTable, Shared extends OptionTable>(
  own: Own,
  shared: Shared,
  args: readonly string[],
): SharedArguments<Own, Shared> {
  const { given, positionals } = collectTexts({ ...shared, ...own }, args);
  return { values: readValues(own, given), shared: readValues(shared, given), positionals };
}

type Given = ReadonlyMap<string, string[]>;

function readValues<Table extends OptionTable>(table: Table, given: Given): OptionValues<Table> {
  const values: Record<string, unknown> = {};
  for (const [name, option] of Object.entries(table)) {
    values[name] = readOption(name, option, given.get(name));
  }
  // Each value was parsed by the option of its name.
  return values as OptionValues<Table>;
}

function readOption(name: string, option: Option<unknown>, texts: string[] | undefined): unknown {
  if (texts) return parseNamed(flagName(name), option, texts);
  const inherited = option.env === undefined ? undefined : readVariable(option.env);
  if (option.env !== undefined && inherited !== undefined) {
    const parts = option.kind === 'list' ? inherited.split(',') : [inherited];
    return parseNamed(option.env, option, parts);
  }
  if (!option.required) return option.fallback;
  const orVariable = option.env ? ` (or ${option.env} in the environment)` : '';
  throw new UsageError(`${flagName(name)} ${option.placeholder} is required${orVariable}`);
}

function parseNamed(source: string, option: Option<unknown>, texts: string[]): unknown {
  try {
    return option.parse(texts);
  } catch (error) {
    if (error instanceof UsageError) throw new UsageError(`${source}: ${error.message}`);
    throw error;
  }
}

function readTokens(table: OptionTable, args: readonly string[]) {
  return parseArgs({
    args: [...args],
    strict: false,
    allowPositionals: true,
    tokens: true,
    options: Object.fromEntries(
      Object.entries(table).map(([name, { kind }]) => [
        flagName(name).slice(2),
        { type: kind === 'flag' ? ('boolean' as const) : ('string' as const) },
      ]),
    ),
  }).tokens;
}

function collectTexts(table: OptionTable, args: readonly string[]) {
  const names = new Map(Object.keys(table).map((name) => [flagName(name).slice(2), name]));
  const given = new Map<string, string[]>();
  const positionals: string[] = [];
  for (const token of readTokens(table, args)) {
    if (token.kind === 'positional') positionals.push(token.value);
    if (token.kind !== 'option') continue;
    const name = names.get(token.name);
    const option = name === undefined ? undefined : table[name];
    if (name === undefined || !option || !token.rawName.startsWith('--')) {
      throw new UnknownWordError('option', token.rawName, Object.keys(table).map(flagName));
    }
    const value = option.kind === 'flag' ? checkFlag(token) : checkValue(token);
    given.set(name, [...(given.get(name) ?? []), value]);
  }
  return { given, positionals };
}

interface OptionToken {
  rawName: string;
  value?: string | undefined;
  inlineValue?: boolean | undefined;
}

function checkFlag({ rawName, value }: OptionToken): string {
  if (value !== undefined) throw new UsageError(`${rawName} takes no value`);
  return 'true';
}

function checkValue({ rawName, value, inlineValue }: OptionToken): string {
  if (value === undefined) throw new UsageError(`${rawName}: value missing`);
  if (!inlineValue && /^--?[A-Za-z]/.test(value)) {
    throw new UsageError(
      `${rawName}: value missing; if ${value} is the value, write ${rawName}=${value}`,
    );
  }
  return value;
}

function requireText(given: string | undefined): string {
  if (given) return given;
  throw new UsageError('must not be empty');
}
