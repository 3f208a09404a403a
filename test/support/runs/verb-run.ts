// Runs one command of a group in this process, as `millrace <noun> …` does.
import type { CommandGroup } from '../../../src/cli/command.ts';
import { chooseVerb, noVerb } from '../../../src/cli/group.ts';

/** @throws UsageError, CommandError */
export async function runVerb(group: CommandGroup, args: readonly string[]): Promise<number> {
  const { args: rest, command } = chooseVerb(group, args);
  if (!command) throw noVerb(group);
  return command.run(rest);
}
