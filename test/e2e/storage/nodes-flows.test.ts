// Flows and `after` over endpoints of several shards on two nodes, while one of them is killed and started again: each job
// runs once after its parents, and each flow counts each end.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../../src/client.ts';
import type { Script } from '../../support/handlers/api-script.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';

const ENDPOINTS = ['a', 'b', 'c', 'd'];
const FLOWS = 20;
const LIMIT_MS = 120_000;
const PATIENCE = { timeout: LIMIT_MS, interval: 100 };

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-flows.test.ts');
const quick: Script = { steps: [], answer: 'done' };
/** A chain through all endpoints, and a join. */
const GRAPH = {
  jobs: [
    ...ENDPOINTS.map((endpoint, index) => ({
      ...{ name: `first-${endpoint}`, endpoint, input: quick },
      after: index === 0 ? [] : [`first-${ENDPOINTS[index - 1]}`],
    })),
    ...ENDPOINTS.map((endpoint) => ({ name: `free-${endpoint}`, endpoint, input: quick })),
    {
      ...{ name: 'join', endpoint: 'b', input: quick },
      after: [...ENDPOINTS.map((endpoint) => `free-${endpoint}`), 'first-d'],
    },
  ],
};

describe.skipIf(isLeftOut)('flows on two nodes', () => {
  let server: PostgresServer;
  let nodes: NodeProcesses;
  let client: Client;

  beforeAll(async () => {
    server = await PostgresServer.start();
    nodes = await NodeProcesses.start({
      ...{ store: server.url(), count: 2, shards: 4, endpoints: ENDPOINTS },
    });
    const { adminKey: key, url } = nodes.at(0);
    client = createClient({ url, key, endpoint: 'a' });
    for (const endpoint of ENDPOINTS) {
      const worker = nodes.at(0).startWorker(endpoint, 'api-script.ts');
      await worker.find(/connected/);
    }
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
  });

  it('have their endpoints on both nodes', async () => {
    const owners = 'select count(distinct owner) from shard where owner is not null';
    await expect.poll(() => server.query(owners), PATIENCE).toBe('2');
  });

  it('let a job wait for one of another shard, with its output', async () => {
    for (const endpoint of ['b', 'c', 'd']) {
      const { id } = await client.run(quick);
      const child = createClient({ url: nodes.at(0).url, key: nodes.at(0).adminKey, endpoint });
      const after = [{ id, endpoint: 'a', as: 'given' }];
      const { id: childId } = await child.run(quick, { after });
      await expect
        .poll(async () => (await child.status(childId)).status, PATIENCE)
        .toBe('COMPLETED');
    }
  });

  it('end after the kill of a node, each job once', async () => {
    const flows = await Promise.all(
      Array.from({ length: FLOWS / 2 }, () => client.flows.run(GRAPH)),
    );
    const killed = nodes.at(1);
    killed.process.child.kill('SIGKILL');
    await killed.process.exited;
    const submitted = Array.from({ length: FLOWS / 2 }, async () => {
      for (;;) {
        const flow = await client.flows.run(GRAPH).catch(() => undefined);
        if (flow) return flow;
      }
    });
    flows.push(...(await Promise.all(submitted)));
    await nodes.add();
    for (const { id } of flows) {
      await expect
        .poll(async () => (await client.flows.show(id)).status, PATIENCE)
        .toBe('COMPLETED');
      expect((await client.flows.show(id)).counts).toMatchObject({ completed: GRAPH.jobs.length });
    }
  });
});
