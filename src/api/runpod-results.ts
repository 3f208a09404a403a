// What the bodies of RunPod's workers mean: a chunk, progress, or how an attempt ended. Payload bytes are
// cut out as they came. Nothing here refuses a body: these workers drop a result that is refused.
import { isUtf8 } from 'node:buffer';
import {
  encodeJsonChunk,
  MAX_METRICS_BYTES,
  type Metrics,
  RESERVED_METRICS,
} from '../wire/chunk.ts';
import { type AttemptError, ERROR_CODES, LIMITS } from '../wire/job.ts';
import { isPlainObject } from '../wire/json.ts';
import { RELEASE_REASONS, type ReleaseReason } from '../wire/worker-link.ts';
import { sliceMember } from './body.ts';

export type WorkerWord =
  | { kind: 'chunks'; pieces: Uint8Array[] }
  | { kind: 'progress'; value: Uint8Array }
  /** `output` undefined: the chunks are the output. */
  | { kind: 'completed'; output: Uint8Array | undefined }
  | { kind: 'failed'; error: AttemptError; retry: 'default' | 'never' }
  /** Given back, as workers of this package say it here: the protocol has no word for that. */
  | { kind: 'released'; reason: ReleaseReason };

export interface WorkerResult {
  word: WorkerWord;
  /** It asks to be replaced. */
  isWorn: boolean;
}

/** Of an error's texts, and bytes of progress: they are in the job's row, not beside it. */
const MAX_TEXT_CHARS = 32_000;
const MAX_PROGRESS_BYTES = 1_000_000;

const NULL = Buffer.from('null');
const EMPTY_OBJECT = Buffer.from('{}');

/** The body of a job-stream: one yield, as one chunk or the pieces of one. */
export function readYield(body: Buffer): WorkerWord {
  const parsed = parseObject(body);
  if (parsed instanceof Error) return refuse('output_invalid', parsed.message);
  const output = sliceMember(body, 'output') ?? NULL;
  return { kind: 'chunks', pieces: encodeJsonChunk(output, readMetrics(parsed['metrics'])) };
}

/** The body of a job-done. `isStream` as the worker has it in the URL. */
export function readResult(body: Buffer, { isStream }: { isStream: boolean }): WorkerResult {
  const parsed = parseObject(body);
  if (parsed instanceof Error) {
    return { word: refuse('output_invalid', parsed.message), isWorn: false };
  }
  return { word: readWord(body, parsed, isStream), isWorn: parsed['stopPod'] === true };
}

function readWord(body: Buffer, parsed: Record<string, unknown>, isStream: boolean): WorkerWord {
  const output = sliceMember(body, 'output');
  const { error, status } = parsed;
  if (status === 'IN_PROGRESS') return { kind: 'progress', value: boundProgress(output ?? NULL) };
  if (error || status === 'FAILED') return readFailure(error);
  const value = parsed['output'];
  if (isStream && Array.isArray(value) && value.length === 0) {
    return { kind: 'completed', output: undefined };
  }
  // These workers leave the member out for a handler that returned an empty dict.
  const bytes = output ?? EMPTY_OBJECT;
  if (bytes.length > LIMITS.outputBytes) return refuseSize(bytes.length);
  return { kind: 'completed', output: bytes };
}

/** Not refused: what it says is no reason to lose the job. */
function boundProgress(value: Buffer): Buffer {
  if (value.length <= MAX_PROGRESS_BYTES) return value;
  const limit = MAX_PROGRESS_BYTES;
  return Buffer.from(JSON.stringify(`progress of ${value.length} bytes, the limit is ${limit}`));
}

export function refuseSize(bytes: number): WorkerWord {
  const limit = LIMITS.outputBytes;
  return refuse('output_too_large', `the output is ${bytes} bytes, the limit is ${limit}`);
}

/** What trying again would not change. */
const FINAL: ReadonlySet<string> = new Set(['input_invalid', 'output_invalid', 'output_too_large']);

function readFailure(error: unknown): WorkerWord {
  const described = readError(error);
  const errorCode = readDetails(error)?.['error_code'];
  const reason = RELEASE_REASONS.find((known) => errorCode === `released_${known}`);
  if (reason) return { kind: 'released', reason };
  return {
    kind: 'failed',
    error: described,
    retry: FINAL.has(described.code) ? 'never' : 'default',
  };
}

/** An `error`: a text that holds JSON, plain text, or what the handler put there. */
export function readError(error: unknown): AttemptError {
  const { message, stack, type, ...rest } = describeError(error);
  return {
    ...rest,
    message: cap(message),
    ...(type !== undefined && { type: cap(type) }),
    ...(stack !== undefined && { stack: cap(stack) }),
  };
}

function cap(text: string): string {
  const more = text.length - MAX_TEXT_CHARS;
  return more <= 0 ? text : `${text.slice(0, MAX_TEXT_CHARS)}… (${more} more characters)`;
}

function describeError(error: unknown): AttemptError {
  const text = typeof error === 'string' ? error : JSON.stringify(error ?? 'no reason was given');
  const details = readDetails(error);
  const raised = details?.['error_message'];
  if (details && typeof raised === 'string') return describeRaised(details, raised);
  // As generators fail: "handler: <message> \ntraceback: Traceback (most recent call last): …".
  const [message = '', stack] = text.split(/\s*\ntraceback: /, 2);
  if (stack === undefined) return { code: 'handler_error', message: text };
  return { code: 'handler_error', message: message.replace(/^handler: /, ''), stack };
}

function readDetails(error: unknown): Record<string, unknown> | undefined {
  const details = typeof error === 'string' ? parseObject(Buffer.from(error)) : error;
  return isPlainObject(details) && !(details instanceof Error) ? details : undefined;
}

function describeRaised(details: Record<string, unknown>, message: string): AttemptError {
  const { error_code: named, error_traceback: stack, error_type: type, event } = details;
  const known = ERROR_CODES.find((code) => code === named) ?? 'handler_error';
  const code = event === 'prestart_failed' ? 'handler_not_loaded' : known;
  const described: AttemptError = { code, message };
  // "<class 'RuntimeError'>"
  if (typeof type === 'string') described.type = /^<class '(.+)'>$/.exec(type)?.[1] ?? type;
  if (typeof stack === 'string') described.stack = stack;
  return described;
}

function refuse(code: AttemptError['code'], message: string): WorkerWord {
  return { kind: 'failed', error: { code, message }, retry: 'never' };
}

function parseObject(body: Buffer): Record<string, unknown> | Error {
  if (!isUtf8(body)) return new Error('what the worker sent is not UTF-8');
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isPlainObject(value) ? value : new Error('what the worker sent is no JSON object');
  } catch {
    return new Error('what the worker sent is not JSON; NaN and Infinity are not');
  }
}

/** Those that are numbers; a chunk that these workers send has them only from old versions. */
function readMetrics(given: unknown): Metrics {
  if (!isPlainObject(given)) return {};
  const metrics: Metrics = {};
  for (const [name, value] of Object.entries(given)) {
    const isReserved = RESERVED_METRICS.some((reserved) => reserved === name);
    if (typeof value === 'number' && Number.isFinite(value) && !isReserved) metrics[name] = value;
  }
  return JSON.stringify(metrics).length * 3 > MAX_METRICS_BYTES ? {} : metrics;
}
