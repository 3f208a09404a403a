// What a worker says about an attempt beside its output: the error, where it was stuck, and what it used. Clients see the
// same records. Described as fields of the worker link (link/fields.ts).
import {
  flag,
  number,
  optional,
  record,
  shownAs,
  type TypeOf,
  text,
  whole,
  word,
} from '../link/fields.ts';
import { ERROR_CODES } from './job.ts';

/**
 * The last step that was needed to stop an attempt: signal, `generator.return()`, thread, process.
 */
export const STOP_LEVELS = ['signal', 'return', 'thread', 'process'] as const;
export type StopLevel = (typeof STOP_LEVELS)[number];

const rounded = shownAs({ isWhole: true });
/** Of time, 0 to 1. */
const share = shownAs({ max: 1 });

export const STUCK_STATES = ['running', 'waiting', 'unreachable'] as const;

/** Where an attempt was when it timed out or was stopped by force, as far as known. */
const stuckPlace = record({
  /**
   * `running`: JavaScript in its thread. `waiting`: none of its code ran; a promise had not
   * settled. `unreachable`: the thread did not answer in time; it was in native code, collecting
   * garbage, or without processor time.
   */
  state: word(STUCK_STATES),
  /** Stack of the thread, innermost frame first; at most 8,000 characters. */
  stack: optional(text()),
  /** Chunks that the handler had yielded. */
  chunks: whole(),
  /** Milliseconds since the last chunk. */
  lastChunkMs: optional(rounded),
  /** Share of time that the thread was busy: since the stop was requested, or over the run. */
  eventLoopUtilization: optional(share),
  /** Heap of the thread. */
  heapUsedBytes: optional(rounded),
});
export type StuckPlace = TypeOf<typeof stuckPlace>;

export const attemptError = record({
  code: word(ERROR_CODES),
  message: text(),
  /** Class of the thrown error, if known. */
  type: optional(text()),
  stack: optional(text()),
  stuck: optional(stuckPlace),
});
export type AttemptError = TypeOf<typeof attemptError>;

/** Where the time of a start went, ms: in this order, one after the other. A part that nobody measured is absent. */
export const startParts = record({
  queueMs: optional(whole(), 'Until the pod had its GPUs, and a machine room for it'),
  installMs: optional(whole(), 'Pull of the image, creation of the container, `npm install`'),
  interpreterMs: optional(whole(), 'Until the code of Node.js and of the model process ran'),
  importMs: optional(whole(), 'Import of the handler, and of the packages of the model process'),
  setupMs: optional(whole(), "The rest of the handler's `setup`: it loads the model"),
  firstCallMs: optional(
    whole(),
    'Execution of the first job until its first output; absent until then',
  ),
});
export type StartParts = TypeOf<typeof startParts>;

const PART_NAMES: Readonly<Record<keyof StartParts, string>> = {
  queueMs: 'queue',
  installMs: 'install',
  interpreterMs: 'interpreter',
  importMs: 'import',
  setupMs: 'setup',
  firstCallMs: 'first call',
};

/** For people: the parts that were measured, in their order. */
export function listStartParts(parts: StartParts): { name: string; ms: number }[] {
  // The keys are those of the record.
  return (Object.keys(PART_NAMES) as (keyof StartParts)[]).flatMap((key) => {
    const ms = parts[key];
    return ms === undefined ? [] : [{ name: PART_NAMES[key], ms }];
  });
}

export const VRAM_SCOPES = ['process', 'devices'] as const;

/** What one attempt used of the GPUs of its worker process. */
const gpuUsage = record({
  seconds: {
    ...number,
    about: 'Devices × seconds; an equal share of time with other attempts in the process',
  },
  vramPeakBytes: optional(rounded, 'Highest device memory in use, over all devices of the process'),
  vramMeanBytes: optional(rounded, 'Mean device memory in use'),
  /** `devices`: nvidia-smi did not list the processes of the worker. */
  vramScope: optional(
    word(VRAM_SCOPES),
    '`process`: memory of the worker process and its children; `devices`: of all processes on the devices',
  ),
  utilizationMean: optional(
    share,
    'Share of time in which a kernel ran, mean over the attempt and the devices',
  ),
  energyJoules: optional(
    number,
    'Energy of the devices; an equal share of time with other attempts',
  ),
  shared: {
    ...flag,
    about: 'Other attempts ran in the process; memory and utilization are those of all together',
  },
});
export type GpuUsage = TypeOf<typeof gpuUsage>;

/** What one attempt used. */
export const attemptUsage = record({
  gpu: optional(gpuUsage, 'Absent without a GPU; a figure that nothing measured is absent'),
});
export type AttemptUsage = TypeOf<typeof attemptUsage>;
