// Checks a command's positional arguments against their declarations.
import type { Positional } from './command.ts';
import { UsageError } from './options.ts';

/** @throws UsageError if an argument is missing or superfluous */
export function checkArguments(declared: readonly Positional[], given: readonly string[]): void {
  const missing = declared.slice(given.length).find(({ name }) => name.startsWith('<'));
  if (missing) throw new UsageError(`${missing.name} is missing; give the ${missing.help}`);
  const surplus = given[declared.length];
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
}
