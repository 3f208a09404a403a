// Describes any thrown value in bounded texts.
import util from 'node:util';
import { stringCut } from '../wire/primordials.ts';

const { inspect } = util;
const { isNativeError } = util.types;

const MAX_MESSAGE_CHARS = 8_000;
const MAX_STACK_CHARS = 32_000;
const MAX_CAUSES = 4;

export interface ThrownDescription {
  message: string;
  /** Class of the error; absent if the value is not an error. */
  type?: string;
  stack?: string;
}

/** Never throws, even if the error's members do. */
export function describeThrown(thrown: unknown): ThrownDescription {
  try {
    return isNativeError(thrown) || thrown instanceof Error
      ? describeError(thrown)
      : { message: cap(typeof thrown === 'string' ? thrown : inspect(thrown), MAX_MESSAGE_CHARS) };
  } catch {
    return { message: 'the handler threw a value that cannot be described' };
  }
}

function describeError(error: Error): ThrownDescription {
  const className = String(error.constructor?.name ?? 'Error');
  const type = error.name === 'Error' ? className : String(error.name);
  const message = cap(String(error.message) || type, MAX_MESSAGE_CHARS);
  if (typeof error.stack !== 'string') return { message, type };
  return { message, type, stack: cap(joinStacks(error), MAX_STACK_CHARS) };
}

function joinStacks(error: Error): string {
  const stacks = [String(error.stack)];
  let cause: unknown = error.cause;
  while (cause !== undefined && stacks.length < MAX_CAUSES) {
    const known = cause instanceof Error ? cause : undefined;
    stacks[stacks.length] =
      `caused by: ${known ? String(known.stack ?? known.message) : inspect(cause)}`;
    cause = known?.cause;
  }
  return stacks.join('\n');
}

function cap(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${stringCut(text, 0, maxChars)}… (${text.length - maxChars} more characters)`;
}
