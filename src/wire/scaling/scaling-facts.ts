// What the scaler knows of an endpoint's workers: the part of a wait reason that the endpoint's queue does not have.
import { z } from 'zod';
import { SCALER_CAUSES } from './decision.ts';

/** All times are Unix ms. */
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
   * Set if no GPU is free, and an idle worker of another endpoint holds one. `endpoint`: its name; null if another user owns it.
   * `until`: when the worker ends if it stays idle; null if its endpoint keeps it.
   */
  holder: z
    .object({ endpoint: z.string().nullable(), until: z.number().nullable() })
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
