// Describes any thrown value in bounded texts.
import util from 'node:util';
import { isArray, stringCut } from '../wire/primordials.ts';

const { inspect } = util;
const { isNativeError } = util.types;

const MAX_MESSAGE_CHARS = 8_000;
const MAX_STACK_CHARS = 32_000;
/** Errors within an error, at any depth: causes, and the errors of an AggregateError or a SuppressedError. */
const MAX_INNER = 16;
/** Errors whose messages the combined message contains. */
const MAX_NAMED = 3;
const MAX_NAMED_CHARS = 500;

export interface ThrownDescription {
  message: string;
  /** Class of the error; absent if the value is not an error. */
  type?: string;
  stack?: string;
}

/** Never throws, even if the error's members do. */
export function describeThrown(thrown: unknown): ThrownDescription {
  try {
    return isError(thrown)
      ? describeError(thrown)
      : { message: cap(typeof thrown === 'string' ? thrown : inspect(thrown), MAX_MESSAGE_CHARS) };
  } catch {
    return { message: 'the handler threw a value that cannot be described' };
  }
}

function isError(value: unknown): value is Error {
  return isNativeError(value) || value instanceof Error;
}

function describeError(error: Error): ThrownDescription {
  const type = nameOf(error);
  const message = cap(joinMessages(error) || type, MAX_MESSAGE_CHARS);
  if (typeof error.stack !== 'string') return { message, type };
  return { message, type, stack: new Stacks(error).text };
}

function nameOf(error: Error): string {
  const className = String(error.constructor?.name ?? 'Error');
  return error.name === 'Error' ? className : String(error.name);
}

/** "All promises were rejected" alone does not help the reader. */
function joinMessages(error: Error): string {
  const { count, parts } = listParts(error);
  let named = '';
  for (let index = 0; index < parts.length && index < MAX_NAMED; index += 1) {
    const part = parts[index]?.value;
    const text = isError(part) ? String(part.message) || nameOf(part) : inspect(part);
    named += `${index === 0 ? '' : '; '}${cap(text, MAX_NAMED_CHARS)}`;
  }
  if (count > MAX_NAMED) named += `; ${count - MAX_NAMED} more`;
  const message = String(error.message);
  return message === '' || named === '' ? message || named : `${message}: ${named}`;
}

interface Part {
  label: string;
  value: unknown;
}

/** The errors of an AggregateError or a SuppressedError; `count` includes those left out. */
function listParts(error: Error): { parts: Part[]; count: number } {
  const parts: Part[] = [];
  if ('errors' in error && isArray(error.errors)) {
    const count = error.errors.length;
    for (let index = 0; index < count && index < MAX_INNER; index += 1) {
      parts[index] = { label: `error ${index + 1} of ${count}`, value: error.errors[index] };
    }
    return { parts, count };
  }
  if ('suppressed' in error && 'error' in error) {
    parts[0] = { label: 'error', value: error.error };
    parts[1] = { label: 'suppressed', value: error.suppressed };
  }
  return { parts, count: parts.length };
}

/** The stack of an error, then those of the errors within it. */
class Stacks {
  text = '';
  readonly #seen: unknown[] = [];
  #omitted = 0;

  constructor(error: Error) {
    this.#add('', { label: '', value: error });
    if (this.#omitted > 0) this.text += `\n… (${this.#omitted} more errors)`;
    this.text = cap(this.text, MAX_STACK_CHARS);
  }

  #add(indent: string, { label, value }: Part): void {
    for (let index = 0; index < this.#seen.length; index += 1) {
      if (this.#seen[index] !== value) continue;
      this.text += `\n${indent}${label}: an error from above`;
      return;
    }
    if (this.#seen.length > MAX_INNER || this.text.length > MAX_STACK_CHARS) {
      this.#omitted += 1;
      return;
    }
    const own = isError(value) ? String(value.stack ?? value.message) : inspect(value);
    const text = cap(label === '' ? own : `${label}: ${own}`, MAX_STACK_CHARS);
    this.text += `${label === '' ? '' : '\n'}${indent}${text.replaceAll('\n', `\n${indent}`)}`;
    if (!isError(value)) return;
    this.#seen[this.#seen.length] = value;
    const { count, parts } = listParts(value);
    for (let index = 0; index < parts.length; index += 1) {
      const part = parts[index];
      if (part) this.#add(`${indent}    `, part);
    }
    this.#omitted += count - parts.length;
    if (value.cause !== undefined) this.#add(indent, { label: 'caused by', value: value.cause });
  }
}

function cap(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${stringCut(text, 0, maxChars)}… (${text.length - maxChars} more characters)`;
}
