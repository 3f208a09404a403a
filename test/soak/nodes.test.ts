// Runs 2,000 jobs on three nodes while nodes, Postgres, connections and workers fail at random.
import { expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { runUnderNodeFaults } from '../support/runs/node-run.ts';

const jobs = Number(process.env['JOBS'] ?? 2_000);
const faults = Number(process.env['FAULTS'] ?? 60);
const isLeftOut = leaveOutWithoutPostgres('test/soak/nodes.test.ts');

it.skipIf(isLeftOut)(
  `${jobs} jobs end once with the right result under ${faults} faults`,
  async () => {
    const seed = chooseSeed();
    console.log(`faults of nodes: SEED=${seed}`);
    const { acknowledged, changed, exitCodes, hung, leakedConnections, unserved, wrong, ...seen } =
      await runUnderNodeFaults({ jobs, faults, limitMs: 60 * 60_000, seed });
    console.log(JSON.stringify(seen, null, 2));
    expect({ acknowledged, wrong, changed, hung, leakedConnections, unserved }).toEqual({
      ...{
        acknowledged: jobs,
        wrong: [],
        changed: [],
        hung: [],
        leakedConnections: 0,
        unserved: [],
      },
    });
    expect(new Set(exitCodes)).toEqual(new Set([0]));
  },
);
