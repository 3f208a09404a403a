// Defines which values are JSON and converts a value to JSON text without losing anything silently.
// chunk.ts owns sizes and splitting.

import { BACKSLASH, QUOTE, skipPlain, viewWords } from './json-bytes.ts';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A value that JSON cannot hold. `path` leads to it from the root: `output.items[3].score`. */
export class NotJsonError extends Error {
  override readonly name = 'NotJsonError';
  readonly path: string;

  constructor(path: string, found: string) {
    super(`${path} is not JSON: ${found}`);
    this.path = path;
  }
}

/** Nesting depth of the fast path; deeper values are rare and may be cycles. */
const QUICK_DEPTH = 64;

/** Deepest accepted nesting: the same in every thread, however full its stack is. */
const MAX_DEPTH = 1_000;

const MAX_PATH_LENGTH = 300;

/**
 * Returns the JSON text of a value: compact, members in their own order, as JSON.stringify writes
 * it.
 *
 * `Uint8Array`, `Buffer` and `ArrayBuffer` become base64 strings. `toJSON` is honoured. Members
 * that are undefined are omitted; symbol-keyed members are ignored.
 *
 * Throws NotJsonError, with a path that begins with `root`, for everything that JSON.stringify
 * would drop or turn into `null` or `{}`: undefined (as the root or in an array), functions,
 * symbols, BigInts, NaN, infinities, invalid Dates, Map, Set, Promise, Error, RegExp, the other
 * typed arrays (the author must say whether their numbers or their bytes are meant) and instances
 * without enumerable members; also for cycles and for nesting deeper than 1,000. Errors thrown by a
 * `toJSON` or a getter pass through.
 */
export function stringifyJson(value: unknown, root: string): string {
  const plain = toPlainJson(value, root);
  return refuseTooLong(root, () => JSON.stringify(plain));
}

/** Returns the text that `stringifyJson` returns as UTF-8. Throws as `stringifyJson` does. */
export function encodeJson(value: unknown, root: string): Buffer {
  const plain = toPlainJson(value, root);
  return refuseTooLong(root, () => encodeLongTexts(plain) ?? Buffer.from(JSON.stringify(plain)));
}

function toPlainJson(value: unknown, root: string): unknown {
  return isPlainJson(value, 0) ? value : convertRoot(value, root);
}

function refuseTooLong<T>(root: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new NotJsonError(root, 'its JSON text is longer than a string can be');
  }
}

/**
 * True if native JSON.stringify is exact for the value. If false, the value needs the thorough
 * conversion, which either fixes it or names the problem.
 */
