// The error of a platform that cannot be opened with the options it was given.

/** `invalid`: the value can never be used. `unusable`: this machine cannot use it as things are. */
export type OptionFault = 'invalid' | 'unusable';

/** Names the option by its property, `grpc.port`, so that each caller can say it in words of its own. */
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
