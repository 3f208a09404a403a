// A leader that is frozen, replaced, and wakes up again while it manages workers: it ends and starts nothing. Workers of
// its machine are replaced after --replace-workers-ms, and removed when it is back.
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { NodeProcesses } from '../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../support/postgres.ts';
import { fixture, type PlatformProcess } from '../support/processes.ts';

const COUNT = 3;
const LONG = { timeout: 120_000, interval: 100 };

const created = z.object({ id: z.string() });
const podList = z.object({
  pods: z.array(z.object({ status: z.string(), reason: z.string().nullable() })),
});

const isLeftOut = leaveOutWithoutPostgres('test/soak/paused-leader.test.ts');

describe.skipIf(isLeftOut)('a frozen leader', () => {
  let server: PostgresServer;
  let nodes: NodeProcesses;

  beforeAll(async () => {
    server = await PostgresServer.start();
    nodes = await NodeProcesses.start({
      ...{ store: await server.createDatabase(), count: COUNT, shards: 6, endpoints: [] },
      ...{ engine: 'process', args: ['--replace-workers-ms', '2000'] },
    });
    // The first node leads. A node that joins gets pods as soon as the leader has found it.
    await nodes.at(0).process.find(/(?:node found[\s\S]*){3}/);
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
  });

  const create = async (node: PlatformProcess, path: string, body: object) =>
    created.parse(await (await node.post(path, body)).json()).id;
  /** Running ones of which nothing is wrong. */
  const countWell = async () => {
    const response = await nodes.at(1).fetch('/v2/pods?limit=1000');
    if (response.status !== 200) return -1;
    const { pods } = podList.parse(await response.json());
    return pods.filter(({ reason, status }) => status === 'RUNNING' && reason === null).length;
  };
  const countContainers = async () => {
    const folders = nodes.all.map(({ folder }) => join(folder, 'data', 'pods', 'containers'));
    const lists = await Promise.all(folders.map((folder) => readdir(folder).catch(() => [])));
    return lists.flat().length;
  };

  it('is replaced with its workers, and does not act on what it believed when it wakes up', async () => {
    const template = { name: 'worker', image: 'none', handler: fixture('tagged.ts') };
    const templateId = await create(nodes.at(1), '/v1/templates', template);
    const sizes = { workersMin: COUNT, workersMax: COUNT, idleTimeout: 60 };
    const endpoint = await create(nodes.at(1), '/v1/endpoints', {
      ...{ name: 'jobs', templateId, ...sizes },
    });
    await expect.poll(countWell, LONG).toBe(COUNT);
    nodes.at(0).process.child.kill('SIGSTOP');
    await expect.poll(countWell, LONG).toBe(COUNT - 1);
    await expect.poll(countWell, LONG).toBe(COUNT);
    expect(await countContainers()).toBe(COUNT + 1);
    nodes.at(0).process.child.kill('SIGCONT');
    await expect.poll(countContainers, LONG).toBe(COUNT);
    // Two passes of any leader over all pods.
    await sleep(5_000);
    expect([await countWell(), await countContainers()]).toEqual([COUNT, COUNT]);
    const answer = await nodes.at(0).post(`/v2/${endpoint}/runsync`, { input: { n: 1, ms: 0 } });
    expect(await answer.json()).toMatchObject({ status: 'COMPLETED' });
  });
});
