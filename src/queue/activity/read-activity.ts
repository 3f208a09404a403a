// Reads what happens at several endpoints at once.
import type { EndpointActivity } from '../../wire/resources/activity.ts';
import type { Queues } from '../queues.ts';

/** By endpoint; without those that nobody answers for now. Never rejects. */
export type ReadActivity = (
  endpointIds: readonly string[],
) => Promise<Readonly<Record<string, EndpointActivity>>>;

/** Of the endpoints that the queue serves. Never rejects. */
export async function readActivity(
  queue: Pick<Queues, 'activity'>,
  endpointIds: readonly string[],
): Promise<Record<string, EndpointActivity>> {
  const found: Record<string, EndpointActivity> = {};
  await Promise.all(
    endpointIds.map(async (id) => {
      try {
        found[id] = await queue.activity.now(id);
      } catch {
        // The endpoint was deleted, another node has taken it over, or the store fails: its state is not known.
      }
    }),
  );
  return found;
}
