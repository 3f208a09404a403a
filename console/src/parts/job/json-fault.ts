// Finds where a text stops being JSON. Browsers say it in texts of their own, and not for every fault.

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
/** Characters of a string up to its end, an escape or a character that must be escaped. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that JSON forbids.
const PLAIN = /[^"\\\u0000-\u001f]*/y;

type Expected = 'value' | 'first value' | 'first name' | 'name' | 'colon' | 'comma' | 'end';

/** The offset of the first wrong character, or the length of a text that ends too early; undefined for JSON. */
export function findJsonFault(text: string): number | undefined {
  const open: ('{' | '[')[] = [];
  let expected: Expected = 'value';
  for (let at = skip(SPACE, text, 0); ; at = skip(SPACE, text, at)) {
    const character = text[at];
    if (character === undefined) return expected === 'end' ? undefined : text.length;
    const inside = open.at(-1);
    const mayClose = expected === 'comma' || expected.startsWith('first');
    if (mayClose && inside && character === (inside === '{' ? '}' : ']')) {
      open.pop();
      expected = open.length > 0 ? 'comma' : 'end';
      at += 1;
    } else if (expected === 'comma' && character === ',') {
      expected = inside === '{' ? 'name' : 'value';
      at += 1;
    } else if (expected === 'colon' && character === ':') {
      expected = 'value';
      at += 1;
    } else if (expected === 'name' || expected === 'first name') {
      const end = skipString(text, at);
      if (end.isFault) return end.at;
      at = end.at;
      expected = 'colon';
    } else if (expected !== 'value' && expected !== 'first value') {
      return at;
    } else if (character === '{' || character === '[') {
      open.push(character);
      expected = character === '{' ? 'first name' : 'first value';
      at += 1;
    } else {
      const end = skipScalar(text, at);
      if (end.isFault) return end.at;
      at = end.at;
      expected = open.length > 0 ? 'comma' : 'end';
    }
  }
}

interface Skipped {
  /** Behind the value, or where it is wrong. */
  at: number;
  isFault: boolean;
}

function skipScalar(text: string, at: number): Skipped {
  if (text[at] === '"') return skipString(text, at);
  const end = Math.max(skip(NUMBER, text, at), skip(WORD, text, at));
  return { at: end, isFault: end === at };
}

function skipString(text: string, start: number): Skipped {
  if (text[start] !== '"') return { at: start, isFault: true };
  let at = skip(PLAIN, text, start + 1);
  while (text[at] === '\\') {
    const end = skip(ESCAPE, text, at);
    if (end === at) return { at, isFault: true };
    at = skip(PLAIN, text, end);
  }
  return text[at] === '"' ? { at: at + 1, isFault: false } : { at, isFault: true };
}

/** The offset behind what the sticky expression matches there. */
function skip(expression: RegExp, text: string, at: number): number {
  expression.lastIndex = at;
  return at + (expression.exec(text)?.[0].length ?? 0);
}
