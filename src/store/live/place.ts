// The order of the ready jobs of an endpoint: higher priorities first, then lower turns, then lower positions.
import type { StoredJob } from '../stored-records.ts';

/** Where a ready job stands. */
export type Place = Pick<StoredJob, 'priority' | 'turn' | 'position'>;

export function comparePlaces(a: Place, b: Place): number {
  return b.priority - a.priority || a.turn - b.turn || a.position - b.position;
}

/** Without the rest of the job, which would stay in memory. */
export function placeOf({ position, priority, turn }: Place): Place {
  return { position, priority, turn };
}
