// What a handler throws. Two errors control whether and when the job is retried. Of any other value this file makes a
// description in bounded texts, and finds out by the texts of CUDA, ROCm and their frameworks whether the device was out
// of memory, or the process has lost its device context and must be replaced.
import util from 'node:util';

/** Marks these errors. A class would not do: the author's node_modules may have another copy of this package. */
export const BRAND = Symbol.for('millrace.retry');

/**
 * `never`, or after this many ms; `counts: false`: the attempt does not count as a failure. `crashed`: the attempt took a process of the handler down. `context_lost`: that process
 * had lost its context on a device, and is replaced. `released`: the attempt failed because of another one, or nobody knows because of which.
 */
export type RetryAdvice =
  | { kind: 'never' }
  | { kind: 'after'; ms: number; counts: boolean }
  | { kind: 'crashed' | 'context_lost' }
  | { kind: 'released'; reason: 'neighbour' | 'suspect' };

/** The job cannot succeed in any attempt: it is FAILED at once. */
export class NonRetryableError extends Error {
  override readonly name: string = 'NonRetryableError';
  readonly [BRAND]: RetryAdvice = { kind: 'never' };
}

export interface RetryAfterOptions extends ErrorOptions {
  /**
   * `false`: the attempt does not count as a failure, as when a server refuses work for a while. The job's time to live
   * runs on, and the wait is at least 1 s. Default true.
   */
  counts?: boolean;
}

/** The next attempt, if any is left, starts after `ms`. */
export class RetryAfterError extends Error {
  override readonly name: string = 'RetryAfterError';
  readonly [BRAND]: RetryAdvice;

  constructor(ms: number, message?: string, options?: RetryAfterOptions);
  constructor(ms: number, options?: RetryAfterOptions);
  constructor(ms: number, given?: string | RetryAfterOptions, more?: RetryAfterOptions) {
    const options = typeof given === 'object' ? given : more;
    super(typeof given === 'string' ? given : `try again in ${ms} ms`, options);
    if (!isSpan(ms)) throw new RangeError(`RetryAfterError: ms must be 0 or more, got ${ms}`);
    this[BRAND] = { kind: 'after', ms, counts: options?.counts ?? true };
  }
}

function isSpan(ms: unknown): ms is number {
  return typeof ms === 'number' && ms >= 0 && ms < Number.POSITIVE_INFINITY;
}

/** The advice of a thrown value, if any. */
export function retryAdvice(thrown: unknown): RetryAdvice | undefined {
  if (typeof thrown !== 'object' || thrown === null || !(BRAND in thrown)) return undefined;
  const advice = thrown[BRAND];
  if (typeof advice !== 'object' || advice === null || !('kind' in advice)) return undefined;
  if (advice.kind === 'never') return { kind: 'never' };
  if (advice.kind === 'crashed' || advice.kind === 'context_lost') return { kind: advice.kind };
  if (advice.kind === 'released' && 'reason' in advice) {
    return { kind: 'released', reason: advice.reason === 'suspect' ? 'suspect' : 'neighbour' };
  }
  if (advice.kind === 'after' && 'ms' in advice && isSpan(advice.ms)) {
    // An earlier version of the package has no `counts`.
    const counts = !('counts' in advice) || advice.counts !== false;
    return { kind: 'after', ms: advice.ms, counts };
  }
  return undefined;
}

const { inspect } = util;
const { isNativeError } = util.types;

const MAX_MESSAGE_CHARS = 8_000;
const MAX_STACK_CHARS = 32_000;
/** Errors within an error, at any depth: causes, and the errors of an AggregateError or a SuppressedError. */
const MAX_INNER = 16;
/** Errors whose messages the combined message contains. */
const MAX_NAMED = 3;
/** Of one such message, and of the class of an error. */
const MAX_NAMED_CHARS = 500;

const MEMORY_TEXTS: readonly RegExp[] = [
  // PyTorch: "CUDA out of memory. Tried to allocate …", "HIP out of memory"; CUDA: "CUDA error: out of memory".
  /\b(?:CUDA|HIP|ROCm|XPU|MPS)\b[^\n]{0,80}\bout of memory\b/i,
  /\b(?:torch\.)?(?:cuda\.)?OutOfMemoryError\b/,
  // CUDA's driver and runtime, its libraries, and their ROCm counterparts.
  /\bCUDA_ERROR_OUT_OF_MEMORY\b|\bcudaErrorMemoryAllocation\b/,
  /\bCU(?:BLAS|DNN|FFT|SPARSE|SOLVER)_(?:STATUS_)?(?:INTERNAL_ERROR_)?(?:DEVICE_)?(?:ALLOC(?:ATION)?_FAILED)\b/,
  /\bhipErrorOutOfMemory\b|\bhipErrorMemoryAllocation\b|\bHSA_STATUS_ERROR_OUT_OF_RESOURCES\b/,
  // ONNX Runtime: "Failed to allocate memory for requested buffer of size …", "BFCArena::AllocateRawInternal".
  /\bFailed to allocate memory for requested buffer of size\b|\bBFCArena::AllocateRawInternal\b/,
  // TensorFlow: "OOM when allocating tensor"; JAX: "RESOURCE_EXHAUSTED: Out of memory".
  /\bOOM when allocating tensor\b|\bRESOURCE_EXHAUSTED: Out of memory\b/i,
];

