// Validates a value against an author's schema and describes every mismatch with its path.
import { jsonStringify } from '../../wire/primordials.ts';
import type { Schema, SchemaIssue, SchemaResult } from '../define.ts';

const MAX_ISSUES = 50;

/** The value does not match its schema. The message lists each path with its fault. */
export class MismatchError extends Error {
  override readonly name = 'MismatchError';
}

/**
 * Returns the schema's result; a promise only if the schema is asynchronous. Paths begin with
 * `root`: `input.items[0].url: …`. @throws MismatchError
 */
export function validate(schema: Schema, value: unknown, root: string): unknown {
  const result = schema['~standard'].validate(value);
  // Not `instanceof Promise`: the promise may come from another realm or library.
  if (!('then' in result)) return unwrap(result, root);
  return Promise.resolve(result).then((settled) => unwrap(settled, root));
}

function unwrap(result: SchemaResult<unknown>, root: string): unknown {
  if (!result.issues) return result.value;
  const lines = result.issues.slice(0, MAX_ISSUES).map((issue) => formatIssue(issue, root));
  const left = result.issues.length - lines.length;
  if (left > 0) lines.push(`and ${left} more`);
  throw new MismatchError(lines.join('; '));
}

function formatIssue({ path = [], message }: SchemaIssue, root: string): string {
  const steps = path.map((step) => {
    const key = typeof step === 'object' ? step.key : step;
    if (typeof key === 'number') return `[${key}]`;
    const name = String(key);
    return /^[A-Za-z_$][\w$]*$/.test(name) ? `.${name}` : `[${jsonStringify(name)}]`;
  });
  return `${root}${steps.join('')}: ${message}`;
}
