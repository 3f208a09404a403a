// Plays many seeds in parallel threads.
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { SeedNews, SeedShare, WorldKind } from './seed-thread.ts';

/** Most objects of a seed are short-lived: a larger young generation saves a tenth of the time. */
const NURSERY_MB = 64;
/** Playing stops after this many failed seeds. */
const ENOUGH_FAULTS = 5;

export interface PlayedSeeds {
  played: number;
  /** One entry for each failed seed: how to repeat it, and its first faults. */
  wrong: string[];
  /** How often each event happened in all seeds. */
  events: Map<string, number>;
}

export interface SeedRange {
  kind: WorldKind;
  first: number;
  count: number;
  /** Called after each seed with the number of seeds played. */
  onProgress?: (played: number) => void;
}

export async function playSeeds({
  count,
  first,
  kind,
  onProgress,
}: SeedRange): Promise<PlayedSeeds> {
  const result: PlayedSeeds = { played: 0, wrong: [], events: new Map() };
  const step = Math.min(count, availableParallelism());
  const threads = Array.from({ length: step }, (_, place) =>
    startThread({ kind, first: first + place, end: first + count, step }),
  );
  const ends = threads.map(async (thread) => {
    thread.on('message', (news: SeedNews) => {
      addNews(result, news);
      onProgress?.(result.played);
      if (result.wrong.length >= ENOUGH_FAULTS) for (const each of threads) void each.terminate();
    });
    await once(thread, 'exit');
  });
  try {
    await Promise.all(ends);
  } finally {
    await Promise.all(threads.map((thread) => thread.terminate()));
  }
  return result;
}

/** Runs the sources directly: code transformed by the test runner is slower. */
function startThread(share: SeedShare): Worker {
  return new Worker(new URL('./seed-thread.ts', import.meta.url), {
    workerData: share,
    execArgv: [],
    resourceLimits: { maxYoungGenerationSizeMb: NURSERY_MB },
  });
}

function addNews(result: PlayedSeeds, { seed, faults, events }: SeedNews): void {
  result.played++;
  for (const [event, count] of events) {
    result.events.set(event, (result.events.get(event) ?? 0) + count);
  }
  if (faults.length === 0) return;
  const repeat = `SEED=${seed} npx vitest run --project simulation`;
  result.wrong.push([`repeat with ${repeat}`, ...faults.slice(0, 3)].join('\n  '));
}
