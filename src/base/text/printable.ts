// Makes untrusted text safe for terminals and logs: escape sequences could move the cursor, or
// forge or hide lines.

/**
 * Matches C0 and C1 controls, DEL, line and paragraph separators, bidirectional marks and
 * overrides, and lone surrogates. It does not match tab, line feed, or a carriage return that ends
 * a line.
 */
const UNPRINTABLE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for.
  /[\0-\x08\v\f\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)|\p{Surrogate}/gu;

/** Writes each such character as `\u001b`. JSON stays JSON with the same value. */
export function escapeControls(text: string): string {
  return text.replace(UNPRINTABLE, escapeCharacter);
}

/** Like `escapeControls`, for a place of one line: a line break becomes `\n`. */
export function escapeLine(text: string): string {
  return escapeControls(text.replaceAll(/\r?\n/g, '\\n'));
}

/** Returns the text, or its first `maxChars` characters and the number of omitted ones. */
export function limitText(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${text.slice(0, maxChars)}… (${text.length - maxChars} more characters)`;
}

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
