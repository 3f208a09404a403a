// Writes long texts of a JSON value, such as an image in base64. JSON.stringify looks at each character by itself, which
// takes several times as long as everything else here. Pure.
import { BACKSLASH, QUOTE } from './json-bytes.ts';
import { skipPlain, viewWords } from './json-words.ts';
import {
  bufferAlloc,
  bufferByteLength,
  bufferCut,
  bufferWrite,
  isArray,
  isUnicode,
  jsonStringify,
  objectKeys,
} from './primordials.ts';

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
  if (typeof value !== 'object' || value === null || isArray(value)) return undefined;
  const members: Record<string, unknown> = { ...value };
  const keys = objectKeys(members);
  if (keys.length > MOST_MEMBERS) return undefined;
  const pieces: string[] = [];
  let before = '{';
  let isFirst = true;
  for (let index = 0; index < keys.length; index += 1) {
    const key = keys[index] ?? '';
    const member = members[key];
    if (member === undefined) continue;
    before += `${isFirst ? '' : ','}${jsonStringify(key)}:`;
    isFirst = false;
    if (isLong(member)) {
      pieces[pieces.length] = `${before}"`;
      pieces[pieces.length] = member;
      before = '"';
    } else {
      const json: string | undefined = jsonStringify(member);
      // A getter that returns something else each time: only JSON.stringify knows what that means.
      if (json === undefined) return undefined;
      before += json;
    }
  }
  if (pieces.length === 0) return undefined;
  pieces[pieces.length] = `${before}}`;
  return pieces;
}

function writeTexts(pieces: readonly string[]): Buffer | undefined {
  let size = 0;
  for (let index = 0; index < pieces.length; index += 1)
    size += bufferByteLength(pieces[index] ?? '');
  const json = bufferAlloc(size);
  let at = 0;
  for (let index = 0; index < pieces.length; index += 1) {
    const piece = pieces[index] ?? '';
    const end = at + bufferWrite(json, piece, at);
    const isText = index % 2 === 1;
    if (isText && !(isUnicode(piece) && isUnescaped(bufferCut(json, at, end)))) return undefined;
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
