// A batch on two nodes and one Postgres database: the client asks either node, and the owner of the endpoint dies.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { chooseSeed } from '../../support/random.ts';
import { runBatchUnderKills } from '../../support/runs/batch-run.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/batches-nodes.test.ts');
const ENDPOINT = 'requests';

let server: PostgresServer | undefined;
let nodes: NodeProcesses | undefined;

beforeAll(async () => {
  if (isLeftOut) return;
  server = await PostgresServer.start();
  const store = await server.createDatabase();
  nodes = await NodeProcesses.start({ store, count: 2, shards: 2, endpoints: [ENDPOINT] });
});
afterAll(async () => {
  await nodes?.close();
  await server?.stop();
});

it.skipIf(isLeftOut)('has one result for each line after both nodes were killed', async () => {
  if (!nodes) return expect.fail('no nodes');
  const both = nodes;
  const args = ['--threads', '1', '--jobs-per-thread', '16'];
  for (const node of both.all) node.startWorker(ENDPOINT, 'requests.ts', ...args);
  let asked = 0;
  const result = await runBatchUnderKills({
    ...{ lines: 300, kills: 2, jobMs: 20, seed: chooseSeed(1) },
    apiKey: both.at(0).adminKey,
    // Each call asks the other node.
    endpointUrl: () => `${both.at(asked++ % 2).url}/v2/${ENDPOINT}`,
    async kill(n) {
      const node = both.at(n % 2);
      await node.kill();
      await node.restart();
    },
  });
  const counts = { total: 300, completed: 270, failed: 30 };
  expect(result).toEqual({ status: 'completed', counts, kills: 2, wrong: [] });
});
