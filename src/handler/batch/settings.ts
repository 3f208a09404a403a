// How the jobs of one thread form batches, read from the `batch` member of a handler's definition, and what
// happens to batches.
import type { HandlerConfig } from '../define.ts';

/** See BatchOptions. */
export interface BatchSettings {
  readonly maxSize: number;
  readonly maxWaitMs: number;
  readonly maxInFlight: number;
}

export type BatchEvent =
  /** `of`: size of a full batch. `waitMs`: how long its first job waited for it. */
  | {
      readonly kind: 'started';
      readonly size: number;
      readonly of: number;
      readonly waitMs: number;
    }
  /** The batch function threw, and the jobs run again in parts. */
  | { readonly kind: 'split'; readonly size: number }
  /** The batch function threw, and no job runs again in this attempt. */
  | { readonly kind: 'failed'; readonly size: number };

/** Throws a HandlerLoadError that says what is wrong. */
type Refuse = (problem: string) => never;

interface ReadBatch {
  readonly settings: BatchSettings;
  readonly key: ((input: unknown) => unknown) | undefined;
}

const RANGES = {
  maxSize: { min: 1, max: 1_024, unit: 'number of jobs' },
  maxWaitMs: { min: 0, max: 10_000, unit: 'number of milliseconds' },
  maxInFlight: { min: 1, max: 16, unit: 'number of batches' },
} as const;
type Setting = keyof typeof RANGES;

const MEMBERS = [...Object.keys(RANGES), 'key'];

/** Returns undefined if the handler takes single jobs. */
export function readBatch(
  value: unknown,
  config: HandlerConfig,
  refuse: Refuse,
): ReadBatch | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'object' || value === null) {
    return refuse(`'batch' must be an object such as { maxSize: 8, maxWaitMs: 10 }`);
  }
  const members: Record<string, unknown> = { ...value };
  const unknown = Object.keys(members).filter((member) => !MEMBERS.includes(member));
  if (unknown.length > 0) {
    refuse(`unknown members of 'batch': ${unknown.join(', ')}; use ${MEMBERS.join(', ')}`);
  }
  if (config.concurrency !== undefined) {
    refuse('config.concurrency does not apply to a batch handler; set batch.maxInFlight');
  }
  if (config.isolation === 'job') {
    refuse("config.isolation 'job' gives each job its own thread, so no batch can form; remove it");
  }
  const read = (setting: Setting, found: unknown): number => {
    const { min, max, unit } = RANGES[setting];
    if (typeof found === 'number' && Number.isInteger(found) && found >= min && found <= max) {
      return found;
    }
    const got = typeof found === 'number' ? found : found === undefined ? 'nothing' : typeof found;
    return refuse(`batch.${setting} must be a whole ${unit} from ${min} to ${max}, got ${got}`);
  };
  return {
    settings: {
      maxSize: read('maxSize', members['maxSize']),
      maxWaitMs: read('maxWaitMs', members['maxWaitMs']),
      maxInFlight: read('maxInFlight', members['maxInFlight'] ?? 1),
    },
    key: readKey(members['key'], refuse),
  };
}

function readKey(value: unknown, refuse: Refuse): ReadBatch['key'] {
  if (value === undefined) return undefined;
  if (isFunction(value)) return (input) => value(input);
  return refuse(`batch.key must be a function, got a ${typeof value}`);
}

function isFunction(value: unknown): value is (...parameters: unknown[]) => unknown {
  return typeof value === 'function';
}
