// Checks in slices whether bytes are JSON, and finds one member of a JSON object. Builds no values,
// which would take several times the memory of the bytes.
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACKET,
  QUOTE,
  viewWords,
  type Words,
} from '../../wire/json-bytes.ts';
import { closerOf, skipScalar, skipSpace, skipText } from './json-tokens.ts';

/**
 * Bytes between two pauses of a scan, at most 1 ms of work. A request takes several iterations of the
 * event loop, and each may run a slice.
 */
export const SLICE_BYTES = 65_536;

/** A JSON document is too large, too deep or has too many values. */
export class JsonBoundError extends Error {
  override readonly name = 'JsonBoundError';
}

/** A JSON document is nested too deeply. */
export class JsonDepthError extends JsonBoundError {}

export interface JsonBounds {
  /** Most levels of arrays and objects. Default: no limit. */
  maxDepth?: number;
  /** Most scalars, arrays and objects, each counted once. Default: no limit. */
  maxValues?: number;
}

/**
 * Accepts what JSON.parse accepts, in linear time. Does not check the encoding. @throws
 * JsonBoundError
 */
export function isJson(json: Uint8Array, bounds: JsonBounds = {}): boolean {
  return new JsonScan(json, bounds).run(Infinity) ?? false;
}

export interface MemberSearch {
  name: string;
  /** Most bytes of the document besides the member's value. */
  maxBesideBytes: number;
  /** Most levels of arrays and objects in the value of any member. */
  maxDepth: number;
}

/** `value` is undefined if the document is not an object or has no such member. */
export interface MemberFinding {
  value: Buffer | undefined;
}

/**
 * Returns the bytes of a top-level member's value, without surrounding white space. If several
 * members have the name, the last one counts, as with JSON.parse. Returns undefined if the document
 * is not JSON. Pauses after each slice. @throws JsonBoundError soon after the rest has exceeded its
 * bound; JsonDepthError that names the place
 */
export function* findMember(
  json: Buffer,
  { maxBesideBytes, maxDepth, name }: MemberSearch,
): Generator<void, MemberFinding | undefined> {
  const wanted = Buffer.from(name);
  let start = -1;
  let end = -1;
  const watch: ScanWatch = {
    levels: 1,
    member(keyAt, keyEnd, valueAt) {
      if (!isKey(json, { at: keyAt, end: keyEnd }, wanted)) return;
      start = valueAt;
      end = -1;
    },
    valueEnd(at) {
      if (end < 0) end = at;
    },
    progress(at) {
      const valueBytes = start < 0 ? 0 : (end < 0 ? at : end) - start;
      if (at - valueBytes <= maxBesideBytes) return;
      throw new JsonBoundError(`the fields except ${name} have more than ${maxBesideBytes} bytes`);
    },
  };
  let isWhole: boolean;
  try {
    isWhole = yield* checkJson(json, { maxDepth: maxDepth + 1 }, watch);
  } catch (error) {
    if (!(error instanceof JsonDepthError)) throw error;
    const place = start >= 0 && end < 0 ? name : 'body';
    throw new JsonDepthError(`${place}: must be nested at most ${maxDepth} levels deep`);
  }
  if (!isWhole) return undefined;
  return { value: start < 0 ? undefined : json.subarray(start, end) };
}

/**
 * Returns the bytes of the only element of a JSON array, or undefined if the document is anything else. Pauses
 * after each slice.
 */
export function* findOnlyElement(json: Buffer): Generator<void, Buffer | undefined> {
  const found = yield* scanArray(json);
  return found?.count === 1 ? json.subarray(found.start + 1, found.firstEnd) : undefined;
}

/** Returns the length of a JSON array, or undefined if the document is anything else. Pauses after each slice. */
export function* countElements(json: Buffer): Generator<void, number | undefined> {
  return (yield* scanArray(json))?.count;
}

