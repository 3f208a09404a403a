// Redirects the output of a handler to the log of the job that made it: calls of console.*, and what its thread writes to
// standard output and standard error, by whatever logger.
import { AsyncLocalStorage } from 'node:async_hooks';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import util from 'node:util';
import type { LogLevel, LogLines, OutputStream } from './log-lines.ts';

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
