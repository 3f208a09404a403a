// Declares command-line options as tables. option-parser.ts parses arguments with them, and help.ts renders
// the help from them.
import { cleanKey as clean } from '../base/api-key.ts';

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
  /** Environment variable that applies if the flag is not given. */
  readonly env: string | undefined;
  /** Default in the form that the help shows. */
  readonly defaultText: string | undefined;
  /** Allowed numbers in the form that the help shows. */
  readonly rangeText?: string;
  /** All values, if they are few. */
  readonly choices?: readonly string[];
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

/** A decimal number from `min` to `max`; it may be left out. */
export function decimal(options: IntegerOption): Option<number | undefined> {
  const { min, max } = options;
  return {
    ...describeOption(options),
    kind: 'value',
    placeholder: options.placeholder ?? 'N',
    defaultText: undefined,
    rangeText: `${min} to ${max}`,
    required: false,
    fallback: undefined,
    parse: (texts) => {
      const given = texts.at(-1) ?? '';
      const value = /^\d+(\.\d+)?$/.test(given) ? Number(given) : Number.NaN;
      if (value >= min && value <= max) return value;
      throw new UsageError(`must be a number from ${min} to ${max}, got ${JSON.stringify(given)}`);
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
    choices,
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
