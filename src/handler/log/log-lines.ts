// The log of one attempt: NDJSON lines, batched briefly and limited under a flood. A pino logger writes them too, but
// pino is loaded only on first use: a thread whose handler never logs saves about 20 ms and 9 MB.

import { createRequire } from 'node:module';
import { extname } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { clearTimeout, elapsedTime, setTimeout, wallTime } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { isPlainObject } from '../../wire/json.ts';

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

/** Level names of winston and others. */
const NAMED_LEVELS: ReadonlyMap<string, number> = new Map(
  Object.entries({ ...LOG_LEVELS, trace: 10, warning: LOG_LEVELS.warn, fatal: 60 }),
);

const DAY_MS = 86_400_000;

export type OutputStream = 'stdout' | 'stderr';

/** Members of every line. */
export type LogBindings = Readonly<Record<string, string | number>>;

/** NDJSON bytes; `dropped`: number of lines that were dropped before them. */
type SendLines = (lines: Uint8Array, dropped: number) => void;

export class LogLines {
  readonly #bindings: LogBindings;
  readonly #send: SendLines;
  #pending = '';
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #secondStartedAt = 0;
  #secondBytes = 0;

  /** Decoders of standard output and standard error. */
  readonly #decoders: Partial<Record<OutputStream, StringDecoder>> = {};
  readonly #unfinished: Record<OutputStream, string> = { stdout: '', stderr: '' };

  /** `bindings` are members of every line that `writeText` and `writeOutput` write. */
  constructor(bindings: LogBindings, send: SendLines) {
    this.#bindings = bindings;
    this.#send = send;
  }

  /** Adds a finished line with its line break, as pino writes it. */
  write(line: string): void {
    if (!this.#admit(Buffer.byteLength(line))) {
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
    const msg = left > 0 ? `${text.slice(0, MAX_TEXT_CHARS)}… (${left} more characters)` : text;
    const line = { level: LOG_LEVELS[level], time: wallTime(), ...this.#bindings, msg };
    this.write(`${JSON.stringify(line)}\n`);
  }

  /** Adds a piece of standard output or standard error, line by line. */
  writeOutput(stream: OutputStream, piece: string | Uint8Array): void {
    const text = typeof piece === 'string' ? piece : this.#decode(stream, piece);
    const lines = (this.#unfinished[stream] + text).split('\n');
    const rest = lines.pop() ?? '';
    for (const line of lines) this.#writeLine(stream, line);
    const isLong = rest.length > MAX_TEXT_CHARS;
    this.#unfinished[stream] = isLong ? '' : rest;
    if (isLong) this.#writeLine(stream, rest);
  }

  /** A character may be split between two pieces. */
  #decode(stream: OutputStream, piece: Uint8Array): string {
    this.#decoders[stream] ??= new StringDecoder();
    return this.#decoders[stream].write(Buffer.from(piece));
  }

  #writeLine(stream: OutputStream, line: string): void {
    const text = line.endsWith('\r') ? line.slice(0, -1) : line;
    if (text === '') return;
    const entry = text.length <= MAX_TEXT_CHARS ? readEntry(text) : undefined;
    if (entry) this.write(`${JSON.stringify({ ...entry, ...this.#bindings })}\n`);
    else this.writeText(stream === 'stdout' ? 'info' : 'warn', text);
  }

  /** Adds the unfinished lines too; nothing follows. */
  end(): void {
    for (const stream of ['stdout', 'stderr'] as const) {
      if (this.#unfinished[stream] !== '') this.writeOutput(stream, '\n');
    }
    this.flush();
  }

  flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending === '' && this.#dropped === 0) return;
    const lines = Buffer.from(this.#pending);
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

/** A line of a logger that writes JSON, as pino, bunyan and winston do, keeps its level and its members. */
function readEntry(line: string): object | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(line);
    if (!isPlainObject(value)) return undefined;
    const { level: given, message, msg: text = message, time, ...members } = value;
    const level = typeof given === 'number' ? given : NAMED_LEVELS.get(String(given));
    if (level === undefined || typeof text !== 'string') return undefined;
    const now = wallTime();
    // Other loggers count in seconds, or in nanoseconds.
    const isTime = typeof time === 'number' && Math.abs(now - time) < DAY_MS;
    return { level, time: isTime ? time : now, ...members, msg: text };
  } catch {
    return undefined;
  }
}

let loaded: typeof import('../../base/log.ts') | undefined;

export function createLinesLog(lines: LogLines, bindings: LogBindings): Log {
  loaded ??= loadLogModule();
  const destination = { write: (line: string) => lines.write(line) };
  return loaded.createLog({ level: 'debug', destination }).child(bindings);
}

function loadLogModule(): typeof import('../../base/log.ts') {
  // The extension is computed because it is `.ts` in the sources and `.js` in the package.
  return createRequire(import.meta.url)(`../../base/log${extname(import.meta.url)}`);
}
