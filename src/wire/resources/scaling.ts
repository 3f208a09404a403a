// Schemas of a scaling decision (its input, its result and its reason), and of what the scaler knows of an endpoint's
// workers. All times inside are Unix ms.
import { z } from 'zod';
import { answerJson, describeOperations, PAGE_PARAMETERS } from '../operations/operation.ts';
import { describePage } from '../operations/resource.ts';
import { SCALER_ROUTES } from '../routes/routes.ts';
import { endpointScaler } from './endpoint.ts';
import { ENDPOINT_TYPES } from './fields.ts';

/**
 * `draining`: gets no new jobs or is being ended, but still counts as a worker. `parked`: has left its GPU, or is about to; it
 * counts only where it is woken. `suspended`: the same in the middle of its jobs; it counts as a worker.
 */
const WORKER_STATES = ['starting', 'ready', 'draining', 'parked', 'suspended'] as const;

const scaledWorker = z.object({
  /** ID of the worker's pod. */
  id: z.string(),
  state: z.enum(WORKER_STATES),
  /** Jobs or requests that the worker has now. */
  jobs: z.int(),
  /** Since when the worker has been idle; null if it is busy or not ready yet. */
  idleSince: z.number().nullable(),
  /** Has the current template and GPU type; otherwise it is due for replacement. */
  isCurrent: z.boolean(),
  /** Not set for workers without a GPU. */
  gpuType: z.string().exactOptional(),
  /** Can be parked instead of being drained. */
  canPark: z.literal(true).exactOptional(),
  /** Set for a parked worker. */
  parking: z
    .object({
      since: z.number(),
      /** Its GPU is free and kept for it. */
      canWake: z.boolean(),
      /** The host has too little memory for it. */
      lacksMemory: z.boolean(),
      /** A spare worker that has its GPU, because it still starts. */
      isStarting: z.literal(true).exactOptional(),
    })
    .exactOptional(),
  /** Set if a user has stopped or terminated the worker. */
  reason: z.string().exactOptional(),
});
export type ScaledWorker = z.infer<typeof scaledWorker>;

/** A worker whose GPU jobs of another endpoint wait for. */
const giveWay = z.object({
  /** ID of its pod. */
  worker: z.string(),
  /** Name of the endpoint that gets the GPU; null: another user owns it. */
  to: z.string().nullable(),
  /** Since when that endpoint has waited. */
  since: z.number(),
  /** The worker gives way although it has jobs. */
  isTurnOver: z.boolean(),
});
export type GiveWay = z.infer<typeof giveWay>;

/** A worker whose GPU urgent jobs of another endpoint get at once. */
const preemption = z.object({
  /** ID of its pod. */
  worker: z.string(),
  /** Name of the endpoint that gets the GPU. */
  to: z.string(),
  /** Since when that endpoint has waited. */
  since: z.number(),
  /** Of the most urgent job that waits. */
  priority: z.int(),
});
export type Preemption = z.infer<typeof preemption>;

