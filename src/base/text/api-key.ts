// Cleans API keys as people paste them: with line ends, spaces or invisible characters around them. A key with
// another character inside cannot be sent in a header, so every request would fail. Also runs in browsers.

/** White space, zero-width characters and the byte order mark. */
const MARGIN = /^[\s\u200b-\u200f\u2060\ufeff]+|[\s\u200b-\u200f\u2060\ufeff]+$/g;
const FOREIGN = /[^\x21-\x7e]/u;

/** @throws TypeError that shows no key */
export function cleanKey(key: string): string {
  const clean = key.replaceAll(MARGIN, '');
  const foreign = FOREIGN.exec(clean);
  if (!foreign) return clean;
  const code = (foreign[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
  throw new TypeError(
    `character ${foreign.index + 1} of the key is U+${code}, which no key has; copy the key again`,
  );
}
