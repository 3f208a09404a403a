// The log that a model process writes to: that of `setup`, or of the job whose call it runs.
import type { Level } from './messages.ts';

/** The part of a pino logger that is used. */
export type ProcessLog = Record<Level, (fields: object, message: string) => void>;

export const silentProcessLog: ProcessLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};
