// Workers of several nodes call the node that owns their endpoint, once they have been told its URL, and find the next
// owner when that node dies.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import type { PlatformProcess, Process } from '../../support/processes.ts';

const jobRef = z.object({ id: z.string() });
const ENDPOINTS = ['square-1', 'square-2'];
const COUNT = 3;
const SHARDS = 6;
const JOBS = 40;
/** Polls that begin while a worker still learns who the owner is. */
const FEW = 10;
const PATIENCE = { timeout: 60_000 };

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-owner.test.ts');

describe.skipIf(isLeftOut)('workers of several nodes', () => {
  let server: PostgresServer;
  let nodes: NodeProcesses;

  beforeAll(async () => {
    server = await PostgresServer.start();
    const parts = { store: server.url(), count: COUNT, shards: SHARDS, endpoints: ENDPOINTS };
    nodes = await NodeProcesses.start({ ...parts, advertise: true });
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
  });

  const ownerOf = async (endpoint: string): Promise<number> => {
    const url = await server.query(
      `select url from node join shard on owner = node.id join endpoint on shard = shard.id
        where endpoint.id = '${endpoint}'`,
    );
    return nodes.urls.indexOf(url);
  };

  /** Each node has its fair share, so no shard moves any more. */
  const untilBalanced = async () => {
    const fair = SHARDS / COUNT;
    const owners = `select count(*) from (select from shard group by owner having owner is not null and count(*) = ${fair}) as balanced`;
    await expect.poll(() => server.query(owners), PATIENCE).toBe(`${COUNT}`);
  };

  const startWorker = async (
    index: number,
    endpoint: string,
    carrier: 'http' | 'grpc',
  ): Promise<Process> => {
    const told = carrier === 'grpc' ? ['--url', await nodes.grpcUrlOf(index)] : [];
    return nodes.at(index).startWorker(endpoint, 'square.ts', ...told);
  };

  const countForwarded = async (): Promise<number> => {
    const each = await Promise.all(nodes.all.map(readForwarded));
    return each.reduce((sum, count) => sum + count, 0);
  };

  const submit = async (index: number, endpoint: string, n: number): Promise<string> => {
    const answer = await nodes.at(index).post(`/v2/${endpoint}/run`, { input: { n, ms: 100 } });
    return jobRef.parse(await answer.json()).id;
  };

  const read = async (index: number, endpoint: string, id: string): Promise<unknown> => {
    const answer = await nodes
      .at(index)
      .fetch(`/v2/${endpoint}/status/${id}`)
      .catch(() => null);
    return answer?.json();
  };

  it.each([
    ['http', 'square-1'],
    ['grpc', 'square-2'],
  ] as const)(
    'call the owner over %s, and the next owner after its death',
    async (carrier, endpoint) => {
      await untilBalanced();
      const owner = await ownerOf(endpoint);
      const configured = (owner + 1) % COUNT;
      const third = (owner + 2) % COUNT;
      const worker = await startWorker(configured, endpoint, carrier);
      // The first polls may have begun before the worker knew.
      await expect.poll(() => worker.output, PATIENCE).toContain('calling the owner');

      const before = await countForwarded();
      for (let n = 0; n < JOBS; n++) {
        const answer = await nodes
          .at(owner)
          .post(`/v2/${endpoint}/runsync`, { input: { n, ms: 0 } });
        expect(await answer.json()).toMatchObject({ output: { n, square: n * n } });
      }
      // Each job needs two calls of the worker.
      expect((await countForwarded()) - before).toBeLessThan(FEW);

      const ids: string[] = [];
      for (let n = 0; n < JOBS; n++) ids.push(await submit(owner, endpoint, n));
      await nodes.at(owner).kill();
      const next = async () => {
        const found = await ownerOf(endpoint);
        return found >= 0 && found !== owner;
      };
      await expect.poll(next, PATIENCE).toBe(true);
      for (const [n, id] of ids.entries()) {
        await expect
          .poll(() => read(third, endpoint, id), PATIENCE)
          .toMatchObject({ status: 'COMPLETED', output: { n, square: n * n } });
      }
      expect(worker.output).toContain('owner of the endpoint does not answer');
      expect(worker.child.exitCode).toBe(null);

      const now = await ownerOf(endpoint);
      await sleep(500);
      const settled = await readForwarded(nodes.at(configured));
      for (let n = 0; n < JOBS; n++) {
        const answer = await nodes.at(now).post(`/v2/${endpoint}/runsync`, { input: { n, ms: 0 } });
        expect(await answer.json()).toMatchObject({ output: { n, square: n * n } });
      }
      expect((await readForwarded(nodes.at(configured))) - settled).toBeLessThan(FEW);
      await nodes.at(owner).restart();
    },
  );
});

/** Requests that the node has passed to other nodes. */
async function readForwarded(node: PlatformProcess): Promise<number> {
  const text = await (await node.fetch('/metrics')).text();
  const counts = text.matchAll(
    /^millrace_forwarded_request_duration_seconds_count\{[^}]*\} (\d+)/gm,
  );
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}
