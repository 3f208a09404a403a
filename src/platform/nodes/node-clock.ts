// The clock of a node: the database's time, so that the nodes agree however their own clocks are set.
import { type ResumableClock, SteadyTime, systemClock } from '../../base/clock.ts';

/** `databaseNow`: Unix ms. */
export function createNodeClock(databaseNow: () => number): ResumableClock {
  const time = new SteadyTime({ wall: databaseNow, monotonic: () => performance.now() });
  const { monotonic, now, startFrom } = time;
  return { monotonic, now, startFrom, after: (ms, act) => systemClock.after(ms, act) };
}
