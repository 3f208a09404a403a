// The messages between a worker and a model process, and the check of those that arrive: the child
// is a program of the author, in any language. Log lines go to the log of `setup`, or of the job whose call runs.
import { type Attachment, attachBytes, type Frame, FrameError } from './frame.ts';

export const PROTOCOL = 1;

/** Heads of frames to the child; `call` also has `value` and `attachments`. */
export type ToChild =
  | { type: 'hello'; protocol: number; maxConcurrent: number; maxFrameBytes: number }
  | {
      type: 'call';
      id: number;
      name: string;
      /** `value`: one result; `items`: a stream; `batch`: the input is a list, one result for each. */
      wants: CallKind;
      /** Bytes of item frames that the child may send before it gets more credit. */
      credit?: number;
      /** Time that is left for the call. */
      remainingMs?: number;
    }
  | { type: 'credit'; id: number; bytes: number }
  | { type: 'cancel'; id: number }
  /** Move the model to the host's memory, and back: only to a program whose `ready` says that it can. */
  | { type: 'park' }
  | { type: 'wake' }
  | { type: 'ping' }
  | { type: 'stop' };

export type CallKind = 'value' | 'items' | 'batch';

export const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
export type Level = (typeof LEVELS)[number];

/** The part of a pino logger that is used. */
export type ProcessLog = Record<Level, (fields: object, message: string) => void>;

export const silentProcessLog: ProcessLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

/** Metrics that the child recorded since its last frame of the call. */
export interface RecordedMetrics {
  add: Record<string, number>;
  set: Record<string, number>;
}

/** An exception in the child. */
export interface ChildError {
  /** Name of its class. */
  type: string;
  message: string;
  stack: string | undefined;
  /** What the platform does with the job: `default`, `never`, or a wait in ms. */
  retry: 'default' | 'never' | number;
  /** With a wait. False: the attempt does not count as a failure. */
  counts?: boolean;
}

/** What a program tells of its start; another clock may have run meanwhile, so that anything is possible. */
export interface StartMarks {
  /** When its interpreter ran, Unix ms. */
  upAt?: number;
  /** How long it has imported packages, ms. */
  importMs?: number;
}

export type FromChild =
  | {
      type: 'ready';
      protocol: number;
      handlers: string[];
      /** The program has hooks that park its model. */
      parks: boolean;
      /** What it has measured of its start. */
      marks: StartMarks;
    }
  /** `bytes`: device memory that it has let go; 0 if it does not know. */
  | { type: 'parked'; bytes: number }
  | { type: 'woken' }
  | { type: 'park_failed'; error: ChildError }
  | { type: 'result'; id: number; value: unknown; metrics: RecordedMetrics | undefined }
  | { type: 'item'; id: number; value: unknown; metrics: RecordedMetrics | undefined }
  | { type: 'error'; id: number; error: ChildError }
  | { type: 'cancelled'; id: number }
  | { type: 'log'; id: number | undefined; level: Level; message: string; fields: object }
  | { type: 'progress'; id: number; value: unknown }
  | { type: 'pong' };

/** Messages of calls and their logs; the others are about the process. */
export type CallMessage = Exclude<
  FromChild,
  { type: 'ready' | 'pong' | 'parked' | 'woken' | 'park_failed' }
>;

type Members = Record<string, unknown>;

