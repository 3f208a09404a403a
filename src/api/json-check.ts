// Whether bytes are JSON, without making anything of them: what is large is nobody's business here,
// and its values would need several times its memory.

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
/** With this bit set, E is e. */
const LOWER = 0x20;

const ESCAPED = new Set(Buffer.from('"\\/bfnrt'));
const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word));

/** As JSON.parse takes it; that the bytes are UTF-8 is not looked at. Linear, however deep. */
export function isJson(json: Uint8Array): boolean {
  // Of what is wrong the place behind is beyond the end: nothing is found there, and it is not the end.
  const open: number[] = [];
  let at = skipSpace(json, 0);
  for (;;) {
    const closer = closerOf(json[at]);
    if (closer === undefined) {
      at = skipSpace(json, skipScalar(json, at));
    } else {
      at = skipSpace(json, at + 1);
      open.push(closer);
      if (json[at] !== closer) {
        if (closer === CLOSE_BRACE) at = skipKey(json, at);
        continue;
      }
    }
    while (open.length > 0 && json[at] === open.at(-1)) {
      open.pop();
      at = skipSpace(json, at + 1);
    }
    if (open.length === 0) return at === json.length;
    if (json[at] !== COMMA) return false;
    at = skipSpace(json, at + 1);
    if (open.at(-1) === CLOSE_BRACE) at = skipKey(json, at);
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

/** A member's name, and to its value. */
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

/** There has to be one. */
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
