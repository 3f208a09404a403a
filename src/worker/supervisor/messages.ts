// What a worker process and the supervisor that started it say to each other over the channel
// between them. Both are of one package and version: who checks a message looks at its type.
import type { WorkerHealth } from '../worker.ts';

export type FromWorker =
  /** Before its first call to the platform. */
  | { type: 'identity'; workerId: string; incarnation: number }
  /** It takes jobs. */
  | { type: 'ready' }
  /** Every BEAT_MS: its event loop turns. `ended`: attempts since its start. */
  | { type: 'beat'; running: number; ended: number }
  /** It cannot go on and ends. `isFinal`: nor could another one. `isUnfit`: the machine is not fit. */
  | { type: 'failed'; reason: string; isFinal: boolean; isUnfit: boolean }
  /** It leaves so that a fresh process takes its place. */
  | { type: 'recycling'; reason: string }
  /** It leaves because the platform told it to: nobody is to take its place. */
  | { type: 'dismissed' }
  /** Its last word: it has said bye, and only ends. `code`: with what it means to. */
  | { type: 'farewell'; code: number }
  | { type: 'answer'; number: number; health: WorkerHealth; metrics: unknown };

export type ToWorker =
  /** Leave when the running jobs are done; another one takes the place. */
  | { type: 'recycle'; reason: string }
  /** Give the jobs back and leave. */
  | { type: 'release' }
  | { type: 'ask'; number: number };

export const BEAT_MS = 1_000;

const FROM_WORKER: ReadonlySet<string> = new Set<FromWorker['type']>([
  'identity',
  'ready',
  'beat',
  'failed',
  'recycling',
  'dismissed',
  'farewell',
  'answer',
]);
const TO_WORKER: ReadonlySet<string> = new Set<ToWorker['type']>(['recycle', 'release', 'ask']);

export function isFromWorker(value: unknown): value is FromWorker {
  return hasType(value) && FROM_WORKER.has(value.type);
}

export function isToWorker(value: unknown): value is ToWorker {
  return hasType(value) && TO_WORKER.has(value.type);
}

function hasType(value: unknown): value is { type: string } {
  const isObject = typeof value === 'object' && value !== null && 'type' in value;
  return isObject && typeof value.type === 'string';
}
