// Reads certificates and keys from files that options name.
import { readFileSync } from 'node:fs';
import { UsageError } from './options.ts';

/** @throws UsageError naming the option */
export function readPem(option: string, path: string): string {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${option}: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (text.includes('-----BEGIN ')) return text;
  throw new UsageError(`${option}: ${path} is not a PEM file`);
}
