// The short form of test/soak/batches.test.ts.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runBatchOnOnePlatform } from '../support/runs/batch-run.ts';

it('writes one result for each line while platform and workers are killed', async () => {
  const seed = chooseSeed(1);
  console.log(`batches: SEED=${seed}`);
  const result = await runBatchOnOnePlatform({ lines: 300, kills: 3, jobMs: 40, seed });
  const counts = { total: 300, completed: 270, failed: 30 };
  expect(result).toEqual({ status: 'completed', counts, kills: 3, wrong: [] });
});
