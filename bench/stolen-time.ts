// How much processor time the hypervisor gave to other virtual machines: figures of a run that lost much are too
// slow, and do not compare with those of another run.
import { readFileSync } from 'node:fs';

type Ticks = { all: number; stolen: number };

/** Sums of all processors since the start of the machine (proc_stat(5)). */
function readTicks(): Ticks {
  const [, ...columns] = (readFileSync('/proc/stat', 'utf8').split('\n')[0] ?? '').split(/\s+/);
  // Guest time is part of user time.
  const ticks = columns.slice(0, 8).map(Number);
  return { all: ticks.reduce((sum, each) => sum + each, 0), stolen: ticks[7] ?? 0 };
}

/** Returns a function that gives the share of processor time stolen since then, in percent. */
export function watchStolenTime(): () => number {
  const before = readTicks();
  return () => {
    const now = readTicks();
    return (100 * (now.stolen - before.stolen)) / Math.max(1, now.all - before.all);
  };
}
