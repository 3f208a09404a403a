// Three nodes while nodes, Postgres, connections and workers fail at random.
import { describe, expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { runBilledPods } from '../support/runs/billing-run.ts';
import { describeFlaws, runUnderNodeFaults } from '../support/runs/node-run.ts';

describe('jobs', () => {
  const jobs = Number(process.env['JOBS'] ?? 2_000);
  const faults = Number(process.env['FAULTS'] ?? 60);
  const isLeftOut = leaveOutWithoutPostgres('test/soak/nodes.test.ts');

  it.skipIf(isLeftOut)(
    `end once with the right result under ${faults} faults: ${jobs} jobs`,
    async () => {
      const seed = chooseSeed();
      console.log(`faults of nodes: SEED=${seed}`);
      const result = await runUnderNodeFaults({ jobs, faults, limitMs: 25 * 60_000, seed });
      expect(describeFlaws(result, jobs)).toEqual([]);
    },
  );
});

describe('short jobs', () => {
  const jobs = Number(process.env['JOBS'] ?? 200_000);
  const faults = Number(process.env['FAULTS'] ?? 60);
  const isLeftOut = leaveOutWithoutPostgres('test/soak/nodes.test.ts');

  it.skipIf(isLeftOut)(
    `end once with the right output under ${faults} faults of nodes: ${jobs} jobs`,
    async () => {
      const seed = chooseSeed();
      console.log(`many jobs on nodes: SEED=${seed}`);
      const limitMs = 25 * 60_000;
      const result = await runUnderNodeFaults({ jobs, faults, limitMs, seed, isFast: true });
      expect(describeFlaws(result, jobs).slice(0, 10)).toEqual([]);
    },
  );
});

describe('the bill', () => {
  const minutes = Number(process.env['MINUTES'] ?? 5);
  const isLeftOut = leaveOutWithoutPostgres('test/soak/nodes.test.ts');

  it.skipIf(isLeftOut)('bills pods and volumes once while nodes fail', async () => {
    const seed = chooseSeed();
    console.log(`bill of nodes: SEED=${seed}`);
    const { flaws, ...seen } = await runBilledPods({ forMs: minutes * 60_000, seed });
    console.log(`bill of nodes: ${JSON.stringify(seen)}`);
    expect(flaws).toEqual([]);
    expect(seen.pods).toBeGreaterThan(seen.unseen);
  });
});
