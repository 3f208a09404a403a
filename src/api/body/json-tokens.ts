// Skips the tokens of JSON text. A position behind the end of `json` means an error.
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  LETTER_U,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipPlain,
  type Words,
} from '../../wire/json-bytes.ts';

const SPACE = 0x20;
const PLUS = 0x2b;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const LOWER_E = 0x65;
/** Setting this bit turns E into e. */
const LOWER = 0x20;

const WORDS = new Map(
  ['true', 'false', 'null'].map((word) => [word.charCodeAt(0), Buffer.from(word)]),
);

const HEX = markBytes('0123456789abcdefABCDEF');
const ESCAPED = markBytes('"\\/bfnrt');

function markBytes(chars: string): Uint8Array {
  const marks = new Uint8Array(256);
  for (const byte of Buffer.from(chars)) marks[byte] = 1;
  return marks;
}

export function closerOf(byte: number | undefined): number | undefined {
  if (byte === OPEN_BRACE) return CLOSE_BRACE;
  return byte === OPEN_BRACKET ? CLOSE_BRACKET : undefined;
}

/** Stops at `limit`. */
export function skipSpace(json: Uint8Array, from: number, limit: number): number {
  let at = from;
  for (let byte = json[at]; byte !== undefined && byte <= SPACE; byte = json[++at]) {
    if (at >= limit || (byte !== SPACE && byte !== 0x0a && byte !== 0x0d && byte !== 0x09)) break;
  }
  return at;
}

/** Skips the text of a string up to its closing quote, or to the first character at or after `limit`. */
export function skipText(json: Uint8Array, words: Words, from: number, limit: number): number {
  const { start } = words;
  let at = from;
  for (let byte = json[at]; byte !== undefined && at < limit; byte = json[at]) {
    if (byte === QUOTE) return at;
    if (byte < SPACE) return beyond(json);
    at = byte === BACKSLASH ? skipEscape(json, at) : at + 1;
    // Now and then only, because most strings are short.
    if ((at & 31) === start) at = skipPlain(words, at, limit);
  }
  return at;
}

function skipEscape(json: Uint8Array, from: number): number {
  const byte = json[from + 1] ?? 0;
  if (byte !== LETTER_U) return ESCAPED[byte] === 1 ? from + 2 : beyond(json);
  for (let at = from + 2; at < from + 6; at++) if (HEX[json[at] ?? 0] !== 1) return beyond(json);
  return from + 6;
}

/** Skips a number, `true`, `false` or `null`. */
export function skipScalar(json: Uint8Array, from: number): number {
  const byte = json[from] ?? 0;
  if (byte === MINUS || isDigit(byte)) return skipNumber(json, from);
  const word = WORDS.get(byte);
  if (!word) return beyond(json);
  for (let index = 1; index < word.length; index++)
    if (json[from + index] !== word[index]) return beyond(json);
  return from + word.length;
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

function beyond(json: Uint8Array): number {
  return json.length + 1;
}