/** Errors after which every device call of the process fails. */
const CONTEXT_TEXTS: readonly RegExp[] = [
  // PyTorch: "CUDA error: device-side assert triggered"; ONNX Runtime: "CUDA failure 700: an illegal memory access …".
  /\b(?:CUDA|HIP|ROCm)\b[^\n]{0,80}?\b(?:device-side assert|an illegal memory access|an illegal instruction|unspecified launch failure|hardware stack error|misaligned address|operation not supported on global\/shared address space|invalid program counter|uncorrectable (?:ECC|NVLink) error|the launch timed out and was terminated|context is destroyed|invalid access of peer GPU memory)/i,
  /\bCUDA (?:runtime |driver )?(?:error|failure)(?: code)?[ :(=]{1,3}(?:214|220|70[029]|71[04-9]|72[12])\b/i,
  // The names of the driver and the runtime, which CuPy, JAX and TensorFlow print, and those of HIP.
  /\bCUDA_ERROR_(?:ASSERT|CONTAINED|CONTEXT_IS_DESTROYED|ECC_UNCORRECTABLE|HARDWARE_STACK_ERROR|ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|INVALID_ADDRESS_SPACE|INVALID_PC|LAUNCH_FAILED|LAUNCH_TIMEOUT|MISALIGNED_ADDRESS|MPS_CLIENT_TERMINATED|NVLINK_UNCORRECTABLE|TENSOR_MEMORY_LEAK)\b/,
  /\bcudaError(?:Assert|Contained|ContextIsDestroyed|DeviceUninitialized|ECCUncorrectable|HardwareStackError|IllegalAddress|IllegalInstruction|InvalidAddressSpace|InvalidPc|LaunchFailure|LaunchTimeout|MisalignedAddress|MpsClientTerminated|NvlinkUncorrectable|TensorMemoryLeak)\b/,
  /\bhipError(?:Assert|ContextIsDestroyed|ECCNotCorrectable|IllegalAddress|LaunchFailure|LaunchTimeOut)\b/,
];

/** Kinds of advice of errors that say that a process of the handler has ended. */
const ENDS_PROCESS: ReadonlySet<RetryAdvice['kind']> = new Set([
  'context_lost',
  'crashed',
  'released',
]);

/** Characters that are read of a text. */
const MAX_CHARS = 65_536;
/** Errors of one thrown value that are read: itself, its causes, and the errors of an AggregateError. */
const MAX_ERRORS = 16;

export interface ThrownDescription {
  message: string;
  /** Class of the error; absent if the value is not an error. */
  type?: string;
  stack?: string;
}

/** Never throws, even if the error's members do. */
export function describeThrown(thrown: unknown): ThrownDescription {
  try {
    return isError(thrown)
      ? describeError(thrown)
      : { message: cap(typeof thrown === 'string' ? thrown : inspect(thrown), MAX_MESSAGE_CHARS) };
  } catch {
    return { message: 'the handler threw a value that cannot be described' };
  }
}

/** The error says that the device had too little memory. Never throws. */
export function isDeviceMemoryError(thrown: unknown): boolean {
  const { message, stack = '', type = '' } = describeThrown(thrown);
  const text = `${type}: ${message}\n${stack}`;
  return MEMORY_TEXTS.some((pattern) => pattern.test(text));
}

/**
 * Returns the words that show a lost device context, or undefined. Quoted words do not count, because they may come
 * from a job's input.
 */
export function findContextLoss(text: string): string | undefined {
  for (const line of text.slice(0, MAX_CHARS).split('\n')) {
    for (const pattern of CONTEXT_TEXTS) {
      const found = pattern.exec(line);
      if (found && !isQuoted(line.slice(0, found.index))) return found[0];
    }
  }
  return undefined;
}

/** A quotation is open at the end of the text. */
function isQuoted(before: string): boolean {
  const isOdd = (mark: string) => before.split(mark).length % 2 === 0;
  const isOpen = (start: string, end: string) =>
    before.lastIndexOf(start) > before.lastIndexOf(end);
  return isOdd('"') || isOdd('`') || before.endsWith("'") || isOpen('“', '”') || isOpen('«', '»');
}

interface ContextLoss {
  words: string;
  /** The context belonged to a model process that has ended since. */
  isReplaced: boolean;
}

/** Checks the error, its causes and the errors of an AggregateError. Never throws. */
export function judgeContextLoss(thrown: unknown): ContextLoss | undefined {
  let words: string | undefined;
  let isReplaced = false;
  for (const error of listErrors(thrown)) {
    const { message, stack = '', type = '' } = describeThrown(error);
    words ??= findContextLoss(`${type}: ${message}\n${stack}`);
    const advice = retryAdvice(error)?.kind;
    if (advice && ENDS_PROCESS.has(advice)) isReplaced = true;
  }
  return words === undefined ? undefined : { words, isReplaced };
}

function listErrors(thrown: unknown): unknown[] {
  const errors: unknown[] = [thrown];
  try {
    for (let index = 0; index < errors.length && errors.length < MAX_ERRORS; index += 1) {
      const error = errors[index];
      if (!(error instanceof Error)) continue;
      const inner: unknown[] = 'errors' in error && Array.isArray(error.errors) ? error.errors : [];
      for (const each of [error.cause, ...inner.slice(0, MAX_ERRORS)]) {
        if (each !== undefined && !errors.includes(each)) errors.push(each);
      }
    }
  } catch {
    // A getter of the error threw.
  }
  return errors.slice(0, MAX_ERRORS);
}

function isError(value: unknown): value is Error {
  return isNativeError(value) || value instanceof Error;
}

function describeError(error: Error): ThrownDescription {
  const type = cap(nameOf(error), MAX_NAMED_CHARS);
  const message = cap(joinMessages(error) || type, MAX_MESSAGE_CHARS);
  if (typeof error.stack !== 'string') return { message, type };
  return { message, type, stack: new Stacks(error).text };
}

function nameOf(error: Error): string {
  const className = String(error.constructor?.name ?? 'Error');
  return error.name === 'Error' ? className : String(error.name);
}

/** "All promises were rejected" alone does not help the reader. */
function joinMessages(error: Error): string {
  const { count, parts } = listParts(error);
  const texts = parts.slice(0, MAX_NAMED).map(({ value }) => {
    const text = isError(value) ? String(value.message) || nameOf(value) : inspect(value);
    return cap(text, MAX_NAMED_CHARS);
  });
  let named = texts.join('; ');
  if (count > MAX_NAMED) named += `; ${count - MAX_NAMED} more`;
  const message = String(error.message);
  return message === '' || named === '' ? message || named : `${message}: ${named}`;
}

interface Part {
  label: string;
  value: unknown;
}

/** The errors of an AggregateError or a SuppressedError; `count` includes those left out. */
function listParts(error: Error): { parts: Part[]; count: number } {
  if ('errors' in error && Array.isArray(error.errors)) {
    const count = error.errors.length;
    const parts = error.errors
      .slice(0, MAX_INNER)
      .map((value, index) => ({ label: `error ${index + 1} of ${count}`, value }));
    return { parts, count };
  }
  if (!('suppressed' in error && 'error' in error)) return { parts: [], count: 0 };
  const parts = [
    { label: 'error', value: error.error },
    { label: 'suppressed', value: error.suppressed },
  ];
  return { parts, count: parts.length };
}

/** The stack of an error, then those of the errors within it. */
class Stacks {
  text = '';
  readonly #seen = new Set<unknown>();
  #omitted = 0;

  constructor(error: Error) {
    this.#add('', { label: '', value: error });
    if (this.#omitted > 0) this.text += `\n… (${this.#omitted} more errors)`;
    this.text = cap(this.text, MAX_STACK_CHARS);
  }

  #add(indent: string, { label, value }: Part): void {
    if (this.#seen.has(value)) {
      this.text += `\n${indent}${label}: an error from above`;
      return;
    }
    if (this.#seen.size > MAX_INNER || this.text.length > MAX_STACK_CHARS) {
      this.#omitted += 1;
      return;
    }
    const own = isError(value) ? String(value.stack ?? value.message) : inspect(value);
    const text = cap(label === '' ? own : `${label}: ${own}`, MAX_STACK_CHARS);
    this.text += `${label === '' ? '' : '\n'}${indent}${text.replaceAll('\n', `\n${indent}`)}`;
    if (!isError(value)) return;
    this.#seen.add(value);
    const { count, parts } = listParts(value);
    for (const part of parts) this.#add(`${indent}    `, part);
    this.#omitted += count - parts.length;
    if (value.cause !== undefined) this.#add(indent, { label: 'caused by', value: value.cause });
  }
}

function cap(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${text.slice(0, maxChars)}… (${text.length - maxChars} more characters)`;
}
