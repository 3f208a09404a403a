// The short form of test/soak/batch-kills.test.ts.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runUnderKills } from '../support/runs/kill-run.ts';

it('120 jobs in batches end once with their own result while threads and processes are killed', async () => {
  const seed = chooseSeed(1);
  console.log(`batch kills: SEED=${seed}`);
  const run = { jobs: 120, kills: 6, limitMs: 200_000, seed, handler: 'perilous-batches.ts' };
  const { kills, repeated, ...result } = await runUnderKills(run);
  console.log(`kills: ${JSON.stringify(kills)}, ${repeated} jobs delivered more than once`);
  expect(repeated).toBeGreaterThan(0);
  expect(result).toEqual({ acknowledged: 120, wrong: [], changed: [], exitCodes: [0, 0] });
});