function* scanArray(json: Buffer) {
  const start = skipSpace(json, 0, json.length);
  if (json[start] !== OPEN_BRACKET) return undefined;
  const found = { start, count: 0, firstEnd: 0 };
  const watch: ScanWatch = {
    levels: 1,
    member() {},
    valueEnd(at) {
      if (found.count === 0) found.firstEnd = at;
      found.count += 1;
    },
    progress() {},
  };
  return (yield* checkJson(json, {}, watch)) ? found : undefined;
}

/** Whether the bytes at `at` are these. For a few bytes this is faster than a view and `equals`. */
export function hasBytes(json: Uint8Array, at: number, bytes: Uint8Array): boolean {
  for (let index = 0; index < bytes.length; index++) {
    if (json[at + index] !== bytes[index]) return false;
  }
  return true;
}

/** Whether the quoted key is the name. A key may be written with escapes: "\u0069nput" is `input`. */
export function isKey(
  json: Buffer,
  { at, end }: { at: number; end: number },
  name: Buffer,
): boolean {
  if (end - at === name.length + 2 && hasBytes(json, at + 1, name)) return true;
  // No escape has more than 6 bytes, so a longer key is another one.
  if (end - at > 6 * name.length + 2) return false;
  const quoted = json.subarray(at, end);
  if (!quoted.includes(BACKSLASH)) return quoted.subarray(1, -1).equals(name);
  return JSON.parse(quoted.toString('utf8')) === name.toString('utf8');
}

/** Receives the members and elements of the outermost levels during a scan. `depth` of the outermost one: 1. */
export interface ScanWatch {
  /** Levels whose members and elements are reported. */
  readonly levels: number;
  /** A member of an object; its key, with its quotes, is at `keyAt` to `keyEnd`. */
  member(keyAt: number, keyEnd: number, valueAt: number, depth: number): void;
  /** An element of an array. Default: ignored. */
  element?(valueAt: number, depth: number): void;
  /** The value of the last member or element at this depth ends before `at`. */
  valueEnd(at: number, depth: number): void;
  /** Called periodically and at the end. */
  progress(at: number): void;
}

/** Like isJson, with a pause after each slice. @throws JsonBoundError */
export function* checkJson(
  json: Uint8Array,
  bounds: JsonBounds,
  watch?: ScanWatch,
): Generator<void, boolean> {
  const scanning = new JsonScan(json, bounds, watch);
  for (;;) {
    const isWhole = scanning.run(scanning.at + SLICE_BYTES);
    if (isWhole !== false) watch?.progress(scanning.at);
    if (isWhole !== undefined) return isWhole;
    yield;
  }
}

/** What comes next. */
const VALUE = 0;
const KEY = 1;
/** The rest of a string. */
const TEXT = 2;
const AFTER_KEY = 3;
/** The first element or member, or the closing bracket. */
const AFTER_OPEN = 4;
const AFTER_VALUE = 5;

/** A scan that can pause at any place, except within a number, a word or an escape. */
class JsonScan {
  at = 0;
  readonly #json: Uint8Array;
  readonly #words: Words;
  readonly #maxDepth: number;
  readonly #maxValues: number;
  readonly #watch: ScanWatch | undefined;
  readonly #levels: number;
  readonly #nesting = new Nesting();
  #next = VALUE;
  #isKey = false;
  #keyAt = -1;
  #keyEnd = -1;
  #values = 0;

  constructor(json: Uint8Array, bounds: JsonBounds, watch?: ScanWatch) {
    this.#json = json;
    this.#words = viewWords(json);
    this.#maxDepth = bounds.maxDepth ?? Infinity;
    this.#maxValues = bounds.maxValues ?? Infinity;
    this.#watch = watch;
    this.#levels = watch?.levels ?? 0;
  }

