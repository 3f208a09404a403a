// The call `rates`: a node reports what it has spent of limits, and the leader grants it more.
import { z } from 'zod';

/** Limits of one call. At most 64 KiB with names of 128 bytes. */
export const MAX_REPORTS = 128;

const count = z.number().int().nonnegative();

const report = z.object({
  window: z.string(),
  /** User or worker key. */
  key: z.string(),
  limit: count,
  /** Length of the window, ms. */
  ms: z.number().positive(),
  /** The window as the leader named it; 0 if this leader has not named it. */
  id: count,
  /** Calls that the node has admitted, and those that it may admit in all. */
  spent: count,
  granted: count,
  /** Calls that wait for the answer. */
  waiting: count,
  /** Until the window ends, ms; 0 if it has not begun. */
  endsIn: z.number().nonnegative(),
  /** Calls of all nodes that the previous answer said were granted. */
  used: count,
});
export type RateReport = z.infer<typeof report>;

export const ratesBody = z.object({
  node: z.string(),
  /** Rises with each call of the node; the leader ignores a call that another has overtaken. */
  seq: count,
  /** The leader's term that the node knows. */
  term: z.string(),
  /** The node has reported all of its windows in this term. */
  isComplete: z.boolean(),
  reports: z.array(report).max(MAX_REPORTS),
});
export type RatesBody = z.infer<typeof ratesBody>;

const grant = z.object({
  id: count,
  /** Calls that the node may admit beyond those it knew of. */
  extra: count,
  /** Calls that nobody has been granted yet. */
  left: count,
  /** Calls that a node may hold ahead of need. */
  slice: count,
  endsIn: z.number().nonnegative(),
});
export type RateGrant = z.infer<typeof grant>;

export const ratesAnswer = z.object({
  term: z.string(),
  /** False: the leader is new, and does not know all counts yet. */
  isSettled: z.boolean(),
  /** In the order of the reports. */
  grants: z.array(grant),
});
export type RatesAnswer = z.infer<typeof ratesAnswer>;
