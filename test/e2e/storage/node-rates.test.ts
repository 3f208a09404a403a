// Several nodes count the calls of a user together.
import { expect, it } from 'vitest';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import type { PlatformProcess } from '../../support/processes.ts';

const LIMIT = 100;

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/node-rates.test.ts');

it.skipIf(isLeftOut)(
  'admits one limit on three nodes, also after the leader has left',
  async () => {
    const server = await PostgresServer.start();
    const args = ['--rate-limit', `minute=0,hour=${LIMIT},day=0`];
    let nodes: NodeProcesses | undefined;
    try {
      const store = await server.createDatabase();
      nodes = await NodeProcesses.start({ store, count: 3, shards: 3, endpoints: ['a'], args });
      const call = async (node: PlatformProcess) => {
        const response = await node.fetch('/v1/endpoints');
        await response.text();
        return response;
      };
      const spend = async (asked: readonly PlatformProcess[], each: number) => {
        const callers = asked.map(async (node) => {
          const answers: Response[] = [];
          for (let made = 0; made < each; made++) answers.push(await call(node));
          return answers;
        });
        return (await Promise.all(callers)).flat();
      };
      const count = (answers: readonly Response[]) =>
        answers.filter(({ status }) => status === 200).length;

      const admitted = count(await spend(nodes.all, 60));
      expect(admitted).toBeGreaterThanOrEqual(LIMIT * 0.95);
      expect(admitted).toBeLessThanOrEqual(LIMIT * 1.05);

      for (const node of nodes.all) {
        const { headers, status } = (await spend([node], LIMIT * 0.05)).at(-1) ?? {};
        expect(status).toBe(429);
        expect(headers?.get('ratelimit')).toMatch(/^"hour";r=0;t=3[56]\d\d$/);
        expect(Number(headers?.get('retry-after'))).toBeGreaterThan(3_000);
      }

      expect(await nodes.at(0).process.end('SIGTERM')).toBe(0);
      const late = count(await spend([nodes.at(1), nodes.at(2)], 20));
      expect(admitted + late).toBeLessThanOrEqual(LIMIT * 1.05);
    } finally {
      await nodes?.close();
      await server.stop();
    }
  },
);
