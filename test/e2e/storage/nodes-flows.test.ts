// Flows, `after` and handlers that wait, over endpoints of several shards on two nodes, while these are killed and started
// again: each job runs once after its parents, each flow counts each end, and each child is started once.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../../src/client.ts';
import type { Script } from '../../support/handlers/api-script.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';

const ENDPOINTS = ['a', 'b', 'c', 'd'];
/** Their handler waits for children on the others. */
const DURABLE = ['e', 'f', 'g'];
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
      ...{ store: server.url(), count: 2, shards: 4, endpoints: [...ENDPOINTS, ...DURABLE] },
    });
    const { adminKey: key, url } = nodes.at(0);
    client = createClient({ url, key, endpoint: 'a' });
    for (const endpoint of [...ENDPOINTS, ...DURABLE]) {
      const handler = DURABLE.includes(endpoint) ? 'durable.ts' : 'api-script.ts';
      const worker = nodes.at(0).startWorker(endpoint, handler);
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

  it('let handlers await children of other shards, each once, over the kill of each node', async () => {
    const named = DURABLE.map((endpoint) => `'${endpoint}'`).join();
    const spread = `select count(distinct shard) > 1 from endpoint where id in (${named})`;
    expect(await server.query(spread)).toBe('t');
    const parents = await Promise.all(
      DURABLE.map(async (endpoint) => {
        const folder = join(nodes.at(0).folder, endpoint);
        mkdirSync(folder);
        const { adminKey: key, url } = nodes.at(0);
        const of = createClient({ url, key, endpoint });
        const endpoints = DURABLE.filter((other) => other !== endpoint);
        const { id } = await of.run({ folder, endpoints });
        return { folder, id, of };
      }),
    );
    const readNotes = (folder: string) => {
      try {
        return readFileSync(join(folder, 'notes'), 'utf8').trim().split('\n');
      } catch {
        return [];
      }
    };
    const noted = (pattern: RegExp) =>
      expect
        .poll(
          () => parents.every(({ folder }) => readNotes(folder).some((line) => pattern.test(line))),
          PATIENCE,
        )
        .toBe(true);
    const goOn = (file: string) => {
      for (const { folder } of parents) writeFileSync(join(folder, file), '');
    };
    goOn('start');
    await noted(/^child left/);
    await noted(/^child right/);
    await nodes.at(1).kill();
    goOn('children');
    await nodes.at(1).restart();
    await noted(/^resumed/);
    await nodes.at(0).kill();
    await nodes.at(0).restart();
    goOn('finish');
    for (const { folder, id, of } of parents) {
      await expect
        .poll(async () => (await of.status(id).catch(() => undefined))?.status, PATIENCE)
        .toBe('COMPLETED');
      expect((await of.status(id)).output).toEqual(['left', 'right']);
      const children = readNotes(folder).filter((line) => line.startsWith('child'));
      expect(new Set(children).size).toBe(2);
      // Its own job, and a child of each of the others.
      expect((await of.jobs()).jobs).toHaveLength(DURABLE.length);
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
