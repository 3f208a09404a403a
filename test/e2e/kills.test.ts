// The short form of test/soak/kills.test.ts.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runUnderKills } from '../support/runs/kill-run.ts';

it('ends 120 jobs once with the right result while threads and processes are killed', async () => {
  const seed = chooseSeed(1);
  console.log(`kills: SEED=${seed}`);
  const run = { jobs: 120, kills: 6, limitMs: 200_000, seed };
  const { kills, repeated, ...result } = await runUnderKills(run);
  console.log(`kills: ${JSON.stringify(kills)}, ${repeated} jobs delivered more than once`);
  expect(Object.keys(kills)).toHaveLength(6);
  expect(repeated).toBeGreaterThan(0);
  expect(result).toEqual({ acknowledged: 120, wrong: [], changed: [], exitCodes: [0, 0] });
});
