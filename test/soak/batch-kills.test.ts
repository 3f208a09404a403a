// Runs 2,000 jobs in batches while threads, worker processes, supervisors and the platform are killed at
// random.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runUnderKills } from '../support/runs/kill-run.ts';

it('2,000 jobs in batches end once with their own result while threads and processes are killed', async () => {
  const seed = chooseSeed();
  console.log(`batch kills: SEED=${seed}`);
  const run = {
    jobs: 2_000,
    kills: 60,
    limitMs: 25 * 60_000,
    seed,
    handler: 'perilous-batches.ts',
  };
  const { kills, repeated, ...result } = await runUnderKills(run);
  console.log(`kills: ${JSON.stringify(kills)}, ${repeated} jobs delivered more than once`);
  expect(repeated).toBeGreaterThan(0);
  expect(result).toEqual({ acknowledged: 2_000, wrong: [], changed: [], exitCodes: [0, 0] });
});
