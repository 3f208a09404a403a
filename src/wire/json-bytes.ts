// The bytes of JSON's punctuation, for code that scans or writes JSON without parsing it, and a look through the text of a
// JSON string several bytes at a time.

export const QUOTE = 0x22;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_BRACKET = 0x5d;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;
export const LETTER_U = 0x75;

/** The bytes of a JSON text as words of 4 bytes. */
export interface Words {
  view: Int32Array;
  /** Position of the first word in the text: words begin at multiples of 4 of the memory. */
  start: number;
}

/** Shorter texts are not worth a view. */
const WORTH_BYTES = 1_024;
const NO_WORDS: Words = { view: new Int32Array(0), start: -1 };

export function viewWords({ buffer, byteOffset, length }: Uint8Array): Words {
  if (length < WORTH_BYTES) return NO_WORDS;
  const start = -byteOffset & 3;
  return { view: new Int32Array(buffer, byteOffset + start, (length - start) >> 2), start };
}

/** Skips ordinary bytes of a text, eight at a time. `from` must be the start of a word. */
export function skipPlain({ start, view }: Words, from: number, limit: number): number {
  // Never reads behind the end: V8 slows down a function that does.
  const last = Math.min(Math.floor((limit - start) / 4), view.length) - 2;
  let at = (from - start) >> 2;
  while (at <= last && ((findSpecial(view, at) | findSpecial(view, at + 1)) & HIGH_BITS) === 0)
    at += 2;
  return start + (at << 2);
}

const HIGH_BITS = 0x80808080;

/** Returns a high bit if a byte of the word ends a text, begins an escape, or may not be in a text. */
function findSpecial(view: Int32Array, at: number): number {
  const word = view[at] ?? 0;
  const quote = word ^ 0x22222222;
  const backslash = word ^ 0x5c5c5c5c;
  const isBelowSpace = (word - 0x20202020) & ~word;
  return isBelowSpace | ((quote - 0x01010101) & ~quote) | ((backslash - 0x01010101) & ~backslash);
}
