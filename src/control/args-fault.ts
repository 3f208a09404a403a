// Checks whether a pod's args can be split into words; no engine could start a pod otherwise.
import { ShellWordsError, splitWords } from '../base/text/shell-words.ts';
import { ProblemError } from '../wire/problem.ts';

/** Returns a sentence that names the field; undefined without a fault. */
export function findArgsFault(args: string): string | undefined {
  try {
    splitWords(args);
    return undefined;
  } catch (error) {
    if (error instanceof ShellWordsError) return `args: ${error.message}`;
    throw error;
  }
}

/** @throws ProblemError `invalid` */
export function checkArgs(args: string | undefined): void {
  const fault = args === undefined ? undefined : findArgsFault(args);
  if (fault !== undefined) throw new ProblemError('invalid', fault, { errors: [fault] });
}
