// Checks in slices whether bytes are JSON, and finds one member of a JSON object. Builds no values,
// which would take several times the memory of the bytes.

const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const LOWER_E = 0x65;
const LOWER_U = 0x75;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
/** Setting this bit turns E into e. */
const LOWER = 0x20;

const ESCAPED = new Set(Buffer.from('"\\/bfnrt'));
const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word));

/** Bytes between two pauses of a scan: a few ms of work for small values. */
const SLICE_BYTES = 131_072;

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
  const scanning = scan(json, bounds);
  for (;;) {
    const { done, value } = scanning.next();
    if (done) return value;
  }
}

/** Like isJson, with a pause after each slice. @throws JsonBoundError */
export function checkJson(json: Uint8Array, bounds: JsonBounds): Generator<void, boolean> {
  return scan(json, bounds);
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
    member(keyAt, valueAt) {
      if (!isKey(json, keyAt, wanted)) return;
      start = valueAt;
      end = -1;
    },
    memberEnd(at) {
      if (end < 0) end = at;
    },
    progress(at) {
      const valueBytes = start < 0 ? 0 : (end < 0 ? at : end) - start;
      if (at - valueBytes <= maxBesideBytes) return;
      throw new JsonBoundError(`the JSON beside ${name} is larger than ${maxBesideBytes} bytes`);
    },
  };
  let isWhole: boolean;
  try {
    isWhole = yield* scan(json, { maxDepth: maxDepth + 1 }, watch);
  } catch (error) {
    if (!(error instanceof JsonDepthError)) throw error;
    const place = start >= 0 && end < 0 ? name : 'body';
    throw new JsonDepthError(`${place}: must be nested at most ${maxDepth} levels deep`);
  }
  if (!isWhole) return undefined;
  return { value: start < 0 ? undefined : json.subarray(start, end) };
}

/** A key may be written with escapes: "\u0069nput" is `input`. */
function isKey(json: Buffer, from: number, name: Buffer): boolean {
  const quoted = json.subarray(from, skipString(json, from));
  if (!quoted.includes(BACKSLASH)) return quoted.subarray(1, -1).equals(name);
  return JSON.parse(quoted.toString('utf8')) === name.toString('utf8');
}

/** Receives the members of the outermost object during a scan. */
interface ScanWatch {
  member(keyAt: number, valueAt: number): void;
  /** The value ends before `at`. Also called for the elements of an outermost array. */
  memberEnd(at: number): void;
  /** Called periodically and at the end. */
  progress(at: number): void;
}

/** A position behind the end of `json` means an error. */
function* scan(
  json: Uint8Array,
  { maxDepth = Infinity, maxValues = Infinity }: JsonBounds,
  watch?: ScanWatch,
): Generator<void, boolean> {
  const nesting = new Nesting();
  let pauseAt = SLICE_BYTES;
  let values = 0;
  let at = skipSpace(json, 0);
  const toValue = () => {
    if (nesting.closer !== CLOSE_BRACE) return;
    const keyAt = at;
    at = skipKey(json, keyAt);
    if (nesting.depth === 1 && at <= json.length) watch?.member(keyAt, at);
  };
  const endValue = (end: number) => {
    if (nesting.depth === 1) watch?.memberEnd(end);
    at = skipSpace(json, end);
  };
  for (;;) {
    if (at >= pauseAt && at <= json.length) {
      watch?.progress(at);
      pauseAt = at + SLICE_BYTES;
      yield;
    }
    values += 1;
    if (values > maxValues) throw new JsonBoundError(`it has more than ${maxValues} values`);
    const closer = closerOf(json[at]);
    if (closer === undefined) {
      endValue(skipScalar(json, at));
    } else {
      nesting.open(closer);
      if (nesting.depth > maxDepth)
        throw new JsonDepthError(`body: must be nested at most ${maxDepth} levels deep`);
      at = skipSpace(json, at + 1);
      if (json[at] !== closer) {
        toValue();
        continue;
      }
    }
    while (nesting.depth > 0 && json[at] === nesting.closer) {
      nesting.close();
      endValue(at + 1);
    }
    if (nesting.depth === 0) {
      if (at !== json.length) return false;
      watch?.progress(at);
      return true;
    }
    if (json[at] !== COMMA) return false;
    at = skipSpace(json, at + 1);
    toValue();
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

function closerOf(byte: number | undefined): number | undefined {
  if (byte === OPEN_BRACE) return CLOSE_BRACE;
  return byte === OPEN_BRACKET ? CLOSE_BRACKET : undefined;
}

function skipSpace(json: Uint8Array, from: number): number {
  let at = from;
  for (let byte = json[at]; byte !== undefined && byte <= SPACE; byte = json[++at]) {
    if (byte !== SPACE && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
  }
  return at;
}

/** Skips a member's name up to its value. */
function skipKey(json: Uint8Array, from: number): number {
  if (json[from] !== QUOTE) return beyond(json);
  const at = skipSpace(json, skipString(json, from));
  return json[at] === COLON ? skipSpace(json, at + 1) : beyond(json);
}

function skipScalar(json: Uint8Array, from: number): number {
  const byte = json[from];
  if (byte === QUOTE) return skipString(json, from);
  if (byte === MINUS || isDigit(byte)) return skipNumber(json, from);
  const word = WORDS.find((each) => each.every((char, index) => json[from + index] === char));
  return word ? from + word.length : beyond(json);
}

function skipString(json: Uint8Array, from: number): number {
  let at = from + 1;
  for (let byte = json[at]; byte !== undefined && byte >= SPACE; byte = json[at]) {
    if (byte === QUOTE) return at + 1;
    at = byte === BACKSLASH ? skipEscape(json, at) : at + 1;
  }
  return beyond(json);
}

function skipEscape(json: Uint8Array, from: number): number {
  const byte = json[from + 1];
  if (byte !== LOWER_U) return byte !== undefined && ESCAPED.has(byte) ? from + 2 : beyond(json);
  for (let at = from + 2; at < from + 6; at++) if (!isHexDigit(json[at])) return beyond(json);
  return from + 6;
}

function skipNumber(json: Uint8Array, from: number): number {
  let at = json[from] === MINUS ? from + 1 : from;
  at = json[at] === ZERO ? at + 1 : skipDigits(json, at);
  if (json[at] === DOT) at = skipDigits(json, at + 1);
  if (((json[at] ?? 0) | LOWER) !== LOWER_E) return at;
  const isSigned = json[at + 1] === PLUS || json[at + 1] === MINUS;
  return skipDigits(json, at + (isSigned ? 2 : 1));
}

/** Requires at least one digit. */
function skipDigits(json: Uint8Array, from: number): number {
  let at = from;
  while (isDigit(json[at])) at++;
  return at > from ? at : beyond(json);
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}

function isHexDigit(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const lower = byte | LOWER;
  return isDigit(byte) || (lower >= 0x61 && lower <= 0x66);
}

function beyond(json: Uint8Array): number {
  return json.length + 1;
}
