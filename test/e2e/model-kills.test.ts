// The short form of test/soak/model-kills.test.ts.
import { expect, it } from 'vitest';
import { leaveOutWithoutPython } from '../support/python.ts';
import { chooseSeed, createRandom } from '../support/random.ts';
import { runWithModelKills } from '../support/runs/model-run.ts';

it.skipIf(leaveOutWithoutPython('model-kills.test.ts'))(
  '100 jobs end once with their own output while their model process is killed',
  async () => {
    const seed = chooseSeed(1);
    console.log(`model kills: SEED=${seed}`);
    const run = { jobs: 100, kills: 6, random: createRandom(seed) };
    const { repeated, ...result } = await runWithModelKills(run);
    expect(repeated).toBeGreaterThan(0);
    expect(result).toEqual({ kills: 6, wrong: [], exitCode: 0 });
  },
);