const scalerInput = z.object({
  now: z.number(),
  type: z.enum(ENDPOINT_TYPES),
  /** With the open windows of `workersSchedule`. */
  workersMin: z.int(),
  /** When the windows change next, if one of them raises `workersMin` now. */
  raisedUntil: z.number().exactOptional(),
  workersMax: z.int(),
  idleTimeoutMs: z.int(),
  /** Longest time for which a worker is parked; left out: no worker is. */
  parkMs: z.int().exactOptional(),
  /** Workers to keep parked, ready for more load; left out: none. */
  spares: z
    .object({
      count: z.int(),
      /** Why none can start, or need not be tried now. */
      obstacle: z.string().exactOptional(),
    })
    .exactOptional(),
  scaler: endpointScaler,
  load: z.object({
    /** Jobs that a worker could take now. */
    waiting: z.int(),
    /** Running jobs; of a load-balancing endpoint all open requests, waiting ones included. */
    running: z.int(),
    /** When the oldest waiting job was queued. */
    oldestQueuedAt: z.number().nullable(),
    /** Highest number of waiting and running jobs at one time during the last idle timeout. */
    peak: z.int(),
    /** Waiting jobs that ran out of memory on a GPU type and need a later one of the endpoint's list. */
    outgrown: z
      .array(z.object({ gpuType: z.string(), waiting: z.int(), oldestQueuedAt: z.number() }))
      .exactOptional(),
  }),
  workers: z.array(scaledWorker),
  /** When the last worker was started. */
  lastStartAt: z.number().nullable(),
  /** Number of workers that the last decision wanted; null without one. */
  lastWant: z.int().nullable(),
  crashes: z.object({
    /** Number of workers in a row that failed before they were ready. */
    streak: z.int(),
    /** No worker starts before this time. */
    notBefore: z.number(),
    /** Reason of the last failure. */
    reason: z.string().nullable(),
    /** The last one could not load the handler. */
    isHandler: z.boolean().exactOptional(),
  }),
  /** Number of free GPUs of the endpoint's types; null for workers without a GPU. */
  places: z.int().nullable(),
  /** The endpoint's GPU types in their order, with the number of free ones; set if some jobs need a later type. */
  gpus: z.array(z.object({ id: z.string(), free: z.int() })).exactOptional(),
  /** Workers that are to give way to other endpoints; left out: none. */
  giveWay: z.array(giveWay).exactOptional(),
  /** Workers whose jobs are to be suspended; left out: none. */
  preempted: z.array(preemption).exactOptional(),
  /** IDs of suspended workers whose jobs are to go on; left out: none. */
  resumed: z.array(z.string()).exactOptional(),
  /** Workers that fit on the machine; left out: all that are wanted. */
  headroom: z
    .object({
      places: z.int(),
      shortage: z.string(),
      /** Limited by a budget, not by capacity. */
      budget: z.literal(true).exactOptional(),
    })
    .exactOptional(),
});
export type ScalerInput = z.infer<typeof scalerInput>;

/** Why the decision was made; a new cause is worth a record. */
const SCALER_CAUSES = [
  'first',
  'delay',
  'count',
  'next_gpu',
  'minimum',
  'rolling',
  'idle',
  'surplus',
  'above_maximum',
  'gives_way',
  'preempted',
  'resumed',
  'parked_ends',
  'spare',
  'no_spare',
  'at_maximum',
  'no_gpu',
  'no_capacity',
  'budget',
  'crashed',
  'enough',
] as const;
export type ScalerCause = (typeof SCALER_CAUSES)[number];

const scalerDecision = z.object({
  /** Desired number of workers. */
  want: z.int(),
  /** Workers to start now. */
  start: z.int(),
  /** GPU types of the first ones of these, if jobs need later types; the others get any type. */
  startOn: z.array(z.string()).exactOptional(),
  /** Spare workers to start now; left out: none. */
  startSpares: z.int().exactOptional(),
  /** Workers to drain now. */
  drain: z.array(z.string()),
  /** Workers to park now; left out: none. */
  park: z.array(z.string()).exactOptional(),
  /** Parked workers to wake now; left out: none. */
  wake: z.array(z.string()).exactOptional(),
  /** Workers whose jobs are suspended now; left out: none. */
  suspend: z.array(z.string()).exactOptional(),
  /** Suspended workers whose jobs go on now; left out: none. */
  resume: z.array(z.string()).exactOptional(),
  cause: z.enum(SCALER_CAUSES),
  /** The reason in one sentence. */
  reason: z.string(),
});
export type ScalerDecision = z.infer<typeof scalerDecision>;

/** A decision as it is stored and returned; the same input reproduces it. */
export const decisionRecord = z.object({
  at: z.iso.datetime(),
  ...scalerDecision.shape,
  /** The pods that were started. */
  started: z.array(z.object({ pod: z.string(), gpu: z.string().nullable() })),
  input: scalerInput,
});
export type DecisionRecord = z.infer<typeof decisionRecord>;

