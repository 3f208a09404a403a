// Several nodes on one Postgres database: any node answers any request, and a node's jobs go on elsewhere when it
// leaves, dies or freezes.
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { Agent, request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { TcpBalancer } from '../../support/network/tcp-balancer.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

const jobRef = z.object({ id: z.string() });
const keyRef = z.object({ id: z.string(), key: z.string() });
const ENDPOINTS = ['square-1', 'square-2', 'square-3', 'square-4'];

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes.test.ts');

describe.skipIf(isLeftOut)('three nodes', () => {
  let server: PostgresServer;
  let nodes: NodeProcesses;

  beforeAll(async () => {
    server = await PostgresServer.start();
    const store = await server.createDatabase();
    nodes = await NodeProcesses.start({
      ...{ store, count: 3, shards: 6, endpoints: ENDPOINTS },
      lastEnv: { MILLRACE_SHUTDOWN_DELAY_MS: '2000' },
    });
    for (const [index, endpoint] of ENDPOINTS.entries()) {
      nodes.at(index % 3).startWorker(endpoint, 'square.ts');
    }
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
  });

  const square = async (node: PlatformProcess, endpoint: string, n: number) => {
    const answer = await node.post(`/v2/${endpoint}/runsync`, { input: { n, ms: 0 } });
    return { status: answer.status, body: await answer.json() };
  };
  const right = (n: number) => ({
    status: 200,
    body: { status: 'COMPLETED', output: { n, square: n * n } },
  });

  it('answer for every endpoint, whichever of them is asked', async () => {
    for (const [index, endpoint] of ENDPOINTS.entries()) {
      for (const [asked, node] of nodes.all.entries()) {
        const n = index * 10 + asked;
        expect(await square(node, endpoint, n)).toMatchObject(right(n));
      }
    }
  });

  it('know what one of them was told about keys and endpoints', async () => {
    const [first, second, third] = [nodes.at(0), nodes.at(1), nodes.at(2)];
    const created = await second.post('/v1/keys', { name: 'read', scopes: ['jobs:read'] });
    const { id, key } = keyRef.parse(await created.json());
    const look = (node: PlatformProcess) =>
      node.fetch(`/v2/${ENDPOINTS[0]}/health`, { headers: { authorization: `Bearer ${key}` } });
    for (const node of nodes.all) expect((await look(node)).status).toBe(200);
    const removed = await third.fetch(`/v1/keys/${id}`, { method: 'DELETE' });
    expect(removed.status).toBe(204);
    const statuses = async () =>
      Promise.all(nodes.all.map(async (node) => (await look(node)).status));
    await expect.poll(statuses, { timeout: 30_000 }).toEqual([401, 401, 401]);
    expect((await first.fetch('/readyz')).status).toBe(200);
  });

  it('serve an endpoint by the name that one of them gave it, also after a change', async () => {
    for (const [turn, name] of ['first-name', 'second-name'].entries()) {
      const path = turn === 0 ? `/v1/endpoints/${ENDPOINTS[1]}` : '/v1/endpoints/first-name';
      const renamed = await nodes.at(turn).fetch(path, {
        method: 'PATCH',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ name }),
      });
      expect(renamed.status).toBe(200);
      for (const [asked, node] of nodes.all.entries()) {
        expect(await square(node, name, asked)).toMatchObject(right(asked));
      }
    }
    const old = async () =>
      Promise.all(
        nodes.all.map(async (node) => (await node.fetch('/v2/first-name/health')).status),
      );
    await expect.poll(old, { timeout: 30_000 }).toEqual([404, 404, 404]);
  });

  /** Asks all endpoints through a load balancer, on kept connections. */
  const askThrough = async (balancer: TcpBalancer) => {
    const clients = new Agent();
    const answered = new Map<string, number>();
    const failures: string[] = [];
    const ask = async (endpoint: string) => {
      const answer = await request(`${balancer.url}/v2/${endpoint}/runsync`, {
        ...{ dispatcher: clients, method: 'POST' },
        headers: {
          authorization: `Bearer ${nodes.at(0).adminKey}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ input: { n: 1, ms: 20 } }),
      });
      const text = await answer.body.text();
      const outcome = `${answer.statusCode} ${answer.headers['connection']}`;
      answered.set(outcome, (answered.get(outcome) ?? 0) + 1);
      if (answer.statusCode !== 200) failures.push(`${answer.statusCode}: ${text}`);
    };
    let isOver = false;
    const asking = ENDPOINTS.map(async (endpoint) => {
      while (!isOver) {
        await ask(endpoint).catch((error: unknown) => failures.push(inspect(error)));
      }
    });
    const has = (outcome: string) => answered.get(outcome) ?? 0;
    await expect.poll(() => has('200 keep-alive'), { timeout: 30_000 }).toBeGreaterThan(20);
    return {
      async end() {
        isOver = true;
        await Promise.all(asking);
        await clients.close();
        return { failures, last: has('200 close') };
      },
    };
  };

  it('lose no request when a node leaves and comes back, also of clients that keep their connection to it', async () => {
    const [leaving, ...others] = [nodes.at(2), nodes.at(0), nodes.at(1)];
    const balancer = await TcpBalancer.start(nodes.all.map(({ url }) => url));
    const kept = await askThrough(balancer);
    let isOver = false;
    const answers: { status: number; body: unknown }[] = [];
    const asking = Array.from({ length: 4 }, async (_, index) => {
      for (let n = 0; !isOver; n++) {
        const node = others[n % 2] ?? leaving;
        answers.push(await square(node, ENDPOINTS[index] ?? '', n));
      }
    });
    await sleep(200);
    expect(await leaving.process.end('SIGTERM')).toBe(0);
    await sleep(500);
    await leaving.restart();
    await sleep(2_500);
    isOver = true;
    await Promise.all(asking);
    const { failures, last } = await kept.end();
    await balancer.close();
    expect(failures).toEqual([]);
    expect(last).toBeGreaterThan(0);
    expect(answers.length).toBeGreaterThan(ENDPOINTS.length);
    expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
    // A wait that a handover ends is answered with the state of the job at that time.
    const unfinished = answers.filter(({ body }) => !JSON.stringify(body).includes('COMPLETED'));
    expect(unfinished.length).toBeLessThan(answers.length);
  });

  it.each(['SIGKILL', 'SIGSTOP'] as const)('go on without a node after %s', async (signal) => {
    const ids = new Map<string, string>();
    for (const endpoint of ENDPOINTS) {
      const submitted = await nodes.at(1).post(`/v2/${endpoint}/run`, { input: { n: 7, ms: 500 } });
      ids.set(endpoint, jobRef.parse(await submitted.json()).id);
    }
    nodes.at(0).process.child.kill(signal);
    const stoppedAt = performance.now();
    for (const [endpoint, id] of ids) {
      await until(
        async () => {
          const answer = await nodes.at(2).fetch(`/v2/${endpoint}/status/${id}`);
          return answer.status === 200;
        },
        { everyMs: 50 },
      );
    }
    console.log(`${signal}: all served after ${Math.round(performance.now() - stoppedAt)} ms`);
    if (signal === 'SIGKILL') await nodes.at(0).restart();
    else nodes.at(0).process.child.kill('SIGCONT');
    for (const [endpoint, id] of ids) {
      const look = async () => (await nodes.at(0).fetch(`/v2/${endpoint}/status/${id}`)).json();
      await expect
        .poll(look, { timeout: 30_000 })
        .toMatchObject({ status: 'COMPLETED', output: { n: 7, square: 49 } });
    }
  });
});

describe.skipIf(isLeftOut)('a database of a single platform', () => {
  it('becomes that of nodes with all of its jobs, and takes no single platform any more', async () => {
    const server = await PostgresServer.start();
    const store = await server.createDatabase();
    const single = await PlatformProcess.start({ endpoints: ['old'], args: ['--store', store] });
    const submitted = await single.post('/v2/old/run', { input: { n: 3, ms: 0 } });
    const { id } = jobRef.parse(await submitted.json());
    await single.process.end();
    const nodes = await NodeProcesses.start({ store, count: 2, shards: 4, endpoints: ['old'] });
    try {
      nodes.at(1).startWorker('old', 'square.ts');
      const look = async () => (await nodes.at(1).fetch(`/v2/old/status/${id}`)).json();
      await expect
        .poll(look, { timeout: 30_000 })
        .toMatchObject({ status: 'COMPLETED', output: { n: 3, square: 9 } });
      await nodes.close();
      await expect(single.restart()).rejects.toThrow(
        'the database has 4 shards, which nodes share; start this platform as a node',
      );
    } finally {
      await nodes.close();
      await single.close();
      await server.stop();
    }
  });
});
