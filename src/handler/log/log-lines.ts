// The log of one attempt: NDJSON lines, batched briefly and limited under a flood.

import {
  bufferByteLength,
  bufferFrom,
  clearTimeout,
  elapsedTime,
  jsonStringify,
  setTimeout,
  stringCut,
  wallTime,
} from '../../wire/primordials.ts';

/** Longest wait of a line for others, ms. */
const GATHER_MS = 50;
const FLUSH_BYTES = 64 * 1024;
/** More than this within a second is a flood: further lines are counted and dropped. */
const MAX_BYTES_PER_SECOND = 256 * 1024;
/** Longest text of one console call; longer texts are cut. */
const MAX_TEXT_CHARS = 32_000;

/** pino's level numbers. */
export const LOG_LEVELS = { debug: 20, info: 30, warn: 40, error: 50 } as const;
export type LogLevel = keyof typeof LOG_LEVELS;

/** Members of every line. */
export type LogBindings = Readonly<Record<string, string | number>>;

/** NDJSON bytes; `dropped`: number of lines that were dropped before them. */
export type SendLines = (lines: Uint8Array, dropped: number) => void;

export class LogLines {
  readonly #bindings: LogBindings;
  readonly #send: SendLines;
  #pending = '';
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #secondStartedAt = 0;
  #secondBytes = 0;

  /** `bindings` are members of every line that `writeText` writes. */
  constructor(bindings: LogBindings, send: SendLines) {
    this.#bindings = bindings;
    this.#send = send;
  }

  /** Adds a finished line with its line break, as pino writes it. */
  write(line: string): void {
    if (!this.#admit(bufferByteLength(line))) {
      this.#dropped += 1;
    } else {
      this.#pending += line;
    }
    if (this.#pending.length >= FLUSH_BYTES) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), GATHER_MS);
  }

  /** Adds a plain text as a line. */
  writeText(level: LogLevel, text: string): void {
    const left = text.length - MAX_TEXT_CHARS;
    const msg =
      left > 0 ? `${stringCut(text, 0, MAX_TEXT_CHARS)}… (${left} more characters)` : text;
    const line = { level: LOG_LEVELS[level], time: wallTime(), ...this.#bindings, msg };
    this.write(`${jsonStringify(line)}\n`);
  }

  flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending === '' && this.#dropped === 0) return;
    const lines = bufferFrom(this.#pending);
    const dropped = this.#dropped;
    this.#pending = '';
    this.#dropped = 0;
    this.#send(lines, dropped);
  }

  #admit(bytes: number): boolean {
    const now = elapsedTime();
    if (now - this.#secondStartedAt >= 1_000) {
      this.#secondStartedAt = now;
      this.#secondBytes = 0;
    }
    if (this.#secondBytes + bytes > MAX_BYTES_PER_SECOND) return false;
    this.#secondBytes += bytes;
    return true;
  }
}
