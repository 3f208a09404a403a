// What shards tell each other about the edges between their jobs.
import { z } from 'zod';
import type { JobChild, JobKey } from '../../store/store.ts';
import { PARENT_ENDS, type ParentEnd } from '../../wire/job/job.ts';

export interface EndedMessage {
  type: 'ended';
  parent: JobKey;
  status: ParentEnd;
  /** Of one shard. */
  children: readonly JobChild[];
}

export type HandoverMessage =
  /** The parent has ended: for its children. */
  | EndedMessage
  /** A job waits for the parent: for the parent. */
  | { type: 'child'; parent: JobKey; child: JobChild }
  /** The child does not need the output of the parent any more: for the parent. */
  | { type: 'reader_left'; parent: JobKey; child: JobKey };

export interface AddressedMessage {
  /** The shard that gets the message. */
  shard: number;
  message: HandoverMessage;
}

/** Children that one message tells. */
export const MAX_TOLD = 128;

const key = z.object({ endpointId: z.string(), id: z.string() });
const child = key.extend({
  shard: z.number().exactOptional(),
  reads: z.literal(true).exactOptional(),
  round: z.number().exactOptional(),
});

export const handoverMessage: z.ZodType<HandoverMessage> = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('ended'),
    parent: key,
    status: z.enum(PARENT_ENDS),
    children: z.array(child).max(MAX_TOLD),
  }),
  z.object({ type: z.literal('child'), parent: key, child }),
  z.object({ type: z.literal('reader_left'), parent: key, child: key }),
]);

/** How many jobs the message may change. */
export function weigh(message: HandoverMessage): number {
  return message.type === 'ended' ? message.children.length : 1;
}