/** Newest first. */
export const decisionList = describePage('decisions', decisionRecord);

const EXAMPLE: DecisionRecord = {
  at: '2026-01-15T09:30:12.000Z',
  want: 2,
  start: 1,
  drain: [],
  cause: 'delay',
  reason: 'A job has waited for 5 s, longer than the queue delay of 4 s.',
  started: [{ pod: 'pod_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d73', gpu: 'NVIDIA H200' }],
  input: {
    now: 1_768_469_412_000,
    type: 'QUEUE',
    workersMin: 0,
    workersMax: 4,
    idleTimeoutMs: 30_000,
    scaler: { type: 'QUEUE_DELAY', seconds: 4 },
    load: { waiting: 3, running: 1, oldestQueuedAt: 1_768_469_407_000, peak: 4 },
    workers: [
      {
        id: 'pod_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d74',
        state: 'ready',
        jobs: 1,
        idleSince: null,
        isCurrent: true,
      },
    ],
    lastStartAt: 1_768_469_380_000,
    lastWant: 1,
    crashes: { streak: 0, notBefore: 0, reason: null },
    places: 3,
  },
};

export const SCALER_OPERATIONS = describeOperations('endpoints', SCALER_ROUTES, {
  listScalerDecisions: {
    summary: 'List the last scaling decisions of an endpoint',
    query: PAGE_PARAMETERS,
    answers: answerJson(decisionList, 'One page, the newest first.', { decisions: [EXAMPLE] }),
  },
});

/** The part of a wait reason that the endpoint's queue does not have. */
export const scalingFacts = z.object({
  workersMax: z.int(),
  /** Set if no version of the handler is deployed yet, so that no worker starts. */
  unversioned: z
    .object({
      /** The last deployment; null without one. `reason`: why it failed. */
      rollout: z
        .object({ version: z.int(), isFailed: z.boolean(), reason: z.string().nullable() })
        .nullable(),
    })
    .nullable(),
  /** Workers that count towards `workersMax`, draining ones included. */
  workers: z.int(),
  /** Price of these, USD. */
  costPerHour: z.number(),
  /** Cause and reason of the last decision, and since when the cause holds. */
  cause: z.enum(SCALER_CAUSES),
  reason: z.string(),
  since: z.number(),
  /**
   * The worker of another endpoint that gives a GPU up first, if none is free; without one, a pod. `endpoint`: its name; null if
   * another user owns it. `until`: when it gives way; null if its endpoint keeps it, or if nobody knows.
   */
  holder: z
    .object({
      endpoint: z.string().nullable(),
      until: z.number().nullable(),
      /** Default: a leader of an earlier version knows only idle ones. */
      state: z
        .enum(['idle', 'busy', 'sharing', 'leaving', 'suspending', 'starting', 'pod'])
        .default('idle'),
    })
    .exactOptional(),
  crashes: z.object({
    /** Workers in a row that failed before they were ready. */
    streak: z.int(),
    /** No worker starts before this time; null: none starts before the handler changes. */
    notBefore: z.number().nullable(),
    /** Why the last one failed. */
    reason: z.string().nullable(),
    /** It could not load the handler. */
    isHandler: z.boolean(),
  }),
  /** The worker that has been starting for the longest time; null if none starts. */
  starting: z
    .object({
      podId: z.string(),
      since: z.number(),
      isPulling: z.boolean(),
      /** It was parked, and comes back to its GPU. */
      isWaking: z.literal(true).exactOptional(),
      /** No machine of the engine has capacity for it. */
      lacksRoom: z.literal(true).exactOptional(),
      /** Why its pod waits, if known. */
      reason: z.string().nullable(),
    })
    .nullable(),
});
export type ScalingFacts = z.infer<typeof scalingFacts>;

/** `none`: the platform starts no workers of the endpoint. `unknown`: the scaler has not decided, or does not answer. */
export type KnownScaling = ScalingFacts | 'none' | 'unknown';
