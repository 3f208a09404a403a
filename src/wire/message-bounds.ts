// Bounds of worker messages: on the number of items in one, and on the JSON Schema of a handler's input. The platform refuses
// larger messages before it decodes them; a worker with more items sends several messages.
import { BACKSLASH, COMMA, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './json-bytes.ts';

/** Reports in one message. */
export const MAX_REPORTS = 1_000;
/** Leases, outbox entries, devices: elements of any other list. */
export const MAX_LISTED = 10_000;
/** Chunks of all reports in one message. */
export const MAX_CHUNKS = 100_000;
/**
 * Values and members of a message's JSON, or fields of its protobuf. Full lists as above need
 * fewer.
 */
export const MAX_VALUES = 250_000;

/** Whether JSON text has more than `limit` values, as `countValues` counts them. */
export function hasMoreValues(json: Uint8Array, limit: number): boolean {
  // Each value needs a byte: most messages are too short to have so many.
  return json.length > limit && countValues(json, limit + 1) > limit;
}

/**
 * Estimates the number of values of JSON text from its commas and brackets; stops at `limit`. Exact
 * enough to bound the parser's work, and 50 times as fast as parsing.
 */
export function countValues(json: Uint8Array, limit: number): number {
  let count = 0;
  for (let at = 0; at < json.length && count < limit; at++) {
    const byte = json[at];
    if (byte === COMMA || byte === OPEN_BRACKET || byte === OPEN_BRACE) count++;
    else if (byte === QUOTE) at = findQuote(json, at + 1);
  }
  return count;
}

/** The end of the string that began before `from`. */
function findQuote(json: Uint8Array, from: number): number {
  let at = from;
  while (at < json.length && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}

/** Longest JSON text of a schema, bytes. */
const MAX_INPUT_SCHEMA_BYTES = 65_536;
/** Deepest nesting of a schema's objects and arrays. */
const MAX_INPUT_SCHEMA_DEPTH = 64;

/** Says why the text is not the schema of an input; undefined if it is one. */
export function findSchemaFault(text: string): string | undefined {
  const bytes = text.length > MAX_INPUT_SCHEMA_BYTES ? text.length : Buffer.byteLength(text);
  if (bytes > MAX_INPUT_SCHEMA_BYTES) {
    return `has ${bytes} bytes; at most ${MAX_INPUT_SCHEMA_BYTES} are allowed`;
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return 'is not JSON';
  }
  if (!isNested(value) || Array.isArray(value)) return 'must be a JSON object';
  if (isDeeper(value, MAX_INPUT_SCHEMA_DEPTH)) {
    return `is nested deeper than ${MAX_INPUT_SCHEMA_DEPTH} levels`;
  }
  return undefined;
}

/** Level by level: recursion could exhaust the stack before the bound is found. */
function isDeeper(root: object, maxDepth: number): boolean {
  let level: object[] = [root];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth === maxDepth) return true;
    level = level.flatMap((each) => Object.values(each).filter(isNested));
  }
  return false;
}

function isNested(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
