// What is decided about the number of an endpoint's workers: what it was decided from, what came of it,
// and why. All times within are Unix ms.
import { z } from 'zod';
import { ENDPOINT_TYPES, endpointScaler } from './endpoint.ts';

/** `draining`: it gets nothing new, or is being ended, and still takes a place. */
const WORKER_STATES = ['starting', 'ready', 'draining'] as const;

const scaledWorker = z.object({
  /** The pod's. */
  id: z.string(),
  state: z.enum(WORKER_STATES),
  /** Jobs or requests that it has now. */
  jobs: z.int(),
  /** Since when it has had nothing to do; null: it has, or takes none yet. */
  idleSince: z.number().nullable(),
  /** Made as it would be made now; the others are to be replaced. */
  isCurrent: z.boolean(),
  /** What its user did to it, of a worker that its user stopped or terminated. */
  reason: z.string().exactOptional(),
});
export type ScaledWorker = z.infer<typeof scaledWorker>;

const scalerInput = z.object({
  now: z.number(),
  type: z.enum(ENDPOINT_TYPES),
  workersMin: z.int(),
  workersMax: z.int(),
  idleTimeoutMs: z.int(),
  scaler: endpointScaler,
  load: z.object({
    /** Jobs that could be taken at once. */
    waiting: z.int(),
    /** Jobs that workers have; of a load-balancing endpoint all requests, those that wait included. */
    running: z.int(),
    /** When the job that has waited longest was queued. */
    oldestQueuedAt: z.number().nullable(),
    /** The most that were waiting and running together at one time of the last idle timeout. */
    peak: z.int(),
  }),
  workers: z.array(scaledWorker),
  /** When one was last started. */
  lastStartAt: z.number().nullable(),
  /** What the last decision wanted; null: there was none. */
  lastWant: z.int().nullable(),
  crashes: z.object({
    /** In a row: workers that ended without having been of any use. */
    streak: z.int(),
    /** None is started before. */
    notBefore: z.number(),
    /** What became of the last one. */
    reason: z.string().nullable(),
  }),
  /** Workers for which there is a GPU; null: as many as wanted. */
  places: z.int().nullable(),
  /** Workers that fit on the machine; left out: all that are wanted. */
  headroom: z.object({ places: z.int(), shortage: z.string() }).exactOptional(),
});
export type ScalerInput = z.infer<typeof scalerInput>;

/** Why, in one word: a change of it is worth a record. */
const SCALER_CAUSES = [
  'first',
  'delay',
  'count',
  'minimum',
  'rolling',
  'idle',
  'surplus',
  'above_maximum',
  'at_maximum',
  'no_gpu',
  'no_room',
  'crashed',
  'enough',
] as const;
export type ScalerCause = (typeof SCALER_CAUSES)[number];

const scalerDecision = z.object({
  /** Workers that there should be. */
  want: z.int(),
  /** How many are started now. */
  start: z.int(),
  /** Those that get nothing new from now on, and leave when they have done what they have. */
  drain: z.array(z.string()),
  cause: z.enum(SCALER_CAUSES),
  /** One sentence for people. */
  reason: z.string(),
});
export type ScalerDecision = z.infer<typeof scalerDecision>;

/** A decision as it is kept and shown: the same input leads to it again. */
export const decisionRecord = z.object({
  at: z.iso.datetime(),
  ...scalerDecision.shape,
  /** The pods that were started. */
  started: z.array(z.object({ pod: z.string(), gpu: z.string().nullable() })),
  input: scalerInput,
});
export type DecisionRecord = z.infer<typeof decisionRecord>;

/** Newest first. */
export const decisionList = z.object({
  decisions: z.array(decisionRecord),
  cursor: z.string().exactOptional(),
});
