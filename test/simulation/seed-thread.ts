// A thread that plays every `step`th seed from `first` and posts the result of each.
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
// Every seed creates thousands of errors, and stacks are slow: keep them only if a single seed is played.
if (end - first > step) Error.stackTraceLimit = 0;
const player = new SeedPlayer();
for (let seed = first; seed < end; seed += step) {
  const { faults, events } = await player.play(seed);
  parentPort?.postMessage({ seed, faults, events } satisfies SeedNews);
}
