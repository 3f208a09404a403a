// A thread that plays seeds: every `step`th one from `first` on, and says what came of each.
import { parentPort, workerData } from 'node:worker_threads';
import type { WorldEvent } from './ledger.ts';
import { SeedPlayer } from './run-seed.ts';

export interface SeedShare {
  first: number;
  end: number;
  step: number;
}

export interface SeedNews {
  seed: number;
  faults: string[];
  events: ReadonlyMap<WorldEvent, number>;
}

const { first, end, step }: SeedShare = workerData;
// Thousands of errors are part of every seed, and nobody reads where they came from; of a single seed
// somebody may want to know.
if (end - first > step) Error.stackTraceLimit = 0;
const player = new SeedPlayer();
for (let seed = first; seed < end; seed += step) {
  const { faults, events } = await player.play(seed);
  parentPort?.postMessage({ seed, faults, events } satisfies SeedNews);
}
