// Reads API keys from options, variables and files: a key that cannot be one has an exit code of its own.

import { cleanKey as clean } from '../base/api-key.ts';
import { InvalidKeyError, type Option, UsageError } from './options.ts';

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
  try {
    return clean(key);
  } catch (error) {
    throw new InvalidKeyError(error instanceof Error ? error.message : String(error));
  }
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
