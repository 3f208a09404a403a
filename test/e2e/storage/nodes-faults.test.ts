// The short form of test/soak/nodes.test.ts.
import { expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../../support/postgres.ts';
import { chooseSeed } from '../../support/random.ts';
import { describeFlaws, runUnderNodeFaults } from '../../support/runs/node-run.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-faults.test.ts');

it.skipIf(isLeftOut)('ends 60 jobs once with the right result while nodes fail', async () => {
  const seed = chooseSeed(1);
  console.log(`faults of nodes: SEED=${seed}`);
  const result = await runUnderNodeFaults({
    jobs: 60,
    faults: [
      'connection cut after commit',
      'node killed',
      'worker process killed',
      'node paused',
      'node stopped',
      'Postgres crashed',
    ],
    // The shortest pause of the soak. It is longer than a lease, so the node wakes up without its shards.
    longestPauseMs: 12_000,
    limitMs: 200_000,
    seed,
  });
  expect(describeFlaws(result, 60)).toEqual([]);
});
