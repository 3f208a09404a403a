// The log of one attempt: NDJSON lines, batched briefly and limited under a flood. They come from `ctx.log`, a pino
// logger that is loaded only on first use (a thread whose handler never logs saves about 20 ms and 9 MB), from calls of
// console.*, and from what the thread writes to standard output and standard error, by whatever logger.
import { AsyncLocalStorage } from 'node:async_hooks';
import fs from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { extname } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import util from 'node:util';
import { clearTimeout, elapsedTime, setTimeout, wallTime } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { isPlainObject } from '../wire/json.ts';

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

let loaded: typeof import('../base/log.ts') | undefined;

export function createLinesLog(lines: LogLines, bindings: LogBindings): Log {
  loaded ??= loadLogModule();
  const destination = { write: (line: string) => lines.write(line) };
  return loaded.createLog({ level: 'debug', destination }).child(bindings);
}

function loadLogModule(): typeof import('../base/log.ts') {
  // The extension is computed because it is `.ts` in the sources and `.js` in the package.
  return createRequire(import.meta.url)(`../base/log${extname(import.meta.url)}`);
}

const { formatWithOptions, inspect } = util;

/** The job or thread that a console call belongs to. */
export interface ConsoleOwner {
  /** Number of the attempt among those of this thread; undefined outside of attempts. */
  readonly attemptNumber: number | undefined;
  readonly lines: LogLines;
}

/** The attempt in whose asynchronous context the code runs. */
export const currentOwner = new AsyncLocalStorage<ConsoleOwner>();

const METHODS = {
  debug: 'debug',
  log: 'info',
  info: 'info',
  warn: 'warn',
  error: 'error',
} as const satisfies Record<string, LogLevel>;
const METHOD_NAMES = ['debug', 'log', 'info', 'warn', 'error'] as const;

let isCaptured = false;

/**
 * Patches the console of this thread, once. The other methods (table, trace, assert, count, time)
 * use the patched ones. Outside of attempts `outside` is the owner; without one the console works
 * as usual.
 */
export function captureConsole(outside?: ConsoleOwner): void {
  if (isCaptured) return;
  isCaptured = true;
  for (const name of METHOD_NAMES) {
    // biome-ignore lint/suspicious/noConsole: it is what is replaced here.
    const original = console[name].bind(console);
    console[name] = (...values: unknown[]) => {
      const owner = currentOwner.getStore() ?? outside;
      if (!owner) return original(...values);
      owner.lines.writeText(METHODS[name], formatWithOptions({ colors: false }, ...values));
    };
  }
  // biome-ignore lint/suspicious/noConsole: it is what is replaced here.
  const originalDir = console.dir.bind(console);
  console.dir = (value, options) => {
    const owner = currentOwner.getStore() ?? outside;
    if (!owner) return originalDir(value, options);
    owner.lines.writeText('info', inspect(value, { customInspect: false, ...options }));
  };
}

/** Loggers such as pino write to these without the stream. */
const DESCRIPTORS: Readonly<Record<number, OutputStream>> = { 1: 'stdout', 2: 'stderr' };

type Callback = (error?: Error | null) => void;

/** Once in a thread, before it loads any code of the handler. `outside`: the owner outside of attempts. */
export function captureOutput(outside: ConsoleOwner): void {
  const write = (stream: OutputStream, data: string | Uint8Array) =>
    (currentOwner.getStore() ?? outside).lines.writeOutput(stream, data);
  for (const stream of ['stdout', 'stderr'] as const) {
    process[stream].write = (
      data: string | Uint8Array,
      encoding?: BufferEncoding | Callback,
      callback?: Callback,
    ) => {
      const isCallback = typeof encoding === 'function';
      write(stream, decode(data, isCallback ? undefined : encoding));
      const done = isCallback ? encoding : callback;
      if (done) process.nextTick(done);
      return true;
    };
  }
  for (const name of ['writeSync', 'writevSync'] as const) {
    const original = fs[name];
    replace(name, (...args) => {
      const stream = DESCRIPTORS[args[0]];
      if (stream === undefined) return Reflect.apply(original, fs, args);
      const bytes = readBytes(args);
      write(stream, bytes);
      return bytes.length;
    });
  }
  for (const name of ['write', 'writev'] as const) {
    const original = fs[name];
    replace(name, (...args) => {
      const stream = DESCRIPTORS[args[0]];
      const done: unknown = args.at(-1);
      if (stream === undefined || typeof done !== 'function') {
        return Reflect.apply(original, fs, args);
      }
      const bytes = readBytes(args);
      write(stream, bytes);
      process.nextTick(done, null, bytes.length, args[1]);
    });
  }
  syncBuiltinESMExports();
}

type WriteName = 'write' | 'writeSync' | 'writev' | 'writevSync';

/** Keeps the properties of the original, such as the one that `util.promisify` reads. */
function replace(name: WriteName, by: (...args: WriteArguments) => unknown): void {
  const properties = Object.getOwnPropertyDescriptors(fs[name]);
  Object.defineProperty(fs, name, { value: Object.defineProperties(by, properties) });
}

function decode(data: string | Uint8Array, encoding = 'utf8'): string | Uint8Array {
  const isEncoded = typeof data === 'string' && Buffer.isEncoding(encoding) && encoding !== 'utf8';
  return isEncoded ? Buffer.from(data, encoding) : data;
}

/** Data is a list of bytes, bytes with offset and length (or both in an object), or text with position and encoding. */
type WriteArguments = [fd: number, data: unknown, ...unknown[]];

/** The part of the data that the arguments of a function of `fs` select. */
function readBytes([, data, third, fourth]: WriteArguments): Buffer {
  if (Array.isArray(data)) return Buffer.concat(data.filter(ArrayBuffer.isView).map(toBuffer));
  if (!ArrayBuffer.isView(data)) {
    const encoding = typeof fourth === 'string' && Buffer.isEncoding(fourth) ? fourth : 'utf8';
    return Buffer.from(String(data), encoding);
  }
  const bytes = toBuffer(data);
  const named =
    typeof third === 'object' && third !== null ? third : { offset: third, length: fourth };
  const { length, offset } = { length: undefined, offset: undefined, ...named };
  const start = typeof offset === 'number' ? offset : 0;
  return bytes.subarray(start, typeof length === 'number' ? start + length : undefined);
}

function toBuffer({ buffer, byteLength, byteOffset }: ArrayBufferView): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
