// Runs commands in this process, as `millrace <noun> …` does.
import { expect, vi } from 'vitest';
import { type CommandGroup, chooseVerb, noVerb } from '../../../src/cli/command.ts';

/** @throws UsageError, CommandError */
export async function runVerb(group: CommandGroup, args: readonly string[]): Promise<number> {
  const { args: rest, command } = chooseVerb(group, args);
  if (!command) throw noVerb(group);
  return command.run(rest);
}

/** Returns what a command of a group prints. The command must exit with 0. */
export function printVerb(group: CommandGroup, args: readonly string[]): Promise<string> {
  return catchPrinted(() => runVerb(group, args));
}

/** Returns what `run` prints to stdout. It must return exit code 0. */
export async function catchPrinted(run: () => Promise<number>): Promise<string> {
  const write = vi.spyOn(process.stdout, 'write').mockImplementation((_text, ...rest) => {
    rest.find((each) => typeof each === 'function')?.();
    return true;
  });
  try {
    expect(await run()).toBe(0);
    return write.mock.calls.map(([text]) => String(text)).join('');
  } finally {
    write.mockRestore();
  }
}
