// Checks the names of objects.
import { NonRetryableError } from '../handler/retry-errors.ts';

const MAX_KEY_BYTES = 1_024;

/** Returns the key. @throws NonRetryableError: the same input has the same key in each attempt */
export function checkKey(key: string): string {
  const refuse = (problem: string) =>
    new NonRetryableError(`key ${JSON.stringify(key.slice(0, 100))}: ${problem}`);
  const bytes = Buffer.byteLength(key);
  if (bytes < 1 || bytes > MAX_KEY_BYTES) {
    throw refuse(`has ${bytes} bytes; a key has 1 to ${MAX_KEY_BYTES}`);
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  if (/[\u0000-\u001f\u007f]/.test(key)) throw refuse('has a control character');
  // Proxies resolve such segments, and the request would be for another object.
  const isRelative = key
    .split('/')
    .some((segment) => segment === '.' || segment === '..' || segment === '');
  if (isRelative) throw refuse('has an empty, . or .. segment');
  return key;
}
