// The error of a platform that cannot be opened with its options.

/** `invalid`: the value is never valid. `unusable`: this machine cannot use it at the moment. */
export type OptionFault = 'invalid' | 'unusable';

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

export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