function isPlainJson(value: unknown, depth: number): boolean {
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return true;
  if (typeof value === 'number') return Number.isFinite(value);
  if (!isObject(value) || depth > QUICK_DEPTH || 'toJSON' in value) return false;
  if (Array.isArray(value)) {
    for (const element of value) if (!isPlainJson(element, depth + 1)) return false;
    return true;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  for (const key in value) {
    const member = value[key];
    if (member !== undefined && !isPlainJson(member, depth + 1)) return false;
  }
  return true;
}

/**
 * True for `{}` and results of JSON.parse, of this realm or another; false for arrays and
 * instances.
 */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (!isObject(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  // Of all common prototypes, only Object.prototype has no prototype itself.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

interface Walk {
  readonly root: string;
  readonly keys: (string | number)[];
  readonly ancestors: Set<object>;
}

function convertRoot(value: unknown, root: string): Json {
  const walk: Walk = { root, keys: [], ancestors: new Set() };
  return convert(value, walk) ?? refuseUndefined(walk);
}

/** Returns a copy that native JSON.stringify writes exactly; undefined for undefined. */
function convert(original: unknown, walk: Walk): Json | undefined {
  const value = replace(original, walk);
  switch (typeof value) {
    case 'undefined':
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      return Number.isFinite(value) ? value : refuse(walk, String(value));
    case 'bigint':
      return refuse(walk, 'a BigInt (send it as a string)');
    case 'function':
    case 'symbol':
      return refuse(walk, `a ${typeof value}`);
    case 'object':
      return isObject(value) ? convertNested(value, walk) : null;
  }
}

function convertNested(value: Record<string, unknown>, walk: Walk): Json {
  if (walk.ancestors.has(value)) return refuse(walk, 'a cycle, it contains itself');
  if (walk.keys.length >= MAX_DEPTH) return refuse(walk, `nested deeper than ${MAX_DEPTH} levels`);
  walk.ancestors.add(value);
  const copy = Array.isArray(value) ? convertArray(value, walk) : convertObject(value, walk);
  walk.ancestors.delete(value);
  return copy;
}

function convertArray(elements: readonly unknown[], walk: Walk): Json[] {
  const copy: Json[] = [];
  for (const [index, original] of elements.entries()) {
    walk.keys.push(index);
    const element = convert(original, walk);
    copy.push(element === undefined ? refuseUndefined(walk) : element);
    walk.keys.pop();
  }
  return copy;
}

function convertObject(value: Record<string, unknown>, walk: Walk): Json {
  const keys = Object.keys(value);
  refuseOpaque(value, keys.length, walk);
  // Without a prototype, `__proto__` is a member like any other.
  const copy: { [key: string]: Json } = Object.create(null);
  for (const key of keys) {
    walk.keys.push(key);
    const member = convert(value[key], walk);
    if (member !== undefined) copy[key] = member;
    walk.keys.pop();
  }
  return copy;
}

/**
 * Returns the JSON replacement of the value: base64 for bytes, the result of toJSON, the content of
 * a box.
 */
function replace(value: unknown, walk: Walk): unknown {
  const bytes = encodeBytes(value, walk);
  if (bytes !== undefined) return bytes;
  if (value instanceof Date && Number.isNaN(value.getTime()))
    return refuse(walk, 'an invalid Date');
  if (!hasToJson(value)) return unbox(value);
  const replaced = value.toJSON(String(walk.keys.at(-1) ?? ''));
  return encodeBytes(replaced, walk) ?? unbox(replaced);
}

function encodeBytes(value: unknown, walk: Walk): string | undefined {
  if (value instanceof ArrayBuffer) return Buffer.from(value).toString('base64');
  if (!ArrayBuffer.isView(value)) return undefined;
  const kind = readTag(value);
  if (kind !== 'Uint8Array') {
    return refuse(walk, `${kind} (send Array.from(it), or its bytes as a Uint8Array)`);
  }
  return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64');
}

/** `Map` of `[object Map]`. */
function readTag(value: object): string {
  return Object.prototype.toString.call(value).slice('[object '.length, -1);
}

/** JSON.stringify looks for toJSON on objects, functions and BigInts, so this does too. */
function hasToJson(value: unknown): value is { toJSON(key: string): unknown } {
  const asked = isObject(value) || typeof value === 'function' || typeof value === 'bigint';
  return asked && 'toJSON' in Object(value) && typeof Object(value).toJSON === 'function';
}

function unbox(value: unknown): unknown {
  const isBox = value instanceof Number || value instanceof String || value instanceof Boolean;
  return isBox ? value.valueOf() : value;
}

const ADVICE: Readonly<Record<string, string>> = {
  Map: 'send Object.fromEntries(map)',
  Set: 'send Array.from(set)',
  Promise: 'await it',
  Error: 'send its message',
  RegExp: 'send its source',
};

/** Rejects objects whose content JSON.stringify would not see. */
function refuseOpaque(value: object, memberCount: number, walk: Walk): void {
  const tag = readTag(value);
  const advice = Object.hasOwn(ADVICE, tag) ? ADVICE[tag] : undefined;
  if (advice !== undefined) refuse(walk, `${tag} (${advice})`);
  if (memberCount > 0 || isPlainObject(value)) return;
  const name: unknown = Object.getPrototypeOf(value).constructor?.name;
  const kind = typeof name === 'string' && name !== '' ? name : tag;
  refuse(walk, `${kind} without enumerable members`);
}

function refuseUndefined(walk: Walk): never {
  return refuse(walk, 'undefined');
}

function refuse(walk: Walk, found: string): never {
  throw new NotJsonError(formatPath(walk), found);
}

function formatPath({ root, keys }: Walk): string {
  const steps = keys.map((key) => {
    if (typeof key === 'number') return `[${key}]`;
    return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
  });
  const path = root + steps.join('');
  if (path.length <= MAX_PATH_LENGTH) return path;
  return `${path.slice(0, MAX_PATH_LENGTH / 2)}…${path.slice(-MAX_PATH_LENGTH / 2)}`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

// Long texts, such as an image in base64: JSON.stringify looks at each character by itself, which takes several times as
// long as everything else here.

/** Shorter texts are written by JSON.stringify. */
const LONG_CHARS = 65_536;
/** Members of an object that are looked at. */
const MOST_MEMBERS = 64;
const SPACE = 0x20;

/**
 * Returns what JSON.stringify writes for the value, as UTF-8. Undefined if the value is neither a long text nor an object
 * with a few members of which one is a long text, or if a long text has characters that JSON escapes.
 */
export function encodeLongTexts(value: unknown): Buffer | undefined {
  if (typeof value === 'string') return isLong(value) ? writeTexts(['"', value, '"']) : undefined;
  const pieces = cutMembers(value);
  return pieces && writeTexts(pieces);
}

function isLong(value: unknown): value is string {
  return typeof value === 'string' && value.length >= LONG_CHARS;
}

/** The long texts are pieces of their own, at odd places. */
function cutMembers(value: unknown): string[] | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  if (Object.keys(value).length > MOST_MEMBERS) return undefined;
  const pieces: string[] = [];
  let before = '{';
  let isFirst = true;
  for (const [key, member] of Object.entries(value)) {
    if (member === undefined) continue;
    before += `${isFirst ? '' : ','}${JSON.stringify(key)}:`;
    isFirst = false;
    if (isLong(member)) {
      pieces.push(`${before}"`, member);
      before = '"';
    } else {
      const json: string | undefined = JSON.stringify(member);
      // A getter that returns something else each time: only JSON.stringify knows what that means.
      if (json === undefined) return undefined;
      before += json;
    }
  }
  if (pieces.length === 0) return undefined;
  pieces.push(`${before}}`);
  return pieces;
}

function writeTexts(pieces: readonly string[]): Buffer | undefined {
  const size = pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0);
  const json = Buffer.allocUnsafeSlow(size);
  let at = 0;
  for (const [index, piece] of pieces.entries()) {
    const end = at + json.write(piece, at);
    const isText = index % 2 === 1;
    if (isText && !(piece.isWellFormed() && isUnescaped(json.subarray(at, end)))) return undefined;
    at = end;
  }
  return json;
}

/** Whether the text of a JSON string needs no escapes. */
function isUnescaped(text: Buffer): boolean {
  const words = viewWords(text);
  for (let at = 0; at < text.length; ) {
    // Words begin at a multiple of four of the memory.
    if ((at & 3) === words.start) {
      const next = skipPlain(words, at, text.length);
      if (next > at) {
        at = next;
        continue;
      }
    }
    const byte = text[at] ?? 0;
    if (byte === QUOTE || byte === BACKSLASH || byte < SPACE) return false;
    at += 1;
  }
  return true;
}
