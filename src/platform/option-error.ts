// The error of a platform that cannot be opened with its options, and access to files that
// options name.
import { readFileSync } from 'node:fs';
import { createFile, hasCode } from './files/durable-files.ts';

const OWNER_ONLY = 0o600;

/** `invalid`: the value is never valid. `unusable`: this machine cannot use it at the moment. */
type OptionFault = 'invalid' | 'unusable';

/**
 * Names the option by its property, such as `grpc.port`, so that each caller can use its own words
 * for it.
 */
export class PlatformOptionError extends Error {
  override readonly name = 'PlatformOptionError';
  readonly option: string;
  readonly problem: string;
  readonly fault: OptionFault;

  constructor(fault: OptionFault, option: string, problem: string) {
    super(`${option}: ${problem}`);
    this.fault = fault;
    this.option = option;
    this.problem = problem;
  }
}

/**
 * Reads the file that an option names. @returns undefined if it does not exist. @throws
 * PlatformOptionError
 */
export function readOptionFile(option: string, path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw new PlatformOptionError('invalid', option, describeError(error));
  }
}

/** Creates the file that an option names, readable by its owner only. @throws PlatformOptionError */
export function createOptionFile(option: string, path: string, content: string): void {
  try {
    createFile(path, content, OWNER_ONLY);
  } catch (error) {
    throw new PlatformOptionError('invalid', option, describeError(error));
  }
}

export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
