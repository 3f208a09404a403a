// Parses arguments with the tables of options.ts: flags win over the environment, the environment over
// defaults.
import { parseArgs } from 'node:util';
import { readVariable } from './config.ts';
import {
  flagName,
  InvalidKeyError,
  joinFlags,
  type Option,
  type OptionTable,
  type OptionValues,
  UnknownWordError,
  UsageError,
} from './options.ts';

export interface Positional {
  /**
   * `<handler>` is required, `[folder]` optional; `<files…>` takes one or more; `[-- command…]`
   * follows the options.
   */
  name: string;
  help: string;
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

interface SharedArguments<Own extends OptionTable, Shared extends OptionTable>
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
  const values = { own: readValues(own, given), shared: readValues(shared, given) };
  checkNeeds({ ...shared, ...own }, { ...values.shared, ...values.own });
  return { values: values.own, shared: values.shared, positionals };
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

/** Options with a default count as not given. @throws UsageError that names all options that need the same one */
function checkNeeds(table: OptionTable, values: Readonly<Record<string, unknown>>): void {
  const unmet = Object.entries(table).flatMap(([name, { fallback, needs }]) => {
    const isGiven = fallback === undefined && values[name] !== undefined;
    return isGiven && needs !== undefined && values[needs] === undefined ? [{ name, needs }] : [];
  });
  const [first] = unmet;
  if (!first) return;
  const flags = unmet
    .filter(({ needs }) => needs === first.needs)
    .map(({ name }) => flagName(name));
  const verb = flags.length === 1 ? 'needs' : 'need';
  throw new UsageError(`${joinFlags(flags)} ${verb} ${flagName(first.needs)}`);
}

function parseNamed(source: string, option: Option<unknown>, texts: string[]): unknown {
  try {
    return option.parse(texts);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const message = `${source}: ${error.message}`;
    throw error instanceof InvalidKeyError ? new InvalidKeyError(message) : new UsageError(message);
  }
}

function readTokens(table: OptionTable, args: readonly string[]) {
  return parseArgs({
    args: spellOut(table, args),
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

/** Replaces other spellings of flags. */
function spellOut(table: OptionTable, args: readonly string[]): string[] {
  const end = args.indexOf('--');
  const aliases = new Map(
    Object.entries(table).map(([name, { alias }]) => [alias, flagName(name)]),
  );
  return args.map((arg, at) => {
    const [flag = '', ...value] = arg.split('=');
    const spelled = end >= 0 && at > end ? undefined : aliases.get(flag);
    return spelled === undefined ? arg : [spelled, ...value].join('=');
  });
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

/** @throws UsageError if an argument is missing or superfluous */
export function checkArguments(declared: readonly Positional[], given: readonly string[]): void {
  const missing = declared.slice(given.length).find(({ name }) => name.startsWith('<'));
  if (missing) throw new UsageError(`${missing.name} is missing; give the ${missing.help}`);
  const takesMany = declared.at(-1)?.name.includes('…') ?? false;
  const surplus = takesMany ? undefined : given[declared.length];
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
}
