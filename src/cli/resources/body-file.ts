// Composes a request body from a JSON file and from options, which override the file.
import { readFileSync } from 'node:fs';
import { text, UsageError } from '../options.ts';

export const bodyFileOption = text({
  placeholder: 'FILE',
  help: 'JSON file of the request body; - reads standard input; other options override it',
});

const STANDARD_INPUT = 0;

/** Omits undefined members. @throws UsageError */
export function composeBody(
  file: string | undefined,
  flags: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const given = Object.entries(flags).filter(([, value]) => value !== undefined);
  const read = file === undefined ? {} : readObjectFile('--file', file);
  const body = { ...read, ...Object.fromEntries(given) };
  if (Object.keys(body).length > 0) return body;
  throw new UsageError('the request body is empty; give options or --file');
}

/** Reads a JSON object from a file, or from standard input for `-`. @throws UsageError naming the flag */
export function readObjectFile(flag: string, file: string): object {
  return parseObject(`${flag}: ${file}`, readText(flag, file));
}

/** @throws UsageError naming the source */
export function parseObject(source: string, json: string): object {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new UsageError(`${source} is not JSON: ${describe(error)}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError(`${source} must be a JSON object`);
}

function readText(flag: string, file: string): string {
  try {
    const text = readFileSync(file === '-' ? STANDARD_INPUT : file, 'utf8');
    // JSON has no byte order mark, but some editors write one.
    return text.replace(/^\ufeff/, '');
  } catch (error) {
    throw new UsageError(`${flag}: ${file} cannot be read: ${describe(error)}`);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