  /**
   * Scans up to about `limit`. Returns undefined for a pause, otherwise whether the bytes are JSON.
   * @throws JsonBoundError
   */
  run(limit: number): boolean | undefined {
    while (this.at < limit) {
      if (this.#next === TEXT) {
        this.at = skipText(this.#json, this.#words, this.at, limit);
        if (this.at >= limit && this.at <= this.#json.length) return undefined;
        if (!this.#endText()) return false;
        continue;
      }
      this.at = skipSpace(this.#json, this.at, limit);
      if (this.at >= limit) return undefined;
      if (this.#next === AFTER_VALUE && this.#nesting.depth === 0)
        return this.at === this.#json.length;
      if (!this.#step()) return false;
    }
    return undefined;
  }

  /** Returns false for an error. */
  #step(): boolean {
    const byte = this.#json[this.at];
    switch (this.#next) {
      case VALUE:
        return this.#startValue(byte);
      case KEY:
        this.#keyAt = this.at;
        return byte === QUOTE && this.#startText(true);
      case AFTER_KEY:
        return byte === COLON && this.#move(VALUE);
      case AFTER_OPEN:
        if (byte === this.#nesting.closer) return this.#close();
        this.#next = this.#nesting.closer === CLOSE_BRACE ? KEY : VALUE;
        return true;
      default:
        if (byte === this.#nesting.closer) return this.#close();
        return byte === COMMA && this.#move(this.#nesting.closer === CLOSE_BRACE ? KEY : VALUE);
    }
  }

  #move(next: number): true {
    this.at += 1;
    this.#next = next;
    return true;
  }

  #startValue(byte: number | undefined): boolean {
    this.#values += 1;
    if (this.#values > this.#maxValues)
      throw new JsonBoundError(`it has more than ${this.#maxValues} values`);
    const { depth } = this.#nesting;
    if (depth <= this.#levels && depth > 0) this.#reportValue(depth);
    if (byte === QUOTE) return this.#startText(false);
    const closer = closerOf(byte);
    if (closer === undefined) {
      this.at = skipScalar(this.#json, this.at);
      return this.at <= this.#json.length && this.#endValue();
    }
    this.#nesting.open(closer);
    if (depth >= this.#maxDepth)
      throw new JsonDepthError(`body: must be nested at most ${this.#maxDepth} levels deep`);
    return this.#move(AFTER_OPEN);
  }

  #startText(isKey: boolean): true {
    this.#isKey = isKey;
    return this.#move(TEXT);
  }

  #reportValue(depth: number): void {
    if (this.#nesting.closer !== CLOSE_BRACE) this.#watch?.element?.(this.at, depth);
    else this.#watch?.member(this.#keyAt, this.#keyEnd, this.at, depth);
  }

  #endText(): boolean {
    if (this.#json[this.at] !== QUOTE) return false;
    this.at += 1;
    if (!this.#isKey) return this.#endValue();
    this.#keyEnd = this.at;
    this.#next = AFTER_KEY;
    // Most keys have their colon right behind them.
    return this.#json[this.at] !== COLON || this.#move(VALUE);
  }

  #close(): true {
    this.#nesting.close();
    this.at += 1;
    return this.#endValue();
  }

  #endValue(): true {
    const { depth } = this.#nesting;
    if (depth <= this.#levels && depth > 0) this.#watch?.valueEnd(this.at, depth);
    this.#next = AFTER_VALUE;
    return true;
  }
}

/** Open arrays and objects, one bit per level: 20 MB of brackets take 2.5 MB. */
class Nesting {
  depth = 0;
  /** Closing bracket of the innermost level; 0 if none is open. */
  closer = 0;
  #bits = new Uint8Array(8);

  open(closer: number): void {
    const byte = this.depth >> 3;
    if (byte >= this.#bits.length) this.#grow();
    const mask = 1 << (this.depth & 7);
    const bits = this.#bits[byte] ?? 0;
    this.#bits[byte] = closer === CLOSE_BRACE ? bits | mask : bits & ~mask;
    this.depth += 1;
    this.closer = closer;
  }

  close(): void {
    this.depth -= 1;
    const level = this.depth - 1;
    const isBrace = ((this.#bits[level >> 3] ?? 0) >> (level & 7)) & 1;
    this.closer = level < 0 ? 0 : isBrace ? CLOSE_BRACE : CLOSE_BRACKET;
  }

  #grow(): void {
    const grown = new Uint8Array(this.#bits.length * 2);
    grown.set(this.#bits);
    this.#bits = grown;
  }
}
