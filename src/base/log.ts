// The log of a process: JSON lines on standard error, in the format of pino's. pino itself takes 6 MB of a worker process
// and a part of each start (docs/decisions/0041-the-log-of-a-process-is-not-pino.md).
import { writeSync } from 'node:fs';
import { LineLimit } from './line-limit.ts';
import { LEVELS, renderLogLine } from './log-line.ts';

/** Writes a line with fields and a fixed message. Fields may be an error. */
type WriteLine = (fields: object | string, message?: string) => void;

/** The part of a pino logger that Millrace uses, so a pino logger is one too. */
export interface Log {
  /** Lowest level that is written. */
  readonly level: string;
  readonly trace: WriteLine;
  readonly debug: WriteLine;
  readonly info: WriteLine;
  readonly warn: WriteLine;
  readonly error: WriteLine;
  readonly fatal: WriteLine;
  isLevelEnabled(level: string): boolean;
  /** Returns a log whose lines also have these members. */
  child(bindings: Readonly<Record<string, unknown>>): Log;
}

/** Receives each line with its line break. */
export interface LogDestination {
  write(line: string): unknown;
}

export interface LogSettings {
  /** `fatal` to `trace`, or `silent`. Default `info`. */
  level?: string;
  /** Default: standard error; standard output is for results. */
  destination?: LogDestination;
  /** Limit of each text in a line, in characters, so that callers cannot fill the log. Default: none. */
  maxTextChars?: number;
  /**
   * Most lines of one message in a minute at level info and above; further ones are counted.
   * Default: no limit.
   */
  maxLinesPerMinute?: number;
}

/** Wait for a reader whose pipe is full, ms. */
const FULL_PIPE_MS = 10;

export function createLog({ level = 'info', ...settings }: LogSettings = {}): Log {
  const { maxLinesPerMinute, maxTextChars = Number.POSITIVE_INFINITY } = settings;
  const { destination = { write: writeToStandardError } } = settings;
  const limit =
    maxLinesPerMinute === undefined
      ? undefined
      : new LineLimit(maxLinesPerMinute, () => performance.now());
  return new LineLog(level, {}, { destination, maxTextChars, limit });
}

interface Output {
  destination: LogDestination;
  maxTextChars: number;
  limit: LineLimit | undefined;
}

class LineLog implements Log {
  readonly level: string;
  readonly #lowest: number;
  readonly #bindings: object;
  readonly #output: Output;

  constructor(level: string, bindings: object, output: Output) {
    this.level = level;
    this.#lowest = isLevel(level) ? LEVELS[level] : Number.POSITIVE_INFINITY;
    this.#bindings = bindings;
    this.#output = output;
  }

  trace(fields: object | string, message?: string): void {
    this.#log(LEVELS.trace, fields, message);
  }

  debug(fields: object | string, message?: string): void {
    this.#log(LEVELS.debug, fields, message);
  }

  info(fields: object | string, message?: string): void {
    this.#log(LEVELS.info, fields, message);
  }

  warn(fields: object | string, message?: string): void {
    this.#log(LEVELS.warn, fields, message);
  }

  error(fields: object | string, message?: string): void {
    this.#log(LEVELS.error, fields, message);
  }

  fatal(fields: object | string, message?: string): void {
    this.#log(LEVELS.fatal, fields, message);
  }

  isLevelEnabled(level: string): boolean {
    return isLevel(level) && LEVELS[level] >= this.#lowest;
  }

  child(bindings: Readonly<Record<string, unknown>>): Log {
    return new LineLog(this.level, { ...this.#bindings, ...bindings }, this.#output);
  }

  #log(level: number, first: object | string, second: string | undefined): void {
    if (level < this.#lowest) return;
    const [fields, given] = typeof first === 'string' ? [{}, first] : [first, second];
    const message = given ?? (first instanceof Error ? first.message : undefined);
    const { limit } = this.#output;
    // Each event has one fixed message, and its details are fields.
    for (const { count, message: suppressed } of limit?.takeSuppressed() ?? []) {
      this.#write(level, { count, message: suppressed }, 'log lines left out');
    }
    if (level < LEVELS.info || (limit?.admit(given ?? '') ?? true)) {
      this.#write(level, fields, message);
    }
  }

  #write(level: number, fields: object, message: string | undefined): void {
    const { destination, maxTextChars } = this.#output;
    const bindings = this.#bindings;
    const entry = { level, time: Date.now(), bindings, fields, message, maxTextChars };
    destination.write(renderLogLine(entry));
  }
}

export const silentLog: Log = createLog({ level: 'silent' });

function isLevel(level: string): level is keyof typeof LEVELS {
  return Object.hasOwn(LEVELS, level);
}

/** Writes at once, because a process may end right after its last line. */
function writeToStandardError(line: string): void {
  let rest = Buffer.from(line);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(2, rest));
    } catch (error) {
      // Nobody reads, or the disk is full: the process works on without its log.
      if (!(error instanceof Error && 'code' in error && error.code === 'EAGAIN')) return;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FULL_PIPE_MS);
    }
  }
}
