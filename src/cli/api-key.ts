// Reads API keys as people paste them: with line ends, spaces or invisible characters around them. A key with
// another character inside cannot be sent in a header, so every request would fail.
import { InvalidKeyError, type Option, UsageError } from './options.ts';

/** White space, zero-width characters and the byte order mark. */
const MARGIN = /^[\s\u200b-\u200f\u2060\ufeff]+|[\s\u200b-\u200f\u2060\ufeff]+$/g;
const FOREIGN = /[^\x21-\x7e]/u;

/** `source`: where the key was found. @throws InvalidKeyError that shows no key */
export function readKeyOf(source: string, key: string): string {
  try {
    return cleanKey(key);
  } catch (error) {
    throw error instanceof InvalidKeyError
      ? new InvalidKeyError(`${source}: ${error.message}`)
      : error;
  }
}

/** @throws InvalidKeyError that shows no key */
export function cleanKey(key: string): string {
  const clean = key.replaceAll(MARGIN, '');
  const foreign = FOREIGN.exec(clean);
  if (!foreign) return clean;
  const code = (foreign[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
  throw new InvalidKeyError(
    `character ${foreign.index + 1} of the key is U+${code}, which no key has; copy the key again`,
  );
}

/** The option has a key. */
export function keyOption<T>(option: Option<T>): Option<T | string> {
  const parse = (texts: readonly string[]) => {
    const key = cleanKey(texts.at(-1) ?? '');
    if (key !== '') return key;
    throw new UsageError('must not be empty');
  };
  return { ...option, parse };
}
