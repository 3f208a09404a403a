// Runs 200,000 short jobs while worker processes, supervisors and the platform are killed at random.
import { expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { runManyJobs } from '../support/runs/many-jobs-run.ts';

const jobs = Number(process.env['JOBS'] ?? 200_000);

it(`${jobs} jobs end once with the right output while processes are killed`, async () => {
  const seed = chooseSeed();
  console.log(`many jobs: SEED=${seed}`);
  const onProgress = (acknowledged: number) => console.log(`${acknowledged} jobs acknowledged`);
  const { kills, ...result } = await runManyJobs({ jobs, kills: 42, seed, onProgress });
  console.log(`kills: ${JSON.stringify(kills)}`);
  expect(result).toEqual({ acknowledged: jobs, wrong: [], exitCodes: [0, 0] });
});
