// Splits a container's argument string into words.
import { ShellWordsError, splitWords } from '../base/text/shell-words.ts';
import { EngineError } from './engine.ts';

/** @throws EngineError `refused` */
export function splitArgs(args: string): string[] {
  try {
    return splitWords(args);
  } catch (error) {
    throw error instanceof ShellWordsError ? new EngineError('refused', error.message) : error;
  }
}
