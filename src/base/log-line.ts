// Makes one line of the log, in the format of pino's lines: JSON with level, time, fields and msg. API keys are replaced,
// and characters that could change a terminal are escaped.
import { escapeControls, limitText } from './text/printable.ts';

export interface LogEntry {
  /** A number of `LEVELS`. */
  level: number;
  /** ms since 1970. */
  time: number;
  /** Members of each line of the log. */
  bindings: object;
  fields: object;
  message: string | undefined;
  /** Limit of each text in `fields`, characters. */
  maxTextChars: number;
}

/** pino's level numbers. */
export const LEVELS = { trace: 10, debug: 20, info: 30, warn: 40, error: 50, fatal: 60 } as const;

/** Members whose values never reach the log, at the top and one level below. */
const SECRET_NAMES = ['key', 'authorization'];
export const SECRET_PATHS = SECRET_NAMES.flatMap((name) => [name, `*.${name}`]);
export const CENSOR = '[key]';

/**
 * Matches a key anywhere in a line: in an error's text, or in a field where a caller sent it by
 * mistake.
 */
const ANY_KEY = /\bmr_[A-Za-z0-9_-]{43}/g;

/** Errors inside of errors are described down to this depth. */
const MAX_ERROR_DEPTH = 8;

/** Returns the line with its line break. */
export function renderLogLine(entry: LogEntry): string {
  const { bindings, fields, level, maxTextChars, message, time } = entry;
  const own = limitTexts(describeErrors(fields), maxTextChars);
  const members = { level, time, ...hideSecrets(bindings), ...hideSecrets(own), msg: message };
  return `${cleanLogLine(stringify(members))}\n`;
}

/** Replaces keys in a finished line, and escapes it. */
export function cleanLogLine(line: string): string {
  return escapeControls(line.replaceAll(ANY_KEY, CENSOR));
}

function describeErrors(fields: object): object {
  if (fields instanceof Error) return { err: describeError(fields, 0) };
  return mapMembers(fields, (value) => (value instanceof Error ? describeError(value, 0) : value));
}

/** The messages and stacks of causes follow those of the error. */
function describeError(error: Error, depth: number): object {
  const describe = (value: unknown) => {
    if (!(value instanceof Error)) return value;
    return depth < MAX_ERROR_DEPTH ? describeError(value, depth + 1) : value.message;
  };
  const chain = listCauses(error);
  const { cause: _, ...members } = error;
  return {
    type: error.constructor.name,
    message: chain.map(({ message }) => message).join(': '),
    stack: chain.map(({ message, stack }) => stack ?? message).join('\ncaused by: '),
    ...(error instanceof AggregateError && { aggregateErrors: error.errors.map(describe) }),
    ...mapMembers(members, describe),
  };
}

function listCauses(error: Error): Error[] {
  const chain: Error[] = [];
  let next: unknown = error;
  while (next instanceof Error && chain.length < MAX_ERROR_DEPTH && !chain.includes(next)) {
    chain.push(next);
    next = next.cause;
  }
  return chain;
}

/** Also the texts of a described error. */
function limitTexts(fields: object, maxChars: number): object {
  if (maxChars === Number.POSITIVE_INFINITY) return fields;
  const limit = (value: unknown) =>
    typeof value === 'string' ? limitText(value, maxChars) : value;
  return mapMembers(fields, (value, name) =>
    name === 'err' && isObject(value) ? mapMembers(value, limit) : limit(value),
  );
}

function hideSecrets(fields: object): object {
  const hide = (value: unknown, name: string) => (SECRET_NAMES.includes(name) ? CENSOR : value);
  return mapMembers(fields, (value, name) => {
    const isHiding = isObject(value) && SECRET_NAMES.some((secret) => secret in value);
    return hide(isHiding ? mapMembers(value, hide) : value, name);
  });
}

function mapMembers(
  members: object,
  change: (value: unknown, name: string) => unknown,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(members).map(([name, value]) => [name, change(value, name)]),
  );
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A value that JSON does not have must not cost the line. */
function stringify(members: object): string {
  try {
    return JSON.stringify(members);
  } catch {
    return JSON.stringify(mapMembers(members, replaceUnwritable));
  }
}

function replaceUnwritable(value: unknown): unknown {
  try {
    JSON.stringify(value);
    return value;
  } catch (error) {
    return typeof value === 'bigint' ? `${value}` : `[not JSON: ${String(error).split('\n')[0]}]`;
  }
}
