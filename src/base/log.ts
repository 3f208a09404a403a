// Creates the process's log: pino, JSON lines, with API keys replaced.
import { type DestinationStream, type Logger, type LoggerOptions, pino } from 'pino';
import { StandardErrorLines } from './standard-streams.ts';
import { escapeControls, limitText } from './text/printable.ts';

export type Log = Logger;
type LogMethod = NonNullable<NonNullable<LoggerOptions['hooks']>['logMethod']>;

const SECRET_PATHS = ['key', 'authorization', '*.key', '*.authorization', 'headers.authorization'];

/**
 * Matches a key anywhere in a line: in an error's text, or in a field where a caller sent it by
 * mistake.
 */
const ANY_KEY = /\bmr_[A-Za-z0-9_-]{43}/g;

export interface LogSettings {
  /** `fatal` to `trace`, or `silent`. Default `info`. */
  level?: string;
  /** Default: standard error; standard output is for results. */
  destination?: DestinationStream;
  /** Limit of each text in a line, in characters, so that callers cannot fill the log. Default: none. */
  maxTextChars?: number;
  /**
   * Most lines of one message in a minute at level info and above; further ones are counted.
   * Default: no limit.
   */
  maxLinesPerMinute?: number;
}

const INFO = 30;

const standardError = new StandardErrorLines();

export function createLog({ level = 'info', ...options }: LogSettings = {}): Log {
  const { destination, maxLinesPerMinute, maxTextChars } = options;
  return pino(
    {
      level,
      base: null,
      redact: { paths: SECRET_PATHS, censor: '[key]' },
      hooks: {
        streamWrite: (line) => escapeControls(line.replaceAll(ANY_KEY, '[key]')),
        ...(maxLinesPerMinute !== undefined && { logMethod: limitLines(maxLinesPerMinute) }),
      },
      ...(maxTextChars !== undefined && limitTexts(maxTextChars)),
    },
    destination ?? standardError,
  );
}

export const silentLog: Log = pino({ level: 'silent' });

/** Limits lines by message: each event has one fixed message, and its details are fields. */
function limitLines(maxLines: number): LogMethod {
  const limit = new LineLimit(maxLines, () => performance.now());
  return function logMethod(args, method, level) {
    for (const { count, message } of limit.takeSuppressed()) {
      method.apply(this, [{ count, message }, 'log lines left out']);
    }
    const message = args.findLast((arg) => typeof arg === 'string') ?? '';
    if (level < INFO || limit.admit(message)) method.apply(this, args);
  };
}

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

const WINDOW_MS = 60_000;

/** The number of lines of one message that were dropped. */
interface Suppressed {
  message: string;
  count: number;
}

/** Limits how often one message is logged in a minute, so that callers who cause a line each time cannot fill the disk. */
export class LineLimit {
  readonly #maxLines: number;
  readonly #now: () => number;
  readonly #counts = new Map<string, number>();
  #windowEnd = Number.NEGATIVE_INFINITY;

  /** `now`: monotonic, ms. */
  constructor(maxLines: number, now: () => number) {
    this.#maxLines = maxLines;
    this.#now = now;
  }

  /** Counts a line. False if the limit of its message is reached for this minute. */
  admit(message: string): boolean {
    const count = (this.#counts.get(message) ?? 0) + 1;
    this.#counts.set(message, count);
    return count <= this.#maxLines;
  }

  /** Returns the drops of the last full minute, once. Call it before each line. */
  takeSuppressed(): Suppressed[] {
    const now = this.#now();
    if (now < this.#windowEnd) return [];
    this.#windowEnd = now + WINDOW_MS;
    const suppressed = [...this.#counts].flatMap(([message, lines]) =>
      lines > this.#maxLines ? [{ message, count: lines - this.#maxLines }] : [],
    );
    this.#counts.clear();
    return suppressed;
  }
}
