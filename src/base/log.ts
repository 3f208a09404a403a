// The one way to make a log: pino, JSON lines, with everything that could be a key taken out.
import { type DestinationStream, type Logger, pino } from 'pino';
import { escapeControls, limitText } from './printable.ts';

export type Log = Logger;

const SECRET_PATHS = ['key', 'authorization', '*.key', '*.authorization', 'headers.authorization'];

/** A key may stand anywhere: in the text of an error, in what somebody sent in the wrong place. */
const ANY_KEY = /\bmr_[A-Za-z0-9_-]{43}/g;

export interface LogOptions {
  /** `fatal` to `trace`, or `silent`. Default `info`. */
  level?: string;
  /** Where the lines go. Default: standard error, so that standard output stays for results. */
  destination?: DestinationStream;
  /** Of each text in a line, so that others cannot fill the log. Default: no limit. */
  maxTextChars?: number;
}

export function createLog({ level = 'info', destination, maxTextChars }: LogOptions = {}): Log {
  return pino(
    {
      level,
      base: null,
      redact: { paths: SECRET_PATHS, censor: '[key]' },
      hooks: { streamWrite: (line) => escapeControls(line.replaceAll(ANY_KEY, '[key]')) },
      ...(maxTextChars !== undefined && limitTexts(maxTextChars)),
    },
    destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

export const silentLog: Log = pino({ level: 'silent' });

function limitTexts(maxChars: number) {
  const limit = (members: object) =>
    Object.fromEntries(
      Object.entries(members).map(([name, value]: [string, unknown]) => [
        name,
        typeof value === 'string' ? limitText(value, maxChars) : value,
      ]),
    );
  const describeError = (error: Error) => limit(pino.stdSerializers.err(error));
  return { formatters: { log: limit }, serializers: { err: describeError } };
}
