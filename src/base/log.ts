// The one way to make a log: pino, JSON lines, with everything that could be a key taken out.
import { type DestinationStream, type Logger, pino } from 'pino';

export type Log = Logger;

const SECRET_PATHS = ['key', 'authorization', '*.key', '*.authorization', 'headers.authorization'];

export interface LogOptions {
  /** `fatal` to `trace`, or `silent`. Default `info`. */
  level?: string;
  /** Where the lines go. Default: standard error, so that standard output stays for results. */
  destination?: DestinationStream;
}

export function createLog({ level = 'info', destination }: LogOptions = {}): Log {
  return pino(
    { level, base: null, redact: { paths: SECRET_PATHS, censor: '[key]' } },
    destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

export const silentLog: Log = pino({ level: 'silent' });