/** @throws FrameError that names the member and its value */
export function parseMessage({ head, body }: Frame): FromChild {
  if (!isMembers(head)) throw new FrameError(`a head is ${show(head)}; it must be an object`);
  const { type } = head;
  if (type !== 'result' && type !== 'item' && type !== 'progress' && body.length > 0) {
    throw new FrameError(`a frame of type ${show(type)} has attachments`);
  }
  switch (type) {
    case 'ready':
      return {
        type,
        protocol: readNumber(head, 'protocol'),
        handlers: readNames(head['handlers']),
        parks: head['parks'] === true,
        marks: readMarks(head),
      };
    case 'parked':
      return { type, bytes: head['bytes'] === undefined ? 0 : readNumber(head, 'bytes') };
    case 'woken':
      return { type };
    case 'park_failed':
      return { type, error: readError(head['error']) };
    case 'result':
    case 'item': {
      const metrics = head['metrics'] === undefined ? undefined : readMetrics(head['metrics']);
      return { type, id: readNumber(head, 'id'), value: readValue(head, body), metrics };
    }
    case 'error':
      return { type, id: readNumber(head, 'id'), error: readError(head['error']) };
    case 'cancelled':
      return { type, id: readNumber(head, 'id') };
    case 'log':
      return {
        type,
        id: head['id'] === undefined || head['id'] === null ? undefined : readNumber(head, 'id'),
        level: LEVELS.find((level) => level === head['level']) ?? 'info',
        message: readText(head, 'message'),
        fields: isMembers(head['fields']) ? head['fields'] : {},
      };
    case 'progress':
      return { type, id: readNumber(head, 'id'), value: readValue(head, body) };
    case 'pong':
      return { type };
    default:
      throw new FrameError(`a frame has the type ${show(type)}, which protocol 1 does not have`);
  }
}

function readValue(head: Members, body: Buffer): unknown {
  const { attachments = [], value = null } = head;
  if (!Array.isArray(attachments)) {
    throw new FrameError(`attachments is ${show(attachments)}; it must be an array`);
  }
  return attachBytes(value, attachments.map(readAttachment), body);
}

function readAttachment(attachment: unknown): Attachment {
  if (isMembers(attachment)) {
    const { bytes, path } = attachment;
    const isPath = Array.isArray(path) && path.every(isKey);
    if (isPath && typeof bytes === 'number' && Number.isSafeInteger(bytes) && bytes >= 0) {
      return { path, bytes };
    }
  }
  throw new FrameError(`an attachment is ${show(attachment)}; it needs path and bytes`);
}

function isKey(key: unknown): key is string | number {
  return typeof key === 'string' || typeof key === 'number';
}

function readMetrics(metrics: unknown): RecordedMetrics {
  const { add = {}, set = {} } = isMembers(metrics) ? metrics : {};
  if (isNumbers(add) && isNumbers(set)) return { add, set };
  throw new FrameError(`metrics is ${show(metrics)}; it needs numbers in add and set`);
}

function isNumbers(value: unknown): value is Record<string, number> {
  return isMembers(value) && Object.values(value).every((each) => typeof each === 'number');
}

export function readError(error: unknown): ChildError {
  if (!isMembers(error)) throw new FrameError(`error is ${show(error)}; it must be an object`);
  const { counts, message, retry, stack, type } = error;
  return {
    type: typeof type === 'string' ? type : 'Error',
    message: typeof message === 'string' ? message : show(message),
    stack: typeof stack === 'string' ? stack : undefined,
    retry: retry === 'never' || (typeof retry === 'number' && retry >= 0) ? retry : 'default',
    ...(counts === false && { counts }),
  };
}

/** What is no number is left out: a start does not fail for it. */
function readMarks({ importMs, upAt }: Members): StartMarks {
  return {
    ...(typeof upAt === 'number' && { upAt }),
    ...(typeof importMs === 'number' && { importMs }),
  };
}

function readNames(names: unknown): string[] {
  if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return names;
  throw new FrameError(`handlers is ${show(names)}; it must be an array of strings`);
}

function readNumber(head: Members, member: string): number {
  const value = head[member];
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
  throw new FrameError(`${member} is ${show(value)}; it must be a whole number`);
}

function readText(head: Members, member: string): string {
  const value = head[member];
  if (typeof value === 'string') return value;
  throw new FrameError(`${member} is ${show(value)}; it must be a string`);
}

function isMembers(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function show(value: unknown): string {
  try {
    return (JSON.stringify(value) ?? 'undefined').slice(0, 100);
  } catch {
    // Nested too deep for JSON.stringify, or too long for a string.
    return `${typeof value} that cannot be shown`;
  }
}
