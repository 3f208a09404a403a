// The messages by which a shard borrows starts of a shared limit from the shard that the limit belongs to.
import { z } from 'zod';

/** Reports of one message. */
export const MAX_REPORTS = 128;

const count = z.int().nonnegative();

const ofBucket = {
  limitId: z.string(),
  /** Null: the limit holds for all jobs together. */
  group: z.string().nullable(),
};

const loanReport = z.object({
  ...ofBucket,
  /** Starts since the session began. */
  used: count,
  /** Jobs that run, or may start without asking. */
  slots: count,
  /** Starts that it may still use. */
  permits: count,
  /** Further starts that it wants, and for how many endpoints. */
  want: count,
  weight: count,
  /** A handler pauses the limit for so long; 0: none does. */
  pauseForMs: z.number().nonnegative(),
});
export type LoanReport = z.infer<typeof loanReport>;

export const loanMessage = z.object({
  /** Shard of the limits. */
  home: z.int(),
  /** The shard that asks, and when its queue started: another owner of the shard has a later session. */
  shard: z.int(),
  session: z.number(),
  /** The queue that it is for, as that has named itself; null: it is not known. A message for another one has no effect. */
  term: z.number().nullable(),
  /** Rises with each message of a session: one that another has overtaken has no effect. */
  seq: count,
  /** `rest`: this and the messages before have all that runs since the session began. */
  stage: z.enum(['begin', 'rest', 'on']),
  reports: z.array(loanReport).max(MAX_REPORTS),
});
export type LoanMessage = z.infer<typeof loanMessage>;

const loanGrant = z.object({
  /** Added to what it has. */
  slots: count,
  permits: count,
  /** Others wait: it gives back what it does not need. */
  isWaitedFor: z.boolean(),
  /** After which it asks again if it wants more, ms. */
  waitMs: z.number(),
  /** When the window or a pause lets jobs start, ms from now; null: they do not hold them back. */
  freeInMs: z.number().nullable(),
  pausedForMs: z.number().nonnegative(),
});
export type LoanGrant = z.infer<typeof loanGrant>;

export const loanAnswer = z.object({
  /** The queue that answers. */
  term: z.number(),
  /** One for each report, in their order; null: the limit is unknown there. None for a message to another queue. */
  grants: z.array(loanGrant.nullable()),
});
export type LoanAnswer = z.infer<typeof loanAnswer>;
