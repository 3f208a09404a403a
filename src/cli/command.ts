// What a command of the `millrace` program is, and the exit codes that all of them share.
import type { OptionTable } from './options.ts';

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  gaveUp: 3,
  unfit: 4,
  timedOut: 124,
  interrupted: 130,
} as const;

/** What was asked for did not come about, for a reason that needs no stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly exitCode: number = EXIT.failed;
}

/** This machine cannot run the handler; another one may. */
export class UnfitError extends CommandError {
  override readonly exitCode: number = EXIT.unfit;
}

export interface Positional {
  /** `<handler>`; `[job]` where it may be left out; `<files…>` where there may be several. */
  name: string;
  help: string;
}

export interface ExitCode {
  code: number;
  meaning: string;
}

export interface CommandHelp {
  /** The first words: `millrace serve`. */
  name: string;
  /** One line for the list of commands. */
  summary: string;
  /** Paragraphs, without line breaks. */
  description: readonly string[];
  positionals: readonly Positional[];
  options: OptionTable;
  examples: readonly string[];
  exitCodes: readonly ExitCode[];
}

export interface Command extends CommandHelp {
  /** Resolves with the exit code. @throws UsageError, CommandError */
  run(args: readonly string[]): Promise<number>;
}
