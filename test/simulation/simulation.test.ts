// Plays seeds of the simulation. `SEED=…` repeats one seed; `SEEDS=…` sets their number; `FULL` is set by test:full.
import './global-time.ts';

import { describe, expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { EVENTS } from './ledger.ts';
import { NODE_EVENTS } from './nodes/node-events.ts';
import { playNodes } from './nodes/play-nodes.ts';
import { playSeeds } from './play-seeds.ts';

const isRepeated = process.env['SEED'] !== undefined;
const isSoak = process.env['SEEDS'] !== undefined;
const first = chooseSeed(isSoak ? undefined : 1);
const isFull = process.env['FULL'] !== undefined;
const count = Number(process.env['SEEDS'] ?? (isRepeated ? 1 : isFull ? 500 : 60));
/** With fewer seeds an event may be missing by chance. */
const ENOUGH_FOR_ALL = 500;
const TOLD_EVERY = 5_000;
const COMPARED = isFull ? 40 : 5;

describe('queue and workers under simulated faults', () => {
  it(`keep their promises over ${count} seeds`, { timeout: 24 * 3_600_000 }, async () => {
    console.log(`SEED=${first} to ${first + count - 1}`);
    const onProgress = (played: number) => {
      if (played % TOLD_EVERY === 0) console.log(`${played} seeds played`);
    };
    const { played, wrong, events } = await playSeeds({
      ...{ kind: 'platform', first, count, onProgress },
    });
    expect(wrong).toEqual([]);
    expect(played).toBe(count);
    if (count < ENOUGH_FOR_ALL) return;
    console.log(`events: ${JSON.stringify(Object.fromEntries(events))}`);
    expect(EVENTS.filter((event) => !events.has(event))).toEqual([]);
  });

  it('behave the same for the same seed on both stores', { timeout: 24 * 3_600_000 }, async () => {
    const { played, wrong } = await playSeeds({ kind: 'stores', first, count: COMPARED });
    expect(wrong).toEqual([]);
    expect(played).toBe(COMPARED);
  });
});

describe('three nodes on one database under simulated faults', () => {
  it(`keep their promises over ${count} seeds`, { timeout: 24 * 3_600_000 }, async () => {
    const onProgress = (played: number) => {
      if (played % TOLD_EVERY === 0) console.log(`${played} seeds of nodes played`);
    };
    const { played, wrong, events } = await playSeeds({ kind: 'nodes', first, count, onProgress });
    expect(wrong).toEqual([]);
    expect(played).toBe(count);
    if (count < ENOUGH_FOR_ALL) return;
    console.log(`events: ${JSON.stringify(Object.fromEntries(events))}`);
    expect(NODE_EVENTS.filter((event) => !events.has(event))).toEqual([]);
  });

  it('play the same for the same seed', async () => {
    const [once, again] = [await playNodes(first), await playNodes(first)];
    expect(again.trace).toEqual(once.trace);
    expect(once.trace.length).toBeGreaterThan(0);
  });
});
