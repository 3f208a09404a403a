// The session of a browser on several nodes: it begins on one, works on all, and ends for all.
import { expect, it } from 'vitest';
import { z } from 'zod';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import type { PlatformProcess } from '../../support/processes.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-sessions.test.ts');

const sessionAnswer = z.object({ platform: z.object({ nodes: z.int() }) });

const OWN_PAGE = { 'millrace-console': '1', 'sec-fetch-site': 'same-origin' };

async function signIn(node: PlatformProcess): Promise<string> {
  const response = await fetch(`${node.url}/v1/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...OWN_PAGE },
    body: JSON.stringify({ key: node.adminKey }),
  });
  expect(response.status).toBe(201);
  return (response.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
}

async function countNodes({ adminKey, url }: PlatformProcess): Promise<unknown> {
  const headers = { authorization: `Bearer ${adminKey}` };
  const response = await fetch(`${url}/v1/session`, { headers });
  return sessionAnswer.parse(await response.json()).platform.nodes;
}

async function statusesOf(nodes: NodeProcesses, path: string, cookie: string): Promise<number[]> {
  const responses = nodes.all.map(({ url }) => fetch(url + path, { headers: { cookie } }));
  return (await Promise.all(responses)).map(({ status }) => status);
}

it.skipIf(isLeftOut)(
  'shares a session between all nodes, and keeps it over a restart',
  async () => {
    const server = await PostgresServer.start();
    let nodes: NodeProcesses | undefined;
    try {
      const store = await server.createDatabase();
      nodes = await NodeProcesses.start({ store, count: 2, shards: 4, endpoints: ['a', 'b', 'c'] });
      for (const node of nodes.all) {
        // A node learns of the others with the next renewal of its row.
        await expect.poll(() => countNodes(node), { timeout: 30_000 }).toBe(2);
        const cookie = await signIn(node);
        // Some of the endpoints belong to the other node.
        for (const path of ['/v1/keys', '/v2/a/jobs', '/v2/b/jobs', '/v2/c/jobs']) {
          expect(await statusesOf(nodes, path, cookie)).toEqual([200, 200]);
        }
        const headers = { cookie, ...OWN_PAGE };
        const other = nodes.all.find((each) => each !== node) ?? node;
        for (const endpoint of ['a', 'b', 'c']) {
          const url = `${other.url}/v2/${endpoint}/purge-queue`;
          expect((await fetch(url, { method: 'POST', headers })).status).toBe(200);
          expect((await fetch(url, { method: 'POST', headers: { cookie } })).status).toBe(403);
        }
        const out = await fetch(`${other.url}/v1/session`, { method: 'DELETE', headers });
        expect(out.status).toBe(204);
        expect(await statusesOf(nodes, '/v1/keys', cookie)).toEqual([401, 401]);
      }
      const cookie = await signIn(nodes.at(1));
      expect(await nodes.at(0).process.end('SIGTERM')).toBe(0);
      const { url } = nodes.at(1);
      expect((await fetch(`${url}/v1/keys`, { headers: { cookie } })).status).toBe(200);
    } finally {
      await nodes?.close();
      await server.stop();
    }
  },
);
