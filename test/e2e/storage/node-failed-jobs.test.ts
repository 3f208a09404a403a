// The list of failed jobs and the states of endpoints, on several nodes.
import { expect, it } from 'vitest';
import { createClient, createPlatform } from '../../../src/client.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/node-failed-jobs.test.ts');
const ENDPOINTS = ['a', 'b', 'c', 'd', 'e', 'f'];

it.skipIf(isLeftOut)('lists the failed jobs of all nodes on each, in pages', async () => {
  const server = await PostgresServer.start();
  let nodes: NodeProcesses | undefined;
  try {
    const store = await server.createDatabase();
    nodes = await NodeProcesses.start({ store, count: 3, shards: 3, endpoints: ENDPOINTS });
    const { adminKey: key, url } = nodes.at(0);
    const failed: string[] = [];
    for (const endpoint of ENDPOINTS) {
      await nodes
        .at(0)
        .startWorker(endpoint, 'console.ts')
        .find(/connected/);
      const client = createClient({ url, key, endpoint });
      const { id } = await client.run({ act: 'fail', text: endpoint });
      await client.wait(id);
      failed.unshift(id);
    }
    for (const node of nodes.all) {
      const platform = createPlatform({ url: node.url, key });
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await platform.failedJobs({ limit: 4, cursor });
        expect(page.unreachable).toEqual([]);
        seen.push(...page.jobs.map(({ id }) => id));
        for (const { endpoint, inputPreview } of page.jobs) {
          expect(inputPreview).toBe(JSON.stringify({ act: 'fail', text: endpoint.name }));
        }
        cursor = page.cursor;
      } while (cursor !== undefined);
      expect(seen).toEqual(failed);
      const activity = await node.fetch('/v1/endpoints/b/activity');
      expect(await activity.json()).toMatchObject({ id: 'b', workers: { idle: 1 } });
    }
  } finally {
    await nodes?.close();
    await server.stop();
  }
});
