// A thread that plays every `step`th seed from `first` in one kind of world, and posts the result of each.
import { parentPort, workerData } from 'node:worker_threads';
import { MemoryStore } from './memory-store.ts';
import { playNodes } from './nodes/play-nodes.ts';
import { FEW_LIVE_JOBS, openSqlite, SeedPlayer } from './run-seed.ts';

/** `nodes`: several platforms on one database. `stores`: a platform that must do the same on both stores. */
export type WorldKind = 'platform' | 'nodes' | 'stores';

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

/**
 * Stays open while the platform restarts, as the SQLite store does. A store that is opened anew has forgotten the last turns
 * of groups without waiting jobs, and may give two jobs of one priority in the other order.
 */
class OpenStore extends MemoryStore {
  override restart(): void {}
}

const { first, end, kind, step }: SeedShare = workerData;
// Every seed creates thousands of errors, and stacks are slow: keep them only if a single seed is played.
if (end - first > step) Error.stackTraceLimit = 0;
const player = new SeedPlayer();
const play = {
  nodes: playNodes,
  platform: (seed: number) => player.play(seed),
  stores: playOnBoth,
};
for (let seed = first; seed < end; seed += step) {
  const { faults, events } = await play[kind](seed);
  parentPort?.postMessage({ seed, faults, events } satisfies SeedNews);
}

async function playOnBoth(seed: number) {
  // New stores with the same windows: with others, a search for jobs of groups stops elsewhere.
  const sqlite = openSqlite();
  const inMaps = await player.play(seed, new OpenStore(FEW_LIVE_JOBS));
  const { events, trace } = await player.play(seed, sqlite);
  await sqlite.close();
  const longer = Math.max(trace.length, inMaps.trace.length);
  const at = Array.from({ length: longer }, (_, n) => n).find((n) => trace[n] !== inMaps.trace[n]);
  const faults = at === undefined ? [] : [`SQLite: ${trace[at]}`, `in memory: ${inMaps.trace[at]}`];
  return { faults, events };
}
