// The bill of three nodes while nodes are killed and paused: each pod costs what its engine has recorded, to the ms.
import { expect, it } from 'vitest';
import { leaveOutWithoutPostgres } from '../support/postgres.ts';
import { chooseSeed } from '../support/random.ts';
import { runBilledPods } from '../support/runs/billing-run.ts';

const minutes = Number(process.env['MINUTES'] ?? 5);
const isLeftOut = leaveOutWithoutPostgres('test/soak/node-billing.test.ts');

it.skipIf(isLeftOut)('bills pods and volumes once while nodes fail', async () => {
  const seed = chooseSeed();
  console.log(`bill of nodes: SEED=${seed}`);
  const { flaws, ...seen } = await runBilledPods({ forMs: minutes * 60_000, seed });
  console.log(`bill of nodes: ${JSON.stringify(seen)}`);
  expect(flaws).toEqual([]);
  expect(seen.pods).toBeGreaterThan(seen.unseen);
});
