// A thread that plays every `step`th seed from `first` in one kind of world, and posts the result of each.
import { parentPort, workerData } from 'node:worker_threads';
import { playNodes } from './nodes/play-nodes.ts';
import { SeedPlayer } from './run-seed.ts';

/** `nodes`: several platforms on one database. */
export type WorldKind = 'platform' | 'nodes';

export interface SeedShare {
  kind: WorldKind;
  first: number;
  end: number;
  step: number;
}

export interface SeedNews {
  seed: number;
  faults: string[];
  events: ReadonlyMap<string, number>;
}

const { first, end, kind, step }: SeedShare = workerData;
// Every seed creates thousands of errors, and stacks are slow: keep them only if a single seed is played.
if (end - first > step) Error.stackTraceLimit = 0;
const player = new SeedPlayer();
for (let seed = first; seed < end; seed += step) {
  const { faults, events } = await (kind === 'nodes' ? playNodes(seed) : player.play(seed));
  parentPort?.postMessage({ seed, faults, events } satisfies SeedNews);
}
