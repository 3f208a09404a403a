// The messages between a worker and its handler threads, and the check of those from a thread: a handler can replace the
// built-ins of its thread, and with them what the thread writes. The worker relies on nothing that is not checked here.
// Threads import only types of this file: they need not load the descriptions.
import type { MessagePort } from 'node:worker_threads';
import type { ProcessGroups } from '../../base/process/process-groups.ts';
import type { AttemptLimits } from '../../handler/attempt/invoke.ts';
import type { StopReason } from '../../handler/attempt/stop.ts';
import { isRetryPolicy, type RetryPolicy } from '../../wire/job/retry-policy.ts';
import {
  type Field,
  FieldFault,
  flag,
  list,
  number,
  type OptionalField,
  optional,
  record,
  type TypeOf,
  text,
  union,
  whole,
  word,
} from '../../wire/link/fields.ts';
import {
  attemptOutcome,
  type Device,
  type LeaseSchedule,
  PARK_WAYS,
  stepName,
} from '../../wire/link/worker-link.ts';
import type { Packet } from './port-outbox.ts';

/** The one long task of a thread. */
export interface LaneTask {
  port: MessagePort;
  handlerPath: string;
  /** Endpoint of the jobs, for spans; undefined if unknown. */
  endpointId: string | undefined;
  devices: readonly Device[];
  windowBytes: number;
  limits: AttemptLimits;
  /** Folder for the files of the thread's attempts; the first attempt that needs it creates it. */
  tempParent: string;
  /** Folder of Node's compile cache; undefined: the process has none. */
  codeCache: string | undefined;
  /** Whether `loaded` says what the handler's input is. */
  describesInput: boolean;
  /** Process groups that end with the thread. */
  groups: ProcessGroups;
}

/** `number` identifies an attempt within its thread. */
export type ToThread =
  /** Payload: the input, and behind it the memo. */
  | {
      kind: 'job';
      number: number;
      jobId: string;
      attempt: number;
      timeoutMs: number;
      traceparent: string | undefined;
      tracestate: string | undefined;
      s3Config: string | undefined;
      schedule: LeaseSchedule | undefined;
      solo: boolean;
      memoBytes: number;
      /** The platform keeps the results of steps. */
      keepsSteps: boolean;
    }
  | { kind: 'kept'; number: number; count: number }
  | { kind: 'stop'; number: number; reason: StopReason; detail: string | undefined }
  | { kind: 'grant'; number: number; bytes: number }
  /** About the model processes of the thread; answered by `parking` with the same number. */
  | { kind: 'parking'; number: number; act: ParkingAct }
  /** `thenWait`: the thread waits to be ended after the teardown. */
  | { kind: 'teardown'; thenWait: boolean };

/**
 * `probe`: whether `suspend` may work. `suspend`: parks in the middle of calls, and all attempts stand still until `wake`, also if
 * it fails.
 */
export type ParkingAct = 'describe' | 'probe' | 'park' | 'suspend' | 'end' | 'wake';

const count = whole({ max: Number.MAX_SAFE_INTEGER });

/** The member may also be present and undefined. */
function maybe<T>(field: Field<T>): OptionalField<T | undefined> {
  return optional<T | undefined>(field);
}

const retryPolicy: Field<RetryPolicy> = {
  shape: { kind: 'record', fields: {} },
  read(value) {
    if (isRetryPolicy(value)) return value;
    throw new FieldFault('must be a retry policy');
  },
};

const loadedConfig = record({
  timeoutMs: optional(number),
  concurrency: optional(count),
  setupTimeoutMs: optional(number),
  isolation: optional(word(['thread', 'job'])),
  refreshWorker: optional(flag),
  failOnReturnedError: optional(flag),
  batch: optional(record({ maxSize: count, maxWaitMs: number, maxInFlight: count })),
  retry: optional(retryPolicy),
  describedInput: optional(union('kind', { schema: { text: text() }, none: { reason: text() } })),
});

