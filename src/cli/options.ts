// Declares command-line options as tables. option-parser.ts parses arguments with them, and command.ts renders
// the help from them. Reads files that options name.
import { readFileSync } from 'node:fs';
import { cleanKey as clean } from '../base/api-key.ts';
import { parseRate, type RateLimit } from '../wire/resources/field.ts';

/** Wrong usage: reported without a stack, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** An API key that cannot be one: reported like wrong usage, with the exit code of a refused key. */
export class InvalidKeyError extends UsageError {}

/** A command or an option that does not exist; the report names a similar one of `known`. */
export class UnknownWordError extends UsageError {
  readonly word: string;
  readonly known: readonly string[];

  constructor(kind: 'command' | 'option' | 'template', word: string, known: readonly string[]) {
    super(
      kind === 'template'
        ? `--template: ${word} is none of ${known.join(', ')}`
        : `${word}: unknown ${kind}`,
    );
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
  /** Heading of the option in the reference of all options; options of `defineGroup` have one. */
  readonly group: string | undefined;
  /** Environment variable that applies if the flag is not given. */
  readonly env: string | undefined;
  /** Other spelling of the flag: `-f`. */
  readonly alias: string | undefined;
  /**
   * Members of `PlatformOptions` that the option sets, by which the platform's errors name it. A text is the name of one
   * that several options set together.
   */
  readonly sets: readonly (string | Member<never>)[];
  /** Name of another option; giving this one without it is wrong usage. */
  readonly needs: string | undefined;
  /** Default in the form that the help shows. */
  readonly defaultText: string | undefined;
  /** Allowed numbers in the form that the help shows. */
  readonly rangeText: string | undefined;
  /** All values, if they are few. */
  readonly choices: readonly string[];
  readonly required: boolean;
  /** Returns the value, or an Error that says how it must look. */
  readonly parse: (texts: readonly string[]) => T;
  readonly fallback: T;
}

export interface Member<T> {
  /** `bounds.maxJsonDepth`. */
  readonly path: string;
  /** Returns the value in the member's form; undefined sets nothing. @throws UsageError */
  readonly convert: (value: T) => unknown;
}

export type OptionTable = Readonly<Record<string, Option<unknown>>>;
export type OptionValues<Table extends OptionTable> = {
  readonly [Name in keyof Table]: Table[Name] extends Option<infer T> ? T : never;
};

interface OptionDescription<T> {
  help: string;
  env?: string;
  alias?: string;
  section?: HelpSection;
  sets?: readonly (string | Member<T>)[];
  needs?: string;
}

interface ValueOption<T> extends OptionDescription<T> {
  placeholder?: string;
}

type OwnPart<T> = Pick<Option<T>, 'kind' | 'placeholder' | 'fallback' | 'parse'>;

function describeOption<T>(options: OptionDescription<never>, own: OwnPart<T>): Option<T> {
  const { alias, env, help, needs, section = 'main', sets = [] } = options;
  const described = {
    alias,
    env,
    help,
    section,
    sets,
    needs,
    group: undefined,
    choices: [],
    required: false,
  };
  return { ...described, defaultText: undefined, rangeText: undefined, ...own };
}

/**
 * Gives each option of the table the heading, and the variable of its name: `MILLRACE_LEASE_MS` for `leaseMs`. Options
 * for `millrace` itself have no variable.
 */
export function defineGroup<Table extends OptionTable>(group: string, table: Table): Table {
  const grouped = Object.entries(table).map(([name, option]) => {
    const { env = nameVariable(name), section } = option;
    return [name, { ...option, group, env: section === 'internal' ? undefined : env }];
  });
  // Each option has the type of the one that it was made from.
  return Object.fromEntries(grouped) as Table;
}

function nameVariable(name: string): string {
  return `MILLRACE_${name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
}

/** An option without a value; true if given. */
export function flag(options: OptionDescription<boolean>): Option<boolean> {
  return describeOption(options, {
    kind: 'flag',
    placeholder: '',
    fallback: false,
    parse: (texts) => texts.at(-1) !== '0' && texts.at(-1) !== 'false',
  });
}

/** A text; optional if it has no default. */
export function text(options: ValueOption<string> & { default: string }): Option<string>;
export function text(options: ValueOption<string | undefined>): Option<string | undefined>;
export function text(
  options: ValueOption<never> & { default?: string },
): Option<string | undefined> {
  const { default: fallback, placeholder = 'TEXT' } = options;
  const parse = (texts: readonly string[]) => requireText(texts.at(-1));
  return {
    ...describeOption(options, { kind: 'value', placeholder, fallback, parse }),
    defaultText: fallback,
  };
}

/** A required text, from the flag or the variable. */
export function requiredText(
  options: OptionDescription<string> & { placeholder: string },
): Option<string> {
  return { ...text({ ...options, default: '' }), defaultText: undefined, required: true };
}

/** An option that may be given several times. */
export function list(
  options: OptionDescription<string[]> & { placeholder: string },
): Option<string[]> {
  return describeOption(options, {
    kind: 'list',
    placeholder: options.placeholder,
    fallback: [],
    parse: (texts) => texts.map(requireText),
  });
}

export interface NumberOption<T> extends ValueOption<T> {
  min: number;
  max: number;
  /** Also the placeholder, in capitals. */
  unit?: 'ms' | 's' | 'bytes' | 'MB' | 'GB' | 'percent';
}

/** A whole number from `min` to `max`; optional if it has no default. */
export function integer(options: NumberOption<number> & { default: number }): Option<number>;
export function integer(options: NumberOption<number | undefined>): Option<number | undefined>;
export function integer(
  options: NumberOption<never> & { default?: number },
): Option<number | undefined> {
  return describeNumber(options, /^-?\d+$/, 'a whole number');
}

/** A decimal number from `min` to `max`; it may be left out. */
export function decimal(options: NumberOption<number | undefined>): Option<number | undefined> {
  return describeNumber(options, /^\d+(\.\d+)?$/, 'a number');
}

function describeNumber(
  options: NumberOption<never> & { default?: number },
  form: RegExp,
  noun: string,
): Option<number | undefined> {
  const { default: fallback, max, min, unit } = options;
  const { placeholder = unit?.toUpperCase() ?? 'N' } = options;
  const parse = (texts: readonly string[]) => {
    const given = texts.at(-1) ?? '';
    const value = form.test(given) ? Number(given) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new UsageError(`must be ${noun} from ${min} to ${max}, got ${JSON.stringify(given)}`);
  };
  const range = max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `${min} to ${max}`;
  return {
    ...describeOption(options, { kind: 'value', placeholder, fallback, parse }),
    defaultText: fallback?.toString(),
    rangeText: `${range}${unit === undefined ? '' : ` ${unit}`}`,
  };
}

/** A time of ISO 8601, Unix ms; it may be left out. */
export function time(options: ValueOption<number | undefined>): Option<number | undefined> {
  const { placeholder = 'TIME' } = options;
  const parse = (texts: readonly string[]) => {
    const at = Date.parse(texts.at(-1) ?? '');
    if (at >= 0) return at;
    const given = JSON.stringify(texts.at(-1) ?? '');
    throw new UsageError(`must be a time such as 2026-01-15T09:00:00Z, got ${given}`);
  };
  return describeOption(options, { kind: 'value', placeholder, fallback: undefined, parse });
}

/** `100/1m`: at most 100 in any minute; it may be left out. */
export function rate(options: ValueOption<RateLimit | undefined>): Option<RateLimit | undefined> {
  const { placeholder = 'MAX/TIME' } = options;
  const parse = (texts: readonly string[]) => {
    const given = texts.at(-1) ?? '';
    const read = parseRate(given);
    if (read) return read;
    const form = 'must be MAX/TIME, such as 100/1m or 5/500ms';
    throw new UsageError(`${form}, got ${JSON.stringify(given)}`);
  };
  return describeOption(options, { kind: 'value', placeholder, fallback: undefined, parse });
}

interface ChoiceOption<Word extends string, T = Word> extends ValueOption<T> {
  choices: readonly Word[];
}

/** One of a few words; without a default it may be left out. */
export function choice<const Word extends string>(
  options: ChoiceOption<Word> & { default: NoInfer<Word> },
): Option<Word>;
export function choice<const Word extends string>(
  options: ChoiceOption<Word, Word | undefined>,
): Option<Word | undefined>;
export function choice<const Word extends string>(
  options: ChoiceOption<Word, never> & { default?: NoInfer<Word> },
): Option<Word | undefined> {
  const { choices, default: fallback, placeholder = choices.join('|') } = options;
  const parse = (texts: readonly string[]) => {
    const found = choices.find((word) => word === texts.at(-1));
    if (found !== undefined) return found;
    const given = JSON.stringify(texts.at(-1) ?? '');
    throw new UsageError(`must be one of ${choices.join(', ')}, got ${given}`);
  };
  return {
    ...describeOption(options, { kind: 'value', placeholder, fallback, parse }),
    defaultText: fallback,
    choices,
  };
}

/** `leaseMs` → `--lease-ms`. */
export function flagName(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** `--store, --key-file and --shards`. */
export function joinFlags(flags: readonly string[]): string {
  return new Intl.ListFormat('en-GB').format(flags);
}

const STANDARD_INPUT = 0;

/** Content of the file that an option names; `stdin`: `-` names standard input. @throws UsageError naming the flag */
export function readNamedFile(flag: string, path: string, dash?: 'stdin'): string {
  try {
    return readFileSync(dash && path === '-' ? STANDARD_INPUT : path, 'utf8');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(`${flag}: ${path} cannot be read: ${reason}`);
  }
}

function requireText(given: string | undefined): string {
  if (given) return given;
  throw new UsageError('must not be empty');
}

/** `source`: where the key was found. @throws InvalidKeyError that shows no key */
export function readKeyOf(source: string, key: string): string {
  try {
    return cleanKey(key);
  } catch (error) {
    throw error instanceof InvalidKeyError
      ? new InvalidKeyError(`${source}: ${error.message}`)
      : error;
  }
}

/** @throws InvalidKeyError that shows no key */
export function cleanKey(key: string): string {
  try {
    return clean(key);
  } catch (error) {
    throw new InvalidKeyError(error instanceof Error ? error.message : String(error));
  }
}

/** The option has a key. */
export function keyOption<T>(option: Option<T>): Option<T | string> {
  const parse = (texts: readonly string[]) => {
    const key = cleanKey(texts.at(-1) ?? '');
    if (key !== '') return key;
    throw new UsageError('must not be empty');
  };
  return { ...option, parse };
}
