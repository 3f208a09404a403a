// A whole batch, as large as one may be, while processes are killed.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runBatchOnOnePlatform } from '../support/runs/batch-run.ts';

const lines = Number(process.env['LINES'] ?? 50_000);
const kills = Number(process.env['KILLS'] ?? 50);

it(`writes one result for each of ${lines} lines while platform and workers are killed`, async () => {
  const seed = chooseSeed();
  console.log(`batches: SEED=${seed}`);
  const result = await runBatchOnOnePlatform({ lines, kills, jobMs: 0, seed });
  const failed = Math.floor((lines + 6) / 10);
  const counts = { total: lines, completed: lines - failed, failed };
  expect(result).toEqual({ status: 'completed', counts, kills, wrong: [] });
});
