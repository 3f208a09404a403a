// Runs 2,000 jobs on three nodes while nodes, Postgres, connections and workers fail at random.
import { expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { describeFlaws, runUnderNodeFaults } from '../support/runs/node-run.ts';

const jobs = Number(process.env['JOBS'] ?? 2_000);
const faults = Number(process.env['FAULTS'] ?? 60);
const isLeftOut = leaveOutWithoutPostgres('test/soak/nodes.test.ts');

it.skipIf(isLeftOut)(
  `${jobs} jobs end once with the right result under ${faults} faults`,
  async () => {
    const seed = chooseSeed();
    console.log(`faults of nodes: SEED=${seed}`);
    const result = await runUnderNodeFaults({ jobs, faults, limitMs: 25 * 60_000, seed });
    expect(describeFlaws(result, jobs)).toEqual([]);
  },
);