const fromThread = union('kind', {
  /** Sent before any code of the handler runs. */
  up: { threadId: count, heapLimitBytes: number },
  loaded: { config: loadedConfig },
  ready: {},
  /** The module could not be loaded, the named check failed, or setup threw. */
  failed: { reason: text(), check: maybe(text()) },
  /** Payload: the chunks' JSON joined by commas. */
  chunks: { number: count, sizes: list(count, { min: 1, max: Number.POSITIVE_INFINITY }) },
  /** Payload: JSON. */
  progress: { number: count },
  pause: { number: count, forMs: count, limit: maybe(text()) },
  /** Payload: the result of the step, JSON. */
  step: { number: count, name: stepName },
  held: { number: count, isHeld: flag },
  /** Payload: NDJSON. Without a number it belongs to the thread, not to an attempt. */
  log: { number: maybe(count), dropped: count },
  /** Payload: the output, if there is one. The outcome is checked as the platform checks it, which would refuse the report. */
  end: {
    number: count,
    outcome: attemptOutcome,
    recycle: maybe(flag),
    contextLoss: maybe(text()),
  },
  /** From the thread of a batch handler, when its capacity may have changed. */
  capacity: {
    /** Number of the last job that the thread had received. */
    received: count,
    /** Further jobs that could start now or when an incomplete batch starts. */
    free: number,
    /** Jobs that wait for their batch to start. */
    waiting: number,
    /** Time until an incomplete batch starts and takes its free places with it, ms. */
    fillMs: maybe(number),
  },
  parking: {
    number: count,
    /** Of all model processes; absent if there are none, or not all can be parked. */
    way: maybe(word(PARK_WAYS)),
    /** All of them may be suspended. */
    canSuspend: maybe(flag),
    /** Device memory that came free; absent if a model process is parked whose hooks do not tell it. */
    bytes: maybe(count),
    failure: maybe(record({ message: text(), hasNoRoom: flag })),
  },
  /** A model process is ready: parts of its start, ms. */
  model_started: { interpreterMs: maybe(whole()), importMs: maybe(whole()), setupMs: whole() },
  batch: {
    event: union('kind', {
      started: { size: number, of: number, waitMs: number },
      split: { size: number },
      failed: { size: number },
    }),
  },
  /** Teardown has run; the thread waits to be ended. */
  torn_down: {},
  /** Sent when the thread ends, with the attempt whose code caused the end, if known. */
  exit: {
    code: whole({ min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER }),
    number: maybe(count),
    /** `process.exit`, an uncaught exception, or an unhandled rejection. */
    because: word(['exit', 'uncaught', 'rejection']),
    /** The exception or the rejection, as the thread has it: the errors within it do not leave the thread. */
    thrown: maybe(record({ message: text(), type: optional(text()), stack: optional(text()) })),
  },
});

export type ParkingAnswer = Omit<Extract<FromThread, { kind: 'parking' }>, 'kind' | 'number'>;
export type FromThread = TypeOf<typeof fromThread>;
export type ThreadEnding = Extract<FromThread, { kind: 'exit' }>;
/** What a thread reports about its batches. */
export type ReportedCapacity = Omit<Extract<FromThread, { kind: 'capacity' }>, 'kind'>;

/** What a thread has posted; undefined if that is invalid. */
export function readPacket(packet: unknown): Packet<FromThread> | undefined {
  if (typeof packet !== 'object' || packet === null) return undefined;
  const { messages: posted, payloads, shared }: Partial<Packet<unknown>> = packet;
  if (!Array.isArray(posted) || !Array.isArray(payloads)) return undefined;
  if (shared !== undefined && !(shared instanceof Uint8Array)) return undefined;
  let sharedBytes = 0;
  const messages: FromThread[] = [];
  for (const [index, each] of posted.entries()) {
    const payload: unknown = payloads[index];
    const message = read(fromThread, each);
    const bytes = readLength(payload);
    if (!message || bytes === undefined) return undefined;
    if (message.kind === 'chunks' && !fits(message.sizes, bytes)) return undefined;
    if (typeof payload === 'number') sharedBytes += bytes;
    messages.push(message);
  }
  return sharedBytes === (shared?.length ?? 0) ? { messages, payloads, shared } : undefined;
}

/** A number: the payload is in the shared block. */
function readLength(payload: unknown): number | undefined {
  if (payload === undefined) return 0;
  return payload instanceof Uint8Array ? payload.length : read(count, payload);
}

/** Undefined if the value does not fit. */
function read<T>(field: Field<T>, value: unknown): T | undefined {
  try {
    return field.read(value);
  } catch (error) {
    if (error instanceof FieldFault) return undefined;
    throw error;
  }
}

/** Whether chunks of these sizes, joined by commas, have so many bytes. */
function fits(sizes: readonly number[], bytes: number): boolean {
  return sizes.reduce((sum, size) => sum + size, sizes.length - 1) === bytes;
}
