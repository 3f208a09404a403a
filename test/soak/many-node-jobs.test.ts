// Submits 200,000 short jobs to three nodes while nodes, Postgres, connections and workers fail at random.
import { expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { describeFlaws, runUnderNodeFaults } from '../support/runs/node-run.ts';

const jobs = Number(process.env['JOBS'] ?? 200_000);
const faults = Number(process.env['FAULTS'] ?? 60);
const isLeftOut = leaveOutWithoutPostgres('test/soak/many-node-jobs.test.ts');

it.skipIf(isLeftOut)(
  `${jobs} short jobs end once with the right output under ${faults} faults of nodes`,
  async () => {
    const seed = chooseSeed();
    console.log(`many jobs on nodes: SEED=${seed}`);
    const limitMs = 25 * 60_000;
    const result = await runUnderNodeFaults({ jobs, faults, limitMs, seed, isFast: true });
    expect(describeFlaws(result, jobs).slice(0, 10)).toEqual([]);
  },
);
