// Runs 2,000 jobs while their model process is killed at random.
import { expect, it } from 'vitest';
import { leaveOutWithoutPython } from '../support/python.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { runWithModelKills } from '../support/runs/model-run.ts';

it.skipIf(leaveOutWithoutPython('model-kills.test.ts'))(
  '2,000 jobs end once with their own output while their model process is killed',
  async () => {
    const seed = chooseSeed();
    console.log(`model kills: SEED=${seed}`);
    const run = { jobs: 2_000, kills: 100, random: createRandom(seed) };
    const { repeated, ...result } = await runWithModelKills(run);
    expect(repeated).toBeGreaterThan(0);
    expect(result).toEqual({ kills: 100, wrong: [], exitCode: 0 });
  },
);
