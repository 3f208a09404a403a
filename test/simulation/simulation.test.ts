// Seeds of the simulation: `SEED=…` plays one again, `SEEDS=…` says how many.
import { describe, expect, it } from 'vitest';
import { runSeed } from './run-seed.ts';

const first = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));
const count = Number(process.env['SEEDS'] ?? (process.env['SEED'] === undefined ? 150 : 1));

describe('queue, workers and network under accidents', () => {
  it(`keeps its promises over ${count} seeds`, async () => {
    console.log(`SEED=${first} to ${first + count - 1}`);
    for (let seed = first; seed < first + count; seed++) {
      const faults = await runSeed(seed);
      expect(faults, `repeat with SEED=${seed} npx vitest run test/simulation`).toEqual([]);
    }
  }, 3_600_000);
});
